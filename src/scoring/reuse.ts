import type { ReuseTools, StoredRows } from "../packing/row-reuse.js";
import type { Plan } from "../plan/plan.js";
import type { JobSpec } from "../spec/job-spec.js";

/** Hashes rows and, where an earlier run is reused, finds its rows. */
export interface Reuse extends ReuseTools {
  /** Finds stored rows. Calls are in the order of the rows. Default: there are none. */
  readonly find?: ((rows: SoughtRows) => Promise<StoredRows>) | undefined;
  /** Whether a row of the run takes its stored prediction whatever its features are now. Default: none does. */
  readonly keeps?: ((row: number) => boolean) | undefined;
}

/** Rows [rowStart, rowEnd) of the run, all of one span. */
export interface SoughtRows {
  readonly rowStart: number;
  readonly rowEnd: number;
  /** Lists the rows that `input.where` keeps, by the run's numbers. */
  readonly present: () => Float64Array;
}

/** Whether rows are compared before they are scored, or some left out, which the main thread does. */
export function comparesRows(
  { dedupe }: Pick<JobSpec, "dedupe">,
  { contract, rejectsOf }: Pick<Plan, "contract" | "rejectsOf">,
): boolean {
  return dedupe || contract.reuse !== undefined || rejectsOf !== undefined;
}
