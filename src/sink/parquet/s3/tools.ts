import type { DuckDbAccess } from "../../../duckdb/instance.js";
import { errnoOf, JobError } from "../../../util/errors.js";
import type { Spool } from "../../../s3/spool.js";
import type { S3Target } from "../../../s3/target.js";
import type { Compression } from "../../../spec/parquet-spec.js";

/** What an attempt at a target in S3 works with. */
export interface S3Tools {
  readonly store: S3Target;
  /** The target, as `s3://bucket/key`, without a slash at its end. */
  readonly folder: string;
  /** Where parts are until they are sent, and footers until they are read. */
  readonly spool: Spool;
  readonly duckdb: DuckDbAccess;
  readonly compression: Compression;
  /** Names this attempt: unique among all on all machines. */
  readonly writer: string;
  readonly isDead: (writer: string) => boolean;
  /** Told of what a user should know and need not act on. */
  readonly warn: (message: string) => void;
  /** Whether the store keeps to `If-None-Match`; asked of it once. */
  readonly isExclusive: () => Promise<boolean>;
}

/** Does `work`; an object that is gone from under it is told with what was being done. */
export async function telling<T>(doing: string, work: () => Promise<T>): Promise<T> {
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

/** Requests that one step has under way at once; the store bounds those of all. */
const atOnce = 24;

/** Does `work` for all, some at a time. */
export async function forEachOf<T, R>(all: readonly T[], work: (one: T) => Promise<R>): Promise<R[]> {
  const results: R[] = [];
  for (let start = 0; start < all.length; start += atOnce) {
    results.push(...(await Promise.all(all.slice(start, start + atOnce).map(work))));
  }
  return results;
}
