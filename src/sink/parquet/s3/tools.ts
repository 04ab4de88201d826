import type { DuckDbAccess } from "../../../duckdb/instance.js";
import { errnoOf, JobError } from "../../../util/errors.js";
import type { Spool } from "../../../util/spool.js";
import type { S3Store } from "../../../s3/store.js";
import type { OpenKeyDuckDb } from "../common/key-counts.js";
import type { Compression } from "../../../spec/parquet-spec.js";

/** The tools of an attempt at a target in S3. */
export interface S3Tools {
  readonly store: S3Store;
  /** The target, as `s3://bucket/key`, without a slash at its end. */
  readonly folder: string;
  /** Holds parts until they are sent, and footers until they are read. */
  readonly spool: Spool;
  readonly duckdb: DuckDbAccess;
  /** Opens a DuckDB that reads parts in the spool, for `checks.unique`. */
  readonly openKeyDuckDb: OpenKeyDuckDb;
  readonly compression: Compression;
  /** Names this attempt: unique among all attempts on all machines. */
  readonly writer: string;
  readonly isDead: (writer: string) => boolean;
  /** Warns the user of what needs no action. */
  readonly warn: (message: string) => void;
  /** Whether the store honours `If-None-Match`; the store is asked once. */
  readonly isExclusive: () => Promise<boolean>;
}

/** Runs `work`; an object that disappears during the work is reported with the act, `doing`. */
export async function guarded<T>(doing: string, work: () => Promise<T>): Promise<T> {
  try {
    return await work();
  } catch (error) {
    if (!(error instanceof JobError) && errnoOf(error) === "ENOENT" && error instanceof Error) {
      throw new JobError("OUTPUT_DAMAGED", `${doing}: ${error.message}`, {
        hint: "something else removes objects here; run the same command again",
        cause: error,
      });
    }
    throw error;
  }
}

/** Requests of one step under way at once. The store bounds those of all steps. */
const atOnce = 24;

/** Runs `work` for each item, a bounded number at a time. */
export async function mapBounded<T, R>(all: readonly T[], work: (one: T) => Promise<R>): Promise<R[]> {
  const results: R[] = [];
  for (let start = 0; start < all.length; start += atOnce) {
    results.push(...(await Promise.all(all.slice(start, start + atOnce).map(work))));
  }
  return results;
}
