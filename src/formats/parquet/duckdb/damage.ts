import { boundColumns, type ColumnRef } from "../../../binding/contract.js";
import { firstLine } from "../../../duckdb/sql.js";
import type { ConnectionPool } from "../../../duckdb/instance.js";
import { JobError, messageOf } from "../../../util/errors.js";
import { columnSql } from "../../sql/cast-sql.js";
import { corrupt, type Damage } from "../damage.js";
import type { Footer } from "../footer/footer.js";
import { readFooter } from "../footer/read-footer.js";
import { groupsBetween } from "../footer/groups.js";
import { verifyPages } from "../pages/verify.js";
import { fromRows, inSlice, parquetTable } from "../../sql/slice-sql.js";
import type { ShardFile, SliceRequest } from "../../port.js";

/** How a stream over the rows of a slice ended. */
export interface StreamEnd {
  /** The row that was due. */
  readonly reached: number;
  /** What DuckDB said; a stream that meets an error may also just end. */
  readonly cause: unknown;
}

/**
 * Why the rows of a slice did not all come. DuckDB says neither row group nor column, so what is left is read
 * again, without a stream: row group by row group, then the first that fails column by column.
 */
export async function findDamage(pool: ConnectionPool, slice: SliceRequest, end: StreamEnd): Promise<Damage> {
  const { file } = slice;
  const { path } = file;
  const damageAt = (error: JobError): Damage => ({ error, rowStart: end.reached });
  const known = kindOf(path, end.cause);
  if (known !== undefined) {
    return damageAt(known);
  }
  try {
    const found = await firstDamaged(pool, { ...slice, rowStart: end.reached }, await readFooter(file));
    if (found !== undefined) {
      return { error: await damageError(file, found), rowStart: found.range.rowStart };
    }
  } catch (error) {
    return damageAt(error instanceof JobError ? error : corrupt(path, messageOf(error), error));
  }
  if (end.cause !== undefined) {
    return damageAt(corrupt(path, firstLine(messageOf(end.cause)), end.cause));
  }
  const came = end.reached === slice.rowStart ? "no row" : `rows ${slice.rowStart}..${end.reached - 1}`;
  return damageAt(corrupt(path, `it gave ${came}, but its footer promises rows up to ${slice.rowEnd - 1}`));
}

/** Errors that say nothing about the shard. */
function kindOf(path: string, error: unknown): JobError | undefined {
  const message = firstLine(messageOf(error));
  return message.startsWith("Permission Error")
    ? new JobError("PERMISSION", `reading ${path}: ${message}`, { hint: "grant read permission", cause: error })
    : undefined;
}

async function firstDamaged(pool: ConnectionPool, slice: SliceRequest, footer: Footer): Promise<Found | undefined> {
  const columns = columnsOf(slice);
  for (const { group, rowStart, rowEnd } of groupsBetween(footer, slice)) {
    const range = { rowStart, rowEnd };
    const failureOfAll = await tryToRead(pool, { ...slice, ...range }, columns);
    if (failureOfAll === undefined) {
      continue;
    }
    for (const column of columns) {
      const failure = await tryToRead(pool, { ...slice, ...range }, [column]);
      if (failure !== undefined) {
        return { group, range, column, failure };
      }
    }
    return { group, range, failure: failureOfAll };
  }
  return undefined;
}

interface Found {
  readonly group: number;
  readonly range: Pick<SliceRequest, "rowStart" | "rowEnd">;
  readonly column?: ColumnRef;
  readonly failure: { readonly cause: unknown };
}

async function damageError(file: ShardFile, { group, range, column, failure }: Found): Promise<JobError> {
  const { path } = file;
  const message = firstLine(messageOf(failure.cause));
  if (message.startsWith("Out of Memory Error")) {
    // A damaged page may ask for any amount of memory, so memory is too small only if the pages are undamaged.
    await verifyPages(file, { groups: [group] });
    return new JobError("MEMORY", `reading ${path}: ${message}`, {
      hint: "give the job more memory",
      cause: failure.cause,
    });
  }
  const where = column === undefined ? "" : `, column \`${column.name}\``;
  const place = `row group ${group} (rows ${range.rowStart} to ${range.rowEnd - 1})${where}`;
  return corrupt(path, `${place}: ${message}`, failure.cause);
}

/** The file's columns that a slice reads, those that expressions use included; no values of folder names. */
function columnsOf({ projection }: SliceRequest): ColumnRef[] {
  const bound = boundColumns(projection).filter(({ partition, computed }) => partition !== true && computed !== true);
  const { list, folders } = projection.expressions ?? { list: [], folders: [] };
  const used = list.flatMap(({ uses }) => uses).filter((name) => folders.every((folder) => folder.name !== name));
  // Only whether they can be read matters, not their types.
  const refs = [...bound, ...used.map((name): ColumnRef => ({ name, path: [name], type: "utf8" }))];
  return [...new Map(refs.map((ref) => [ref.path.join("\n"), ref])).values()];
}

async function tryToRead(
  pool: ConnectionPool,
  slice: SliceRequest,
  columns: readonly ColumnRef[],
): Promise<{ cause: unknown } | undefined> {
  // Not count(column): where statistics say that there is no NULL, it is answered without reading the column.
  const sums = columns.map((column) => `bit_xor(hash(${columnSql(column, slice.partitions)}))`);
  const from = fromRows({ ...slice, table: parquetTable(slice.file.path), expressions: null }, inSlice(slice));
  try {
    await pool.use((connection) => connection.run(`SELECT ${["count(*)", ...sums].join(", ")} ${from}`));
    return undefined;
  } catch (cause) {
    return { cause };
  }
}
