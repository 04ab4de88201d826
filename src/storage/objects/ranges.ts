import type { ObjectRange } from "../../objects/protocol.js";
import { splitRange } from "../../objects/store.js";

/** The share of unneeded bytes between ranges that may be fetched to save requests. */
const wasteShare = 0.05;
/** Gaps up to this size are always fetched: another request costs more. */
const wasteBytes = 64 * 1024;

/** Sorts ranges, merges those that overlap or touch, and cuts them to [0, sizeBytes). */
export function normalizeRanges(ranges: readonly ObjectRange[], sizeBytes: number): ObjectRange[] {
  const normal: { start: number; end: number }[] = [];
  for (const { start, end } of ranges.toSorted((one, other) => one.start - other.start)) {
    const from = Math.max(0, start);
    const to = Math.min(end, sizeBytes);
    const last = normal.at(-1);
    if (last !== undefined && from <= last.end) {
      last.end = Math.max(last.end, to);
    } else if (from < to) {
      normal.push({ start: from, end: to });
    }
  }
  return normal;
}

/** The bytes of `ranges` that are not in `others`; both are normalized. */
export function subtractRanges(ranges: readonly ObjectRange[], others: readonly ObjectRange[]): ObjectRange[] {
  return ranges.flatMap((range) => {
    const rest: ObjectRange[] = [];
    let { start } = range;
    for (const other of others) {
      if (other.end > start && other.start < range.end) {
        if (other.start > start) {
          rest.push({ start, end: other.start });
        }
        start = other.end;
      }
    }
    return start < range.end ? [...rest, { start, end: range.end }] : rest;
  });
}

/**
 * Plans the requests that fetch normalized ranges. Near ranges share a request, smallest gaps first, while the gaps stay
 * a small share of all bytes; large ranges are split.
 */
export function planRequests(ranges: readonly ObjectRange[]): ObjectRange[] {
  const needed = ranges.reduce((sum, { start, end }) => sum + end - start, 0);
  let allowed = Math.max(wasteBytes, needed * wasteShare);
  const gaps = ranges
    .slice(1)
    .map(({ start }, index) => ({ index: index + 1, bytes: start - (ranges[index]?.end ?? start) }))
    .toSorted((one, other) => one.bytes - other.bytes);
  const joined = new Set<number>();
  for (const { index, bytes } of gaps) {
    if (bytes > allowed) {
      break;
    }
    allowed -= bytes;
    joined.add(index);
  }
  const merged: { start: number; end: number }[] = [];
  for (const [index, { start, end }] of ranges.entries()) {
    const last = merged.at(-1);
    if (last !== undefined && joined.has(index)) {
      last.end = end;
    } else {
      merged.push({ start, end });
    }
  }
  return merged.flatMap(splitRange);
}
