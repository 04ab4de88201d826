import type { RowFault } from "../packing/input-target.js";
import { badRowError, type RejectOptions, withRow } from "./rejects.js";

/** A bad row that ends the run. Its message needs values, which are read from the shard again. */
export class PendingFault extends Error {
  readonly fault: RowFault;

  /** @param cause why the row is not rejected; undefined: `on_bad_row` is fail */
  constructor(fault: RowFault, cause?: unknown) {
    super("a row cannot be scored", { cause });
    this.fault = fault;
  }
}

/** The error that a bad row ends the run with. */
export async function faultError(rejects: RejectOptions, { fault, cause }: PendingFault): Promise<unknown> {
  return cause === undefined ? await badRowError(rejects, fault) : await withRow(rejects, cause, fault);
}
