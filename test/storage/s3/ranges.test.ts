import { array, assert, nat, property, record } from "fast-check";
import { describe, expect, test } from "vitest";
import { type ByteRange, normalRanges, requestsFor, withoutRanges } from "#src/storage/s3/ranges.js";

const size = 200;
const range = record({ start: nat(size + 20), end: nat(size + 20) });
const ranges = array(range, { maxLength: 8 });

/** Each byte below `size` that lies in one of them. */
function bytesOf(all: readonly ByteRange[], below = size): Set<number> {
  const found = new Set<number>();
  for (const { start, end } of all) {
    for (let byte = start; byte < Math.min(end, below); byte += 1) {
      found.add(byte);
    }
  }
  return found;
}

function sum(all: readonly ByteRange[]): number {
  return all.reduce((total, { start, end }) => total + end - start, 0);
}

function isNormal(all: readonly ByteRange[]): boolean {
  return all.every(({ start, end }, index) => start < end && start > (all[index - 1]?.end ?? -1));
}

describe("ranges of bytes", () => {
  test("made normal are sorted and apart, and have the same bytes inside the object", () => {
    assert(
      property(ranges, (given) => {
        const normal = normalRanges(given, size);
        expect(isNormal(normal)).toBe(true);
        expect(bytesOf(normal)).toEqual(bytesOf(given));
        expect(normal.every(({ end }) => end <= size)).toBe(true);
      }),
    );
  });

  test("without others have their own bytes and none of those", () => {
    assert(
      property(ranges, ranges, (one, other) => {
        const rest = withoutRanges(normalRanges(one, size), normalRanges(other, size));
        const others = bytesOf(other);
        expect([...bytesOf(rest)]).toEqual(
          [...bytesOf(one)].filter((byte) => !others.has(byte)).toSorted((a, b) => a - b),
        );
      }),
    );
  });
});

describe("requests", () => {
  const mib = 1024 * 1024;

  test("have every byte that is needed, once, and little else", () => {
    const far = record({ start: nat(60 * mib), end: nat(60 * mib) });
    assert(
      property(array(far, { maxLength: 20 }), (given) => {
        const needed = normalRanges(given, 60 * mib);
        const requests = requestsFor(needed);
        expect(withoutRanges(needed, normalRanges(requests, 60 * mib))).toEqual([]);
        expect(sum(normalRanges(requests, 60 * mib))).toBe(sum(requests));
        expect(sum(requests)).toBeLessThanOrEqual(Math.max(sum(needed) * 1.05, sum(needed) + 64 * 1024) + 1);
        expect(requests.every(({ start, end }) => end - start <= 8 * mib && end > start)).toBe(true);
      }),
    );
  });

  test("join what is near, the nearest first", () => {
    const chunks = [0, 10, 20, 30].map((at) => ({ start: at * 100_000, end: at * 100_000 + 990_000 }));
    expect(requestsFor(chunks)).toEqual([{ start: 0, end: 3_990_000 }]);
    expect(requestsFor([chunks[0] ?? never(), { start: 40 * mib, end: 41 * mib }])).toHaveLength(2);
  });

  test("divide what is large into equal pieces", () => {
    const pieces = requestsFor([{ start: 5, end: 5 + 20 * mib }]);
    expect(pieces).toHaveLength(3);
    expect(new Set(pieces.slice(0, 2).map(({ start, end }) => end - start)).size).toBe(1);
  });

  test("are none where nothing is needed", () => {
    expect(requestsFor([])).toEqual([]);
  });
});

function never(): never {
  throw new Error("unreachable");
}
