import type { RowsOfRun } from "../publish/rows-of-run.js";
import type { RunSink } from "../sink/port.js";

/** What became of the rows of all committed spans. */
export function rowsOfRun({ outputRows, rejectedRows, filteredRows }: RunSink): RowsOfRun {
  return { output: outputRows, rejected: rejectedRows, filtered: filteredRows };
}
