import type { RowFault } from "../packing/input-target.js";
import type { OpenSpan } from "./open-span.js";
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

/** What happens to bad rows. */
export interface FaultRules {
  /** Called for each row that is rejected; undefined: the first bad row ends the run. */
  readonly onReject?: (() => void) | undefined;
}

/** Throws at the first bad row; where bad rows are rejected, counts each row once and throws when `onReject` does. */
export function faultHandler({ onReject }: FaultRules): (open: Pick<OpenSpan, "setAside">, fault: RowFault) => void {
  return (open, fault) => {
    if (onReject === undefined) {
      throw new PendingFault(fault);
    }
    if (open.setAside(fault)) {
      try {
        onReject();
      } catch (error) {
        throw new PendingFault(fault, error);
      }
    }
  };
}
