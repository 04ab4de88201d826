import { expect, test } from "vitest";
import { refusalKind } from "#src/models/served/server.js";
import { createHeaderPace, hasRoom } from "#src/models/served/turns.js";

test.each<[status: number, said: string, kind: string]>([
  [400, "unknown category", "values"],
  [422, "unknown category", "values"],
  [400, "inference request batch-size must be <= 8 for 'm'", "too large"],
  [413, "", "too large"],
  [400, "Request for unknown model: 'm' is not found", "gone"],
  [400, "Request for unknown model: 'm' has no available versions", "gone"],
  [404, "", "gone"],
  [500, "CUDA error", "fault"],
  [408, "", "overloaded"],
  [425, "", "overloaded"],
  [429, "", "overloaded"],
  [502, "", "overloaded"],
  [503, "", "overloaded"],
  [504, "", "overloaded"],
  [401, "", "other"],
  [501, "", "other"],
])("an answer with status %i and the text '%s' is a refusal of the kind %s", (status, said, kind) => {
  expect(refusalKind({ status, headers: new Headers(), said: JSON.stringify({ error: said }) })).toMatchObject({
    kind,
  });
});

const pauseOf = (given: string, more: Readonly<Record<string, string>> = {}): unknown => {
  const headers = new Headers({ "retry-after": given, ...more });
  const found = refusalKind({ status: 503, headers, said: "" });
  return found.kind === "overloaded" ? found.retryAfterMs : found.kind;
};

test("a server that asks for a pause in milliseconds, too, is not waited for longer", () => {
  expect(pauseOf("1", { "retry-after-ms": "20" })).toBe(20);
  expect(pauseOf("1", { "retry-after-ms": "soon" })).toBe(1000);
});

test("a server asks for a pause in seconds or until a date", () => {
  expect(pauseOf("7")).toBe(7000);
  expect(pauseOf("soon")).toBe(0);
  expect(pauseOf(new Date(0).toUTCString())).toBe(0);
  const ms = pauseOf(new Date(Date.now() + 3_600_000).toUTCString());
  expect(ms).toBeGreaterThan(3_590_000);
  expect(ms).toBeLessThanOrEqual(3_600_000);
});

const headers = (given: Readonly<Record<string, string>>): Headers =>
  new Headers(Object.entries(given).map(([name, value]): [string, string] => [`x-ratelimit-${name}`, value]));

test("requests wait until the server's headers allow them", () => {
  let nowMs = 0;
  const pace = createHeaderPace(() => nowMs);
  const heard = pace.sent(10);
  expect(pace.readyMs(10)).toBe(0);

  nowMs = 100;
  pace.sent(10); // sent after the request that is answered now: the headers do not count it
  const said = headers({ "limit-requests": "600", "remaining-requests": "1", "reset-requests": "1s" });
  heard(said);

  // 600 a minute are 10 a second: 1 was left, 1 came in 100 ms, 1 was sent.
  expect(pace.readyMs(10)).toBe(0);
  pace.sent(10);
  expect(pace.readyMs(10)).toBeCloseTo(200);
  nowMs = 200;
  expect(pace.readyMs(10)).toBe(0);
});

test("tokens of a request count as the server counts them", () => {
  let nowMs = 0;
  const pace = createHeaderPace(() => nowMs);
  const heard = pace.sent(100);
  const said = headers({ "limit-tokens": "60000", "remaining-tokens": "50", "reset-tokens": "6m0s" });
  heard(said);

  expect(pace.readyMs(50)).toBe(0);
  expect(pace.readyMs(150)).toBeCloseTo(100);
  nowMs = 100;
  expect(pace.readyMs(150)).toBe(0);
});

test("a refusal whose headers say that there is room is about its request alone", () => {
  expect(hasRoom(headers({ "remaining-requests": "5", "remaining-tokens": "7" }))).toBe(true);
  expect(hasRoom(headers({ "remaining-requests": "5", "remaining-tokens": "0" }))).toBe(false);
  expect(hasRoom(new Headers())).toBe(false);
});
