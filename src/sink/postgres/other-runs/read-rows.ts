import type { ColumnType, ScalarType } from "../../../columnar/types.js";
import type { Plan } from "../../../plan/plan.js";
import type { PublishedRowsRequest, StoredColumn, StoredFiles, StoredTable } from "../../../publish/published-files.js";
import { splitTable } from "../../../spec/postgres-spec.js";
import { assertNever, JobError } from "../../../util/errors.js";
import type { StoredPlan } from "../../port.js";
import { type Session, transact } from "../connections.js";
import { quoteName, quoteTable, showTable, type TableName } from "../names.js";
import { currentRun, previousTables } from "../control/swaps.js";
import type { RunTools } from "../run-tools.js";
import { findTable, type TableColumn } from "../table.js";
import type { PgName, PgType } from "../types.js";
import { createWriteStream } from "node:fs";
import { rm } from "node:fs/promises";
import { dirname } from "node:path";
import { pipeline } from "node:stream/promises";
import { to as copyTo } from "pg-copy-streams";
import type { RowSpool } from "../copy/spilled-copy.js";
import { finishSeconds } from "../finish-run.js";
import { retrying } from "../failures.js";

type Tools = CopiedTable & Pick<RunTools, "control" | "modeOf">;

/** A table, and which of its rows: those of a run, or all. */
interface Place {
  readonly name: TableName;
  readonly runId?: string | undefined;
}

/**
 * Copies the rows of a table, or of a run, into a file of the spool. @throws JobError USAGE for a table that is not
 * there, for a run whose rows are not in a table of their own and have no `run_id`, and for one without a row left
 * @param key columns whose numbers are never rounded
 */
export async function readTable(tools: Tools, what: StoredPlan | string, key: readonly string[]): Promise<StoredTable> {
  let columns: readonly StoredColumn[] = [];
  let due: RowsOfRun | undefined;
  const files = await copyRows(tools, async (session) => {
    const place = typeof what === "string" ? { name: splitTable(what) } : await placeOf(session, tools, what.plan);
    const found = await findTable(session, place.name);
    if (found === undefined) {
      throw new JobError("USAGE", `comparing ${showTable(place.name)}: there is no such table`, {
        hint: "tables are named as in output.postgres.table, with their schema",
      });
    }
    due = place.runId === undefined ? undefined : await rowsOfRun(session, tools, place.runId);
    const where = place.runId === undefined ? "" : ` WHERE run_id = '${place.runId.replaceAll("'", "''")}'`;
    const rows = `${quoteTable(place.name)}${where}`;
    const exact = new Set(found.columns.filter(({ name, type }) => key.includes(name) && isNumeric(type)));
    const others = found.columns.filter((column) => !exact.has(column));
    const rounded = await roundedColumns(session, others, rows);
    const read = found.columns.map((column) =>
      exact.has(column) ? asExactText(column) : asRead(column, rounded.has(column.name)),
    );
    columns = read;
    return `SELECT ${read.map(({ sql }) => sql).join(", ")} FROM ${rows}`;
  });
  warnOfMissing(tools, due, files.rows);
  return { ...files, columns };
}

interface RowsOfRun {
  readonly runId: string;
  readonly rows: number;
}

/** Counts the rows that a run has written. */
async function rowsOfRun(session: Session, { control }: Tools, runId: string): Promise<RowsOfRun> {
  const { rows } = await session.query<{ rows: string | null }>({
    text: `SELECT sum(rows)::text AS rows FROM ${control.table("spans")} WHERE run_id = $1`,
    values: [runId],
  });
  return { runId, rows: Number(rows[0]?.rows ?? 0) };
}

/** Says how many rows of a run are gone: a comparison of the others says little. @throws JobError USAGE if all are */
function warnOfMissing({ name, warn }: Tools, due: RowsOfRun | undefined, found: number): void {
  if (due === undefined || found >= due.rows) {
    return;
  }
  const gone = `comparing run ${due.runId}: ${due.rows - found} of ${due.rows} rows are no longer in ${showTable(name)}: later rows with the same key took their place, or they were deleted`;
  if (found === 0) {
    throw new JobError("USAGE", gone, {
      hint: "to compare the runs to come, put the logical date into output.postgres.key; or compare two tables: --table schema.one --against schema.other",
    });
  }
  warn(gone);
}

/** Finds where the rows of a run are whose spans are all committed. */
async function placeOf(session: Session, { control, modeOf, name }: Tools, plan: Plan): Promise<Place> {
  const { runId } = plan;
  const mode = modeOf(plan);
  if (!(await control.isFinished(session, runId))) {
    const own = mode.rowsAt(plan, { finished: false });
    if (showTable(own) !== showTable(name)) {
      return { name: own };
    }
  }
  switch (mode.kind) {
    case "replace": {
      if ((await currentRun(session, control, name)) === runId) {
        return { name };
      }
      const kept = (await previousTables(session, control, name)).find((table) => table.runId === runId);
      if (kept === undefined) {
        throw new JobError("USAGE", `comparing run ${runId}: no table has its rows now`, {
          hint: "output.postgres.keep_previous says how many replaced tables are kept",
        });
      }
      return { name: splitTable(kept.name) };
    }
    case "append":
    case "upsert":
      if (plan.contract.lineage !== true) {
        throw new JobError(
          "USAGE",
          `comparing run ${runId}: its rows in ${showTable(name)} cannot be told from those of other runs`,
          {
            hint: "set output.lineage for the runs to come; or compare two tables: --table schema.one --against schema.other",
          },
        );
      }
      return { name, runId };
    default:
      return assertNever(mode.kind);
  }
}

interface ReadColumn extends StoredColumn {
  readonly sql: string;
}

/**
 * The columns of type numeric that are read as floats: those of no fixed scale, or of more digits than a decimal of DuckDB
 * has, and those with a NaN.
 */
async function roundedColumns(
  session: Session,
  columns: readonly TableColumn[],
  rows: string,
): Promise<ReadonlySet<string>> {
  const rounded = new Set<string>();
  const decimals: string[] = [];
  for (const { name, type } of columns) {
    if (!isNumeric(type)) {
      continue;
    }
    if (type !== undefined && elementOf(type) !== undefined) {
      decimals.push(name);
    } else if (type?.decimal?.scale !== 0) {
      rounded.add(name);
    }
  }
  if (decimals.length > 0) {
    const anyNan = decimals.map((name, index) => `bool_or(${quoteName(name)} = 'NaN') AS c${index}`);
    const found = await session.query<Record<string, boolean | null>>(`SELECT ${anyNan.join(", ")} FROM ${rows}`);
    const [isNan = {}] = found.rows;
    decimals.filter((_, index) => isNan[`c${index}`] === true).forEach((name) => rounded.add(name));
  }
  return rounded;
}

function isNumeric(type: PgType | undefined): boolean {
  return type?.name === "numeric" && !type.array;
}

/**
 * A numeric column of a key, as text without trailing zeros. Equal numbers have equal texts, even if the columns differ
 * in precision and scale. So do integers.
 */
function asExactText({ name }: TableColumn): ReadColumn {
  const quoted = quoteName(name);
  // As trim_scale, which Postgres 12 lacks. Only NaN and infinity have no scale.
  return {
    name,
    type: "utf8",
    hasNumbers: true,
    sql: `CASE WHEN scale(${quoted}) > 0 THEN rtrim(rtrim(${quoted}::text, '0'), '.') ELSE ${quoted}::text END`,
  };
}

/** How a column is read: with its own type, or else as text. @param isRounded a numeric column is read as floats */
function asRead({ name, type }: TableColumn, isRounded: boolean): ReadColumn {
  const quoted = quoteName(name);
  if (type?.name === "vector" && !type.array) {
    return { name, type: { kind: "list", element: "float32" }, sql: `array_to_json(${quoted}::real[])` };
  }
  if (isRounded) {
    return { name, type: "float64", sql: `${quoted}::float8` };
  }
  const element = type === undefined ? undefined : elementOf(type);
  if (element === undefined) {
    return { name, type: "utf8", sql: `${quoted}::text` };
  }
  return type?.array === true
    ? { name, type: { kind: "list", element }, sql: `array_to_json(${quoted})` }
    : { name, type: element, sql: quoted };
}

const scalars: Partial<Readonly<Record<PgName, ScalarType>>> = {
  bool: "bool",
  int2: "int16",
  int4: "int32",
  int8: "int64",
  float4: "float32",
  float8: "float64",
  text: "utf8",
  varchar: "utf8",
  date: "date32",
  timestamp: "timestamp[us]",
  timestamptz: "timestamp[us, UTC]",
  uuid: "uuid",
};

/** The largest precision of a decimal number in DuckDB. */
const mostDigits = 38;

function elementOf({ name, decimal }: PgType): ColumnType | undefined {
  return decimal === undefined
    ? scalars[name]
    : decimal.precision <= mostDigits && decimal.scale >= 0 && decimal.scale <= decimal.precision
      ? { kind: "decimal", ...decimal }
      : undefined;
}

/** Where the rows of published runs are. */
export interface PublishedTable extends CopiedTable {
  /** Whether the table has the rows of several runs, which `run_id` distinguishes. */
  readonly hasRowsOfAllRuns: boolean;
}

/** Copies rows of the table, as texts, into a file of the spool. */
export async function readPublishedRows(
  tools: PublishedTable,
  { run, columns }: PublishedRowsRequest,
): Promise<StoredFiles> {
  return await copyRows(tools, async (session) => {
    const names = columns.map(({ name }) => name);
    const arrays = await arrayColumns(session, tools, names);
    const values = names.map((name) => (arrays.has(name) ? `array_to_json(${quoteName(name)})` : quoteName(name)));
    const where = tools.hasRowsOfAllRuns ? ` WHERE run_id = '${run.runId.replaceAll("'", "''")}'` : "";
    return `SELECT ${values.join(", ")} FROM ${quoteTable(tools.name)}${where}`;
  });
}

/** The columns that are arrays, whose texts only Postgres reads. */
async function arrayColumns(
  session: Session,
  { name }: Pick<PublishedTable, "name">,
  columns: readonly string[],
): Promise<ReadonlySet<string>> {
  const { rows } = await session.query<{ attname: string }>({
    text: `SELECT a.attname FROM pg_attribute a JOIN pg_type t ON t.oid = a.atttypid
      WHERE a.attrelid = $1::regclass AND a.attname = ANY ($2) AND t.typcategory = 'A'`,
    values: [quoteTable(name), columns],
  });
  return new Set(rows.map(({ attname }) => attname));
}

/** Where rows are copied from, and to. */
export interface CopiedTable extends Pick<RunTools, "connections" | "timeouts" | "warn" | "retry" | "name" | "target"> {
  readonly spool: RowSpool;
}

/**
 * Copies rows, as texts, into a file of the spool, which is removed when it was read.
 * @param select makes the SELECT statement
 */
export async function copyRows(
  tools: CopiedTable,
  select: (session: Session) => Promise<string>,
): Promise<StoredFiles> {
  const { spool, target, retry } = tools;
  await spool.prepare();
  const path = spool.newPath();
  const copied = await retrying(`reading ${target}`, retry, (last) =>
    transact(
      tools,
      async (session) => {
        await session.query(textSettings);
        const rows = await select(session);
        const copy = session.query(copyTo(`COPY (${rows}) TO STDOUT (FORMAT csv, NULL '\\N')`));
        await pipeline(copy, createWriteStream(path, { mode: 0o600 }));
        return copy;
      },
      { last, silentSeconds: finishSeconds },
    ),
  );
  // Postgres says the number of rows behind the last one: the transaction has ended since.
  return { format: "csv", rows: copied.rowCount, folder: dirname(path), groups: oneGroup(path) };
}

/** Texts are the same on every server, and floats have all their digits. */
const textSettings = `SET LOCAL statement_timeout = 0; SET LOCAL datestyle = 'ISO, YMD'; SET LOCAL timezone = 'UTC';
  SET LOCAL extra_float_digits = 1`;

async function* oneGroup(path: string): AsyncGenerator<readonly string[]> {
  try {
    yield [path];
  } finally {
    await rm(path, { force: true });
  }
}
