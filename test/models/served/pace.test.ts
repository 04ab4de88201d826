import { expect, test } from "vitest";
import { createHeaderPace, hasRoom } from "#src/models/served/turns.js";

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
