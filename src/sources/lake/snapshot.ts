import type { TableColumn } from "../../columns/types.js";
import { JobError, messageOf } from "../../base/errors.js";
import type { Changes } from "../../run/plan/plan.js";
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

/** What came into a table between two positions: files that were added, in the order of their names. */
export interface LakeChanges extends LakeSnapshot {
  /** Names the version, and the table that it is of. */
  readonly position: string;
}

/** Which changes are read. `to`: null: up to now. */
export interface WantedChanges extends Omit<Changes, "to"> {
  readonly to: string | null;
}

/** Compactions neither add nor remove rows: their files are left out, and those they join are read instead. */
export function addedFiles<File>(table: string, onRewrite: Changes["onRewrite"]) {
  const added = new Map<string, File>();
  let areJoined = false;
  return {
    added: added as ReadonlyMap<string, File>,
    /** @param version as messages name it */
    commit: (version: string, { files, removed, joined, isRewrite }: Commit<File>): void => {
      if (isRewrite && onRewrite === "fail") {
        throw rewritten(table, `${version} overwrites or deletes rows`, newFiles);
      }
      if (isRewrite && areJoined) {
        throw rewritten(
          table,
          `${version} overwrites or deletes rows, after a compaction has joined new ones with others`,
        );
      }
      areJoined ||= joined.some((name) => added.has(name));
      // A file that is removed and added is one of which rows were removed.
      const stay = files.filter(([name]) => added.has(name) || !removed.includes(name));
      for (const name of removed) {
        added.delete(name);
      }
      for (const [name, file] of stay) {
        added.set(name, file);
      }
    },
  };
}

interface Commit<File> {
  /** Files with rows that it adds or rewrites, by their names in the table. */
  readonly files: readonly (readonly [string, File])[];
  /** Files of which it removes or rewrites rows. */
  readonly removed: readonly string[];
  /** Files whose rows it writes into others, as they are. */
  readonly joined: readonly string[];
  readonly isRewrite: boolean;
}

const newFiles =
  "input.on_rewrite: new_files reads the files that were added all the same, with all rows that were written into them; or";

/** The error for a range of which added rows alone are not the difference. @param other another way out */
export function rewritten(table: string, found: string, other = ""): JobError {
  return new JobError("INPUT_REWRITTEN", `reading what is new in table ${table}: ${found}`, {
    hint: `${other} score the whole table, with --new-run (and, unless mode is upsert, --allow-duplicates)`.trim(),
  });
}

export interface LakeFile {
  readonly uri: string;
  readonly sizeBytes: number;
  /** Rows in the file, the removed ones among them; undefined: the table does not say. */
  readonly rows: number | undefined;
  /** Values of columns that the table is partitioned by, as texts that SQL can cast, by name; null: NULL. */
  readonly partition: ReadonlyMap<string, string | null>;
  /** How many of its rows the table has removed; undefined: `removed` tells. */
  readonly removedCount: number | undefined;
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
  return JSON.parse(marked, (_key, value: unknown) =>
    typeof value === "object" && value !== null && "#integer" in value ? BigInt(String(value["#integer"])) : value,
  );
}
