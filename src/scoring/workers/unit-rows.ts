import type { ScoringThreads } from "../../formats/port.js";

/** Of what is left, for each thread: when the others are through with theirs, one is at work on as little as that. */
const unitsPerThread = 4;
/** Less is hardly worth its message. */
const leastRows = 1024;

/**
 * Rows of the next unit, `passed` behind those that were asked for. Like guided self-scheduling
 * (https://doi.org/10.1109/TC.1987.5009495): the less is left, the less a thread takes at once.
 * @param most where there is enough for all
 */
export function unitRows(most: number, passed: number, scoring: ScoringThreads | undefined): number {
  if (scoring === undefined) {
    return most;
  }
  const { threads, rowsLeft, batchRows } = scoring;
  const part = Math.ceil((rowsLeft - passed) / (threads * unitsPerThread));
  return Math.min(most, wholeBatches(Math.max(leastRows, part), batchRows()));
}

/** Cuts rows into units of about as many each: whole batches of the model, where it gets them. */
export function cutRows(
  { from, to }: { readonly from: number; readonly to: number },
  most: number,
  scoring: ScoringThreads | undefined,
): { from: number; to: number }[] {
  const parts = Math.ceil((to - from) / most);
  const even = Math.ceil((to - from) / parts);
  const rows = scoring === undefined ? even : wholeBatches(even, scoring.batchRows());
  return Array.from({ length: Math.ceil((to - from) / rows) }, (_, part) => ({
    from: from + part * rows,
    to: Math.min(to, from + (part + 1) * rows),
  }));
}

function wholeBatches(rows: number, batchRows: number): number {
  return Math.ceil(rows / batchRows) * batchRows;
}
