import type { Plan } from "../../plan/plan.js";
import type { RejectedRow } from "../../columnar/types.js";
import { type RowRange, rangesOfRows } from "../../scoring/read-ranges.js";
import { JobError } from "../../util/errors.js";

/** The rejected rows of a run, by the run's numbers. */
export interface RejectedRows {
  readonly count: number;
  /** Neighbouring ones together, in order. */
  ranges(this: void): readonly RowRange[];
  has(this: void, row: number): boolean;
}

/** Reads the rejected rows of some spans of a run. @throws JobError OUTPUT_DAMAGED for a row that is not of its plan */
export async function readRejected(
  { runId, input, commitRows }: Plan,
  rejects: AsyncIterable<RejectedRow>,
  isWanted: (span: number) => boolean,
): Promise<RejectedRows> {
  const starts = new Map<string, number>();
  let start = 0;
  for (const { uri, rows } of input.shards) {
    starts.set(uri, start);
    start += rows;
  }
  const bySpan = new Map<number, number[]>();
  let count = 0;
  for await (const { shard, row } of rejects) {
    const inRun = (starts.get(shard) ?? Number.NaN) + row;
    if (!(inRun < input.rows)) {
      throw new JobError(
        "OUTPUT_DAMAGED",
        `reading the rejected rows of run ${runId}: row ${row} of ${shard} is not one of its rows`,
      );
    }
    const span = Math.floor(inRun / commitRows);
    if (isWanted(span)) {
      const rows = bySpan.get(span) ?? [];
      rows.push(inRun);
      bySpan.set(span, rows);
      count += 1;
    }
  }
  const sets = new Map([...bySpan].map(([span, rows]) => [span, new Set(rows)]));
  return {
    count,
    has: (row) => sets.get(Math.floor(row / commitRows))?.has(row) === true,
    ranges: () => rangesOfRows([...bySpan.values()].flat()),
  };
}
