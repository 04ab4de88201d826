import { expect, test } from "vitest";
import { randomOf } from "../../support/random.js";
import { createHeaderPace, hasRoom } from "#src/engine/prompts/pace.js";

const headers = (given: Readonly<Record<string, string>>): Headers =>
  new Headers(Object.entries(given).map(([name, value]): [string, string] => [`x-ratelimit-${name}`, value]));

test("requests wait until the server's headers allow them", () => {
  let nowMs = 0;
  const pace = createHeaderPace(() => nowMs);
  const mark = pace.sent(10);
  expect(pace.readyMs(10)).toBe(0);

  nowMs = 100;
  pace.sent(10); // sent after the request that is answered now: the headers do not count it
  const said = headers({ "limit-requests": "600", "remaining-requests": "1", "reset-requests": "1s" });
  pace.heard(mark, { isRefused: false, headers: said });

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
  const mark = pace.sent(100);
  const said = headers({ "limit-tokens": "60000", "remaining-tokens": "50", "reset-tokens": "6m0s" });
  pace.heard(mark, { isRefused: false, headers: said });

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

/**
 * Sends as many requests of 100 tokens as the pace allows, for a minute, to a server without headers; returns what the
 * second half was.
 * @param takes whether the server takes a request at a time
 */
function simulate(takes: (nowMs: number) => boolean, perMs = 1): { taken: number; refused: number } {
  let nowMs = 0;
  const pace = createHeaderPace(() => nowMs);
  const counts = { taken: 0, refused: 0 };
  for (; nowMs < 60_000; nowMs += 1) {
    for (let sent = 0; sent < perMs && pace.readyMs(100) <= nowMs; sent += 1) {
      const mark = pace.sent(100);
      const isTaken = takes(nowMs);
      pace.heard(mark, { isRefused: !isTaken, headers: new Headers() });
      counts.taken += isTaken && nowMs >= 30_000 ? 1 : 0;
      counts.refused += !isTaken && nowMs >= 30_000 ? 1 : 0;
    }
  }
  return counts;
}

test.each([5, 50, 400])("without headers, %i requests a second are learnt from what is refused", (perSecond) => {
  let [level, levelMs] = [perSecond, 0];
  const { taken, refused } = simulate((nowMs) => {
    level = Math.min(perSecond, level + ((nowMs - levelMs) * perSecond) / 1000);
    levelMs = nowMs;
    const isTaken = level >= 1;
    level -= isTaken ? 1 : 0;
    return isTaken;
  });
  expect(taken / (30 * perSecond)).toBeGreaterThan(0.85);
  expect(refused / (taken + refused)).toBeLessThan(0.12);
});

test("a few refusals that come at any rate do not slow requests down", () => {
  const random = randomOf(9);
  const { taken, refused } = simulate(() => random() > 0.05);
  expect(taken + refused).toBe(30_000);
});

test("a low rate that was learnt while the client was slow is left behind when it is not", () => {
  const random = randomOf(9);
  let nowMs = 0;
  let taken = 0;
  const pace = createHeaderPace(() => nowMs);
  const [slowMs, measuredMs, endMs] = [20_000, 180_000, 210_000];
  for (; nowMs < endMs; nowMs += 1) {
    const isSlow = nowMs < slowMs;
    if ((!isSlow || nowMs % 250 === 0) && pace.readyMs(100) <= nowMs) {
      const isTaken = random() > (isSlow ? 0.4 : 0.05); // many of a few are refused by chance
      pace.heard(pace.sent(100), { isRefused: !isTaken, headers: new Headers() });
      taken += isTaken && nowMs >= measuredMs ? 1 : 0;
    }
  }
  expect(taken / (endMs - measuredMs)).toBeGreaterThan(0.9);
});

test("a request that weighs more than the rate of half a second waits for its tokens, and no longer", () => {
  let nowMs = 0;
  const pace = createHeaderPace(() => nowMs);
  for (; nowMs < 5000; nowMs += 100) {
    const isTaken = nowMs % 500 === 0; // 200 tokens a second
    pace.heard(pace.sent(100), { isRefused: !isTaken, headers: new Headers() });
  }
  const sinceMs = nowMs;
  while (pace.readyMs(2000) > nowMs && nowMs < 60_000) {
    nowMs += 100;
  }
  expect(nowMs - sinceMs).toBeGreaterThan(5000);
  expect(nowMs).toBeLessThan(60_000);
});
