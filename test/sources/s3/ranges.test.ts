import { array, assert, nat, property, record } from "fast-check";
import { expect, test } from "vitest";
import type { ObjectRange } from "#src/stores/objects/protocol.js";
import { normalizeRanges, planRequests, subtractRanges } from "#src/sources/objects.js";

const size = 200;
const range = record({ start: nat(size + 20), end: nat(size + 20) });
const ranges = array(range, { maxLength: 8 });

function bytesOf(all: readonly ObjectRange[], below = size): Set<number> {
  const found = new Set<number>();
  for (const { start, end } of all) {
    for (let byte = start; byte < Math.min(end, below); byte += 1) {
      found.add(byte);
    }
  }
  return found;
}

function sum(all: readonly ObjectRange[]): number {
  return all.reduce((total, { start, end }) => total + end - start, 0);
}

function isNormal(all: readonly ObjectRange[]): boolean {
  return all.every(({ start, end }, index) => start < end && start > (all[index - 1]?.end ?? -1));
}

test("normalizeRanges sorts and separates ranges, and keeps their bytes inside the object", () => {
  assert(
    property(ranges, (given) => {
      const normal = normalizeRanges(given, size);
      expect(isNormal(normal)).toBe(true);
      expect(bytesOf(normal)).toEqual(bytesOf(given));
      expect(normal.every(({ end }) => end <= size)).toBe(true);
    }),
  );
});

test("subtractRanges keeps the bytes of its ranges that are not in the others", () => {
  assert(
    property(ranges, ranges, (one, other) => {
      const rest = subtractRanges(normalizeRanges(one, size), normalizeRanges(other, size));
      const others = bytesOf(other);
      expect([...bytesOf(rest)]).toEqual(
        [...bytesOf(one)].filter((byte) => !others.has(byte)).toSorted((a, b) => a - b),
      );
    }),
  );
});

const mib = 1024 * 1024;

test("planRequests covers every needed byte once, and few others", () => {
  const far = record({ start: nat(60 * mib), end: nat(60 * mib) });
  assert(
    property(array(far, { maxLength: 20 }), (given) => {
      const needed = normalizeRanges(given, 60 * mib);
      const requests = planRequests(needed);
      expect(subtractRanges(needed, normalizeRanges(requests, 60 * mib))).toEqual([]);
      expect(sum(normalizeRanges(requests, 60 * mib))).toBe(sum(requests));
      expect(sum(requests)).toBeLessThanOrEqual(Math.max(sum(needed) * 1.05, sum(needed) + 64 * 1024) + 1);
      expect(requests.every(({ start, end }) => end - start <= 8 * mib && end > start)).toBe(true);
    }),
  );
});

test("planRequests joins near ranges, nearest first", () => {
  const chunks = [0, 10, 20, 30].map((at) => ({ start: at * 100_000, end: at * 100_000 + 990_000 }));
  expect(planRequests(chunks)).toEqual([{ start: 0, end: 3_990_000 }]);
  expect(planRequests([chunks[0] ?? never(), { start: 40 * mib, end: 41 * mib }])).toHaveLength(2);
});

test("planRequests splits a large range into equal ones", () => {
  const pieces = planRequests([{ start: 5, end: 5 + 20 * mib }]);
  expect(pieces).toHaveLength(3);
  expect(new Set(pieces.slice(0, 2).map(({ start, end }) => end - start)).size).toBe(1);
});

test("planRequests returns no request for no range", () => {
  expect(planRequests([])).toEqual([]);
});

function never(): never {
  throw new Error("unreachable");
}
