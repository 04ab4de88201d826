import * as fc from "fast-check";
import { expect, test } from "vitest";
import { shareOf, spanAt, spanCount, spansOf, spansToSteal, type Worker } from "#src/run/plan/spans.js";
import { planOf } from "../../support/plans.js";

/** Shards of any number of rows, empty ones among them, first and last too. */
const rowCounts = fc.array(fc.oneof(fc.constant(0), fc.integer({ min: 0, max: 20 })), { maxLength: 20 });
const commitRows = fc.integer({ min: 1, max: 30 });

test("the spans of a plan hold every row of the run exactly once, in order", () => {
  fc.assert(
    fc.property(rowCounts, commitRows, (counts, commit) => {
      const plan = planOf(counts, commit);
      const spans = spansOf(plan);
      let next = 0;
      for (let index = 0; index < spans.count; index += 1) {
        const span = spans.at(index);
        expect([span.index, span.rowStart]).toEqual([index, next]);
        expect(span.rowEnd).toBeGreaterThan(span.rowStart);
        expect(span.rowEnd - span.rowStart).toBeLessThanOrEqual(commit);
        next = span.rowEnd;
      }
      expect(next).toBe(plan.input.rows);
    }),
  );
});

test("the spans of a plan have commit_rows rows each, except the last", () => {
  const plan = planOf([7, 6], 4);
  const spans = Array.from({ length: spanCount(plan) }, (_, index) => spanAt(plan, index));
  expect(spans.map(({ rowStart, rowEnd }) => [rowStart, rowEnd])).toEqual([
    [0, 4],
    [4, 8],
    [8, 12],
    [12, 13],
  ]);
});

test("the spans of a plan are exact far beyond 32 bits", () => {
  const plan = planOf([5_000_000_000, 5_000_000_000], 3_000_000_000);
  expect(spansOf(plan).slices(spanAt(plan, 1))).toMatchObject([
    { shard: { uri: "s0" }, rowStart: 3_000_000_000, rowEnd: 5_000_000_000 },
    { shard: { uri: "s1" }, rowStart: 0, rowEnd: 1_000_000_000 },
  ]);
});

test("the slices of the spans hold every row of every shard exactly once, in order, and none is empty", () => {
  fc.assert(
    fc.property(rowCounts, commitRows, (counts, commit) => {
      const spans = spansOf(planOf(counts, commit));
      const seen: string[] = [];
      for (let index = 0; index < spans.count; index += 1) {
        for (const { shard, rowStart, rowEnd } of spans.slices(spans.at(index))) {
          expect(rowEnd).toBeGreaterThan(rowStart);
          for (let row = rowStart; row < rowEnd; row += 1) {
            seen.push(`${shard.uri}:${row}`);
          }
        }
      }
      const all = counts.flatMap((rows, shard) => Array.from({ length: rows }, (_, row) => `s${shard}:${row}`));
      expect(seen).toEqual(all);
    }),
  );
});

test("the slices of the spans agree with locate() about each row", () => {
  fc.assert(
    fc.property(rowCounts, commitRows, (counts, commit) => {
      const spans = spansOf(planOf(counts, commit));
      const bySlices: string[] = [];
      for (let index = 0; index < spans.count; index += 1) {
        for (const { shard, rowStart, rowEnd } of spans.slices(spans.at(index))) {
          for (let row = rowStart; row < rowEnd; row += 1) {
            bySlices.push(`${shard.uri}:${row}`);
          }
        }
      }
      const located = bySlices.map((_, runRow) => spans.locate(runRow));
      expect(located.map(({ shard, row }) => `${shard.uri}:${row}`)).toEqual(bySlices);
    }),
  );
});

test("the slices of any range of rows hold exactly those rows", () => {
  const ranges = fc.tuple(rowCounts, commitRows, fc.nat(), fc.nat());
  fc.assert(
    fc.property(ranges, ([counts, commit, a, b]) => {
      const plan = planOf(counts, commit);
      const [rowStart = 0, rowEnd = 0] = [a % (plan.input.rows + 1), b % (plan.input.rows + 1)].toSorted(
        (x, y) => x - y,
      );
      const rows = spansOf(plan)
        .slices({ rowStart, rowEnd })
        .reduce((sum, slice) => sum + slice.rowEnd - slice.rowStart, 0);
      expect(rows).toBe(rowEnd - rowStart);
    }),
  );
});

test("a run without rows has no slice", () => {
  expect(spansOf(planOf([], 4)).slices({ rowStart: 0, rowEnd: 0 })).toEqual([]);
  expect(spansOf(planOf([0], 4)).slices({ rowStart: 0, rowEnd: 0 })).toEqual([]);
});

test("the slices of a span are found among 100,000 shards without visiting them all", () => {
  const shards = 100_000;
  const plan = planOf(
    Array.from({ length: shards }, (_, index) => (index % 10 === 3 ? 0 : 5)),
    1000,
  );
  let touched = 0;
  const counted = plan.input.shards.map((shard) => ({
    ...shard,
    get rows() {
      touched += 1;
      return shard.rows;
    },
  }));
  const spans = spansOf({ ...plan, input: { ...plan.input, shards: counted } });
  touched = 0;
  let rows = 0;
  for (let index = 0; index < spans.count; index += 1) {
    rows += spans.slices(spans.at(index)).reduce((sum, slice) => sum + slice.rowEnd - slice.rowStart, 0);
  }
  expect(rows).toBe(plan.input.rows);
  // Each shard is looked at about once, by the span or two that it lies in; not by each of the 450 spans.
  expect(touched).toBeLessThan(3 * shards);
  expect(spans.locate(plan.input.rows - 1)).toMatchObject({ shard: { uri: "s99999" }, row: 4 });
});

test("locate() in a plan without shards throws a RangeError", () => {
  expect(() => spansOf(planOf([], 4)).locate(0)).toThrow(RangeError);
});

const workers = fc
  .integer({ min: 1, max: 40 })
  .chain((count) => fc.record({ index: fc.integer({ min: 0, max: count - 1 }), count: fc.constant(count) }));

const flags = fc.array(fc.constantFrom(0, 1), { maxLength: 120 }).map((list) => Uint8Array.from(list));

const stolen = (flagged: Uint8Array, worker: Worker) =>
  spansToSteal(flagged.length, { has: (span) => flagged[span] === 1 }, worker);

const all = (count: number): Worker[] => Array.from({ length: count }, (_, index) => ({ index, count }));

test("shares are neighbours that hold each span once, in the order of the workers, and differ by one span at most", () => {
  fc.assert(
    fc.property(fc.nat(100_000), fc.integer({ min: 1, max: 500 }), (spans, count) => {
      let next = 0;
      const least = Math.floor(spans / count);
      for (const worker of all(count)) {
        const { from, to } = shareOf(spans, worker);
        expect(from).toBe(next);
        expect([least, least + 1]).toContain(to - from);
        next = to;
      }
      expect(next).toBe(spans);
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
