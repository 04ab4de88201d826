import type { Contract } from "../binding/contract.js";
import { bytesPerRow } from "../binding/row-bytes.js";
import type { Engine } from "../engine/port.js";
import { JobError } from "../util/errors.js";
import { count } from "../report/report.js";
import type { BatchSizer } from "./batch-size.js";
import type { ScoringContext } from "./context.js";

/** The largest batch that the device is known to have memory for. It never grows. */
export interface BatchLimit {
  /** Rows of a batch, at most. */
  readonly rows: number;
  /** Called before a batch goes to the engine; `exceeded` takes what it returns. */
  begin(rows: number): BegunBatch;
  /**
   * Halves the limit after a batch that did not fit, and renews the engine.
   * @throws JobError MEMORY when a batch cannot have fewer rows
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

/** Starts with the limit that an earlier run found. */
export async function openBatchLimit(
  { batchLimits, log }: Pick<ScoringContext, "batchLimits" | "log">,
  { engine, contract, modelSha256 }: BatchLimitOptions,
): Promise<BatchLimit> {
  const device = engine.local?.device ?? engine.provider;
  const of = { modelSha256, device, rowBytes: bytesPerRow(contract) };
  const known = await batchLimits.find(of);
  if (known !== undefined) {
    log.info(`batches have at most ${count(known, "row")}: in an earlier run, larger ones did not fit on ${device}`);
  }
  const reloads = engine.local === undefined ? "" : "the model is loaded again, ";
  const most = engine.mostRows ?? Number.POSITIVE_INFINITY;
  let rows = Math.min(known ?? most, most);
  let renewals = 0;
  /**
   * Rows of the largest batch since the engine was renewed: it has used most of the memory, even if another batch
   * fails.
   */
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
        await renewing; // the memory that the batch lacked is free now
        return;
      }
      if (fixed || largest === 1) {
        throw engine.traffic === undefined ? noMemoryFor(device, largest, message) : tooLargeFor(largest, message);
      }
      const tried = largest;
      rows = Math.floor(tried / 2);
      renewals += 1;
      largest = 0;
      const why =
        engine.traffic === undefined
          ? `no memory for a batch of ${count(tried, "row")} on ${device}`
          : `no request of ${count(tried, "row")} fits (${message})`;
      log.warn(`${why}: ${reloads}from now on batches have at most ${count(rows, "row")}`);
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

function tooLargeFor(rows: number, message: string): JobError {
  return new JobError("MODEL_INVALID", `scoring: the server takes no request of ${count(rows, "row")}: ${message}`, {
    hint: "raise the limit of the server, or of the proxy in front of it",
  });
}

/** A sizer whose batches stay within the limit. */
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
