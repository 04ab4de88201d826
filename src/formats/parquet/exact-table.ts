import { quoteName } from "../../base/sql.js";
import { type FileHandle, open, rm } from "node:fs/promises";
import type { ColumnType } from "../../columns/types.js";
import { sqlTypeOf } from "../../duckdb/sql.js";
import { JobError, reworded } from "../../base/errors.js";
import { isDeadWriter, newWriter, openSpool, spoolRoot, withSpoolErrors } from "../../base/spool.js";
import { writeAll } from "../../base/write-all.js";
import type { ByteRange, ShardFile, SliceRequest } from "../format.js";
import { plannedColumns, untypedNulls } from "../planned-columns.js";
import { parquetTable } from "../sql/slice-sql.js";
import type { Footer, Leaf } from "./footer.js";
import { sliceWindows } from "./windows.js";

type ReadColumns = ReadonlyMap<string, ColumnType | undefined>;

/**
 * Shards as tables of DuckDB with the types of the plan, where DuckDB reads other ones:
 * - Nanoseconds in UTC are cut to microseconds. It is given a copy whose footer does not say "in UTC", with the bytes
 *   that a query reads and holes for all others.
 * - A column of type null is an INTEGER. It is replaced by NULLs of the plan's type.
 */
export interface ExactTables extends AsyncDisposable {
  /** The folder of copies, which DuckDB must be allowed to read. It is made for the first copy. */
  readonly folder: string;
  /** Cuts a slice into parts whose copies are small; a slice that needs no copy stays whole. */
  parts(slice: SliceRequest, footer: Footer): Promise<readonly CopiedSlice[]>;
  /** `work` is given the table. `ranges`: the bytes that its query reads. */
  use<T>(shard: ExactShard, work: (table: string) => Promise<T>): Promise<T>;
  stream<T, R>(shard: ExactShard, work: (table: string) => AsyncGenerator<T, R>): AsyncGenerator<T, R>;
}

interface CopiedSlice {
  readonly slice: SliceRequest;
  readonly ranges: readonly ByteRange[];
}

interface ExactShard {
  readonly file: ShardFile;
  readonly footer: Footer;
  readonly columns: ReadColumns;
  readonly ranges: readonly ByteRange[];
}

/** Whether DuckDB reads one of these columns with another type or other values than the plan has. */
export function isInexact({ leaves }: Footer, columns: ReadColumns): boolean {
  return leavesIn(leaves, columns).some((leaf) => isNullColumn(leaf) || leaf.utcNanosAt !== undefined);
}

function isNullColumn({ path, annotation }: Leaf): boolean {
  return annotation === "null" && path.length === 1;
}

function leavesIn(leaves: readonly Leaf[], columns: ReadColumns): Leaf[] {
  return leaves.filter(({ path }) => columns.has(path[0] ?? ""));
}

/** Bytes that one copy should have; a row group is not divided. */
const copyBytes = 64 * 1024 * 1024;

export function exactTables(): ExactTables {
  const spool = openSpool({
    root: spoolRoot("", undefined),
    writer: newWriter(),
    use: "copies",
    isDead: isDeadWriter,
    maxBytes: Number.POSITIVE_INFINITY,
  });
  const openTable = async (shard: ExactShard): Promise<{ path: string; table: string } & AsyncDisposable> => {
    const { file, footer, columns, ranges } = shard;
    const path = needsCopy(footer, columns) ? spool.newPath() : file.path;
    const dispose = async (): Promise<void> => await (path === file.path ? undefined : rm(path, { force: true }));
    if (path !== file.path) {
      try {
        await spool.prepare();
        await withSpoolErrors(spool, () => copy(shard, path, ranges));
      } catch (error) {
        await dispose();
        throw error;
      }
    }
    return {
      path,
      table: withNulls(parquetTable(path, footer.select), footer, columns),
      [Symbol.asyncDispose]: dispose,
    };
  };
  return {
    folder: spool.folder,
    async parts(slice, footer) {
      return needsCopy(footer, plannedColumns(slice.projection))
        ? (await sliceWindows(slice, copyBytes)).map(({ ranges, ...rows }) => ({
            slice: { ...slice, ...rows },
            ranges,
          }))
        : [{ slice, ranges: [] }];
    },
    async use(shard, work) {
      await using opened = await openTable(shard);
      try {
        return await work(opened.table);
      } catch (error) {
        throw named(error, opened.path, shard.file);
      }
    },
    async *stream(shard, work) {
      await using opened = await openTable(shard);
      try {
        return yield* work(opened.table);
      } catch (error) {
        throw named(error, opened.path, shard.file);
      }
    },
    [Symbol.asyncDispose]: () => spool[Symbol.asyncDispose](),
  };
}

function needsCopy({ leaves }: Footer, columns: ReadColumns): boolean {
  return leavesIn(leaves, columns).some(({ utcNanosAt }) => utcNanosAt !== undefined);
}

/** Columns of type null have the type of the plan; where no shard has one, they are text to expressions. */
function withNulls(table: string, { leaves }: Footer, columns: ReadColumns): string {
  const replaced = leavesIn(leaves, columns)
    .filter(isNullColumn)
    .map(
      ({ path: [name = ""] }) => `CAST(NULL AS ${sqlTypeOf(columns.get(name) ?? untypedNulls)}) AS ${quoteName(name)}`,
    );
  return replaced.length === 0 ? table : `(SELECT * REPLACE (${replaced.join(", ")}) FROM ${table})`;
}

const blockBytes = 8 * 1024 * 1024;

async function copy({ file, footer }: ExactShard, path: string, ranges: readonly ByteRange[]): Promise<void> {
  const { pagesEnd, sizeBytes, leaves } = footer;
  await using from = await open(file.path);
  await using to = await open(path, "wx", 0o600);
  const block = Buffer.allocUnsafe(blockBytes);
  for (const { start, end } of [{ start: 0, end: 4 }, ...ranges]) {
    for (let at = start; at < end; ) {
      const bytes = await readAt(from, block.subarray(0, Math.min(blockBytes, end - at)), at);
      await writeAll(to, bytes, at);
      at += bytes.length;
    }
  }
  const tail = await readAt(from, Buffer.allocUnsafe(sizeBytes - pagesEnd), pagesEnd);
  for (const { utcNanosAt } of leaves) {
    if (utcNanosAt !== undefined) {
      tail[utcNanosAt] = ((tail[utcNanosAt] ?? 0) & 0xf0) | falseField;
    }
  }
  await writeAll(to, tail, pagesEnd);
}

/** The type of a field of Thrift's compact protocol that is `false`. */
const falseField = 2;

async function readAt(file: FileHandle, buffer: Buffer, at: number): Promise<Buffer> {
  for (let length = 0; length < buffer.length; ) {
    const { bytesRead } = await file.read(buffer, length, buffer.length - length, at + length);
    if (bytesRead === 0) {
      throw new RangeError(`the file ends at byte ${at + length}`);
    }
    length += bytesRead;
  }
  return buffer;
}

function named(error: unknown, path: string, file: ShardFile): unknown {
  return error instanceof JobError ? reworded(error, { message: error.message.replaceAll(path, file.path) }) : error;
}
