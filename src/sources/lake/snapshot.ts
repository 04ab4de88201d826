import type { TableColumn } from "../../columns/types.js";
import { JobError, messageOf } from "../../base/errors.js";
import { z } from "../../base/zod.js";
import type { RemovedRows } from "./removed-rows.js";

/** A table of Delta Lake or Iceberg as it was at one time. */
export interface LakeSnapshot {
  /** The version of a Delta table, or the id of a snapshot of an Iceberg table. */
  readonly version: string;
  /** The id of the schema of an Iceberg table. */
  readonly schemaId: number | undefined;
  readonly columns: readonly TableColumn[];
  /** In the order of their names. */
  readonly files: readonly LakeFile[];
}

/** A data file of a snapshot. */
export interface LakeFile {
  readonly uri: string;
  readonly sizeBytes: number;
  /** Rows in the file, the removed ones among them; undefined: the table does not say. */
  readonly rows: number | undefined;
  /** Values of columns that the table is partitioned by, as texts that SQL can cast, by name; null: NULL. */
  readonly partition: ReadonlyMap<string, string | null>;
  /** How many of its rows the table has removed; undefined: `removed` tells. */
  readonly removedCount: number | undefined;
  /** Reads which these are. */
  readonly removed: () => Promise<RemovedRows>;
}

/** What a table is read through. Names are URIs, or paths on a disk. */
export interface LakeReader {
  /** Names directly below a folder; none where it does not exist. */
  list(folder: string): Promise<readonly string[]>;
  /** Bytes of a file: all, or some. @throws JobError FILE_MISSING */
  read(name: string, range?: { readonly start: number; readonly end: number }): Promise<Buffer>;
  /** What SQL makes of the rows of a Parquet file, one JSON text each. @throws Error where the file is damaged */
  parquet(name: string, sql: { readonly select: string; readonly where: string }): Promise<readonly string[]>;
  /** Unpacks a block of a codec that Node lacks. @throws RangeError */
  unpack(codec: string, packed: Buffer, mostBytes: number): Uint8Array;
}

/** Bytes of metadata in one file, at most. */
export const mostMetadataBytes = 512 * 1024 * 1024;
/** The error for a feature of a table that is not read. */
export function unread(table: string, feature: string, remedy: string): JobError {
  return new JobError("SPEC_INVALID", `reading table ${table}: it uses ${feature}, which infer-batch does not read`, {
    hint: remedy,
  });
}

/** The error for metadata that is not as its format says; errors that say what happened stay as they are. */
export function damaged(table: string, file: string, cause: unknown): JobError {
  if (cause instanceof JobError) {
    return cause;
  }
  const [issue] = cause instanceof z.ZodError ? cause.issues : [];
  const what = issue === undefined ? messageOf(cause) : `${issue.path.join(".")}: ${issue.message}`;
  return new JobError("SHARD_CORRUPT", `reading table ${table}: ${file}: ${what}`, {
    hint: "the table's metadata is damaged: repair the table with the engine that writes it",
    cause,
  });
}

/** Joins the name of a file of a table to its folder. @throws RangeError for a name that leads out of it */
export function insideOf(folder: string, name: string): string {
  const parts = name.split("/");
  if (
    name.startsWith("/") ||
    parts.includes("..") ||
    parts.includes(".") ||
    parts.includes("") ||
    /\p{Cc}/u.test(name)
  ) {
    throw new RangeError(`${JSON.stringify(name)} is no name of a file below the table`);
  }
  return `${folder}/${name}`;
}

/** JSON whose integers are exact: those that float64 would round are bigints. @throws SyntaxError */
export function exactIntegers(text: string): unknown {
  // Only integers of 16 digits or more can be rounded. A text may contain such digits: strings are passed over.
  const marked = text.replaceAll(/"(?:[^"\\]|\\.)*"|-?\d{16,}(?![\d.eE])/g, (token) =>
    token.startsWith('"') ? token : `{"#integer":"${token}"}`,
  );
  return JSON.parse(marked, (_key, value: unknown) => {
    if (typeof value === "object" && value !== null && "#integer" in value) {
      return BigInt(String(value["#integer"]));
    }
    return value;
  });
}
