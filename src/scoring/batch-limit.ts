import type { Contract } from "../binding/contract.js";
import { bytesPerRow } from "../binding/row-bytes.js";
import type { Engine } from "../engine/port.js";
import { JobError } from "../util/errors.js";
import { count } from "../report/report.js";
import type { BatchSizer } from "./batch-size.js";
import type { ScoringContext } from "./context.js";

/** How many rows the device has memory for, as far as is known. It only goes down. */
export interface BatchLimit {
  /** Of a batch, at most. */
  readonly rows: number;
  /** Told before a batch goes to the engine; what is returned is for `exceeded`. */
  begin(rows: number): BegunBatch;
  /**
   * A batch did not fit: from now on they have half the rows, with the engine renewed.
   * @throws JobError MEMORY when they cannot have less
   */
  exceeded(batch: BegunBatch, fault: { readonly fixed: boolean; readonly message: string }): Promise<void>;
}

export interface BegunBatch {
  readonly rows: number;
  /** How often the engine had been renewed. */
  readonly renewals: number;
}

export interface BatchLimitOptions {
  readonly engine: Engine;
  readonly contract: Contract;
  readonly modelSha256: string;
}

/** Begins with what an earlier run found. */
export async function openBatchLimit(
  { batchLimits, log }: Pick<ScoringContext, "batchLimits" | "log">,
  { engine, contract, modelSha256 }: BatchLimitOptions,
): Promise<BatchLimit> {
  const device = engine.local?.device ?? engine.provider;
  const of = { modelSha256, device, rowBytes: bytesPerRow(contract) };
  const known = await batchLimits.find(of);
  if (known !== undefined) {
    log.info(`batches of ${count(known, "row")} at most: an earlier run found no memory for more on ${device}`);
  }
  const reloads = engine.local === undefined ? "" : "the model is loaded anew, ";
  let rows = known ?? Number.POSITIVE_INFINITY;
  let renewals = 0;
  /** Of the batches since the engine was renewed: whichever fails, this one took most of the memory. */
  let largest = 0;
  let renewing = Promise.resolve();
  return {
    get rows() {
      return rows;
    },
    begin(begun) {
      largest = Math.max(largest, begun);
      return { rows: begun, renewals };
    },
    async exceeded(batch, { fixed, message }) {
      if (batch.renewals !== renewals) {
        await renewing; // memory that was taken then is free now
        return;
      }
      if (fixed || largest === 1) {
        throw noMemoryFor(device, largest, message);
      }
      const tried = largest;
      rows = Math.floor(tried / 2);
      renewals += 1;
      largest = 0;
      log.warn(
        `no memory for a batch of ${count(tried, "row")} on ${device}: ${reloads}batches have ${count(rows, "row")} at most from here on`,
      );
      renewing = engine.local?.renew() ?? Promise.resolve();
      await renewing;
      await batchLimits.keep(of, rows);
    },
  };
}

function noMemoryFor(device: string, rows: number, message: string): JobError {
  const what = rows === 1 ? "one row" : `${rows} rows, which is the model's own`;
  return new JobError("MEMORY", `scoring on ${device}: there is no memory for a batch of ${what}: ${message}`, {
    hint: "something else may hold it (nvidia-smi lists who): run the same command again; or take a device with more memory",
  });
}

/** No batch has more rows than there is room for. */
export function sizeWithin(batchLimit: Pick<BatchLimit, "rows">, sizer: BatchSizer): BatchSizer {
  return {
    get rows() {
      return Math.min(sizer.rows, batchLimit.rows);
    },
    took(rows, ms) {
      sizer.took(rows, ms);
    },
  };
}
