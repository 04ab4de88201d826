import type { Contract } from "../binding/contract.js";
import type { ReuseTools, StoredRows } from "../packing/row-reuse.js";
import type { JobSpec } from "../spec/job-spec.js";

/** Hashes rows and, where an earlier run is reused, finds its rows. */
export interface Reuse extends ReuseTools {
  /** Stored rows for rows [rowStart, rowEnd) of the run. Calls are in the order of the rows. Default: there are none. */
  readonly find?: ((rowStart: number, rowEnd: number) => Promise<StoredRows>) | undefined;
}

/** Whether rows are compared before they are scored, which the main thread does. */
export function comparesRows({ dedupe }: Pick<JobSpec, "dedupe">, { reuse }: Pick<Contract, "reuse">): boolean {
  return dedupe || reuse !== undefined;
}
