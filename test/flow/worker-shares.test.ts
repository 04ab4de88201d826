import * as fc from "fast-check";
import { expect, test } from "vitest";
import { shareOf, spansToSteal, type Worker } from "#src/run/plan/spans.js";

const workers = fc
  .integer({ min: 1, max: 40 })
  .chain((count) => fc.record({ index: fc.integer({ min: 0, max: count - 1 }), count: fc.constant(count) }));

const flags = fc.array(fc.constantFrom(0, 1), { maxLength: 120 }).map((list) => Uint8Array.from(list));

const stolen = (flagged: Uint8Array, worker: Worker) =>
  spansToSteal(flagged.length, { has: (span) => flagged[span] === 1 }, worker);

const all = (count: number): Worker[] => Array.from({ length: count }, (_, index) => ({ index, count }));

test("shares are neighbours that hold each span once, in the order of the workers", () => {
  fc.assert(
    fc.property(fc.nat(100_000), fc.integer({ min: 1, max: 500 }), (spans, count) => {
      let next = 0;
      for (const worker of all(count)) {
        const { from, to } = shareOf(spans, worker);
        expect(from).toBe(next);
        expect(to).toBeGreaterThanOrEqual(from);
        next = to;
      }
      expect(next).toBe(spans);
    }),
  );
});

test("shares differ by one span at most", () => {
  fc.assert(
    fc.property(fc.nat(100_000), fc.integer({ min: 1, max: 500 }), (spans, count) => {
      const sizes = all(count).map((worker) => {
        const { from, to } = shareOf(spans, worker);
        return to - from;
      });
      expect(Math.max(...sizes) - Math.min(...sizes)).toBeLessThanOrEqual(1);
    }),
  );
});

test("stolen spans are the last pending ones of one share, and there are some until all are committed", () => {
  fc.assert(
    fc.property(flags, workers, (committed, worker) => {
      const range = stolen(committed, worker);
      if (!committed.includes(0)) {
        expect(range).toBeUndefined();
        return;
      }
      const { from, to } = range ?? { from: 0, to: 0 };
      expect(committed[to - 1]).toBe(0);
      expect(to - from).toBeGreaterThan(0);
      expect(to - from).toBeLessThanOrEqual(4);
      const owner = all(worker.count).find((one) => {
        const share = shareOf(committed.length, one);
        return share.from <= from && to <= share.to;
      });
      expect(owner).toBeDefined();
    }),
  );
});

test("stealing spans ends, for any commits of other workers meanwhile", () => {
  fc.assert(
    fc.property(flags, workers, fc.infiniteStream(fc.nat()), (start, worker, others) => {
      const committed = Uint8Array.from(start);
      const pending = committed.reduce((sum, flag) => sum + 1 - flag, 0);
      let rounds = 0;
      for (let range = stolen(committed, worker); range !== undefined; range = stolen(committed, worker)) {
        committed.fill(1, range.from, range.to);
        committed[Number(others.next().value) % committed.length] = 1;
        rounds += 1;
      }
      expect(rounds).toBeLessThanOrEqual(pending);
      expect(committed).not.toContain(0);
    }),
  );
});

test("a worker steals the end of the share with most pending spans, at most half of them", () => {
  //                               worker 0    | worker 1          | worker 2
  const committed = Uint8Array.from([1, 1, 1, 1, 1, 1, 0, 0, 0, 0, 1, 0]);
  expect(stolen(committed, { index: 0, count: 3 })).toEqual({ from: 10, to: 12 });
  expect(stolen(Uint8Array.from({ length: 30 }), { index: 2, count: 3 })).toEqual({ from: 6, to: 10 });
});

test("each worker steals from a different share if the shares are equal", () => {
  const idle = Uint8Array.from({ length: 40 });
  const taken = all(4).map((worker) => stolen(idle, worker)?.to);
  expect(taken).toEqual([20, 30, 40, 10]);
});
