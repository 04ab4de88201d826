import { quoteName } from "../../base/sql.js";
import type { ColumnType, ScalarType } from "../../columns/types.js";
import type { Plan, RunId } from "../../run/plan/plan.js";
import type { PublishedRowsRequest, StoredColumn, StoredFiles, StoredTable } from "../../run/lifecycle/span-record.js";
import { splitTable } from "../../job/jobfile/output-spec.js";
import { assertNever, JobError } from "../../base/errors.js";
import type { Session } from "./connections.js";
import { findTable, type PgName, type PgType, quoteTable, showTable, type PgColumn, type TableName } from "./table.js";
import { previousTables, readSwaps } from "./swaps.js";
import { finishSeconds, retried, type TableTools } from "./modes/mode.js";
import { createWriteStream } from "node:fs";
import { rm } from "node:fs/promises";
import { dirname } from "node:path";
import { pipeline } from "node:stream/promises";
import { to as copyTo } from "pg-copy-streams";
import { type Control, isFinished } from "./control.js";

interface Place {
  readonly name: TableName;
  readonly runId?: string | undefined;
}

/**
 * Copies the rows of a table, or of a run, into a file of the spool. @throws JobError USAGE for a table that is not
 * there, for a run whose rows are not in a table of their own and have no `run_id`, and for one without a row left
 * @param key columns whose numbers are never rounded
 */
export async function readTable(tools: TableTools, what: Plan | string, key: readonly string[]): Promise<StoredTable> {
  let columns: readonly StoredColumn[] = [];
  let due = 0;
  const files = await copyRows(tools, async (session) => {
    const place = typeof what === "string" ? { name: splitTable(what) } : await placeOf(session, tools, what);
    const found = await findTable(session, place.name);
    if (found === undefined) {
      throw new JobError("USAGE", `comparing ${showTable(place.name)}: there is no such table`, {
        hint: "tables are named as in output.postgres.table, with their schema",
      });
    }
    due = place.runId === undefined ? 0 : await countRows(session, tools.control, place.runId);
    const rows = `${quoteTable(place.name)}${whereRun(place.runId)}`;
    const exact = new Set(found.columns.filter(({ name, type }) => key.includes(name) && isNumeric(type)));
    const inexact = found.columns.filter((column) => !exact.has(column));
    const rounded = await roundedColumns(session, inexact, rows);
    const read = found.columns.map((column) =>
      exact.has(column) ? asExactText(column) : asRead(column, rounded.has(column.name)),
    );
    columns = read;
    return `SELECT ${read.map(({ sql }) => sql).join(", ")} FROM ${rows}`;
  });
  if (typeof what !== "string" && files.rows < due) {
    warnOfMissing(tools, what.runId, due, files.rows);
  }
  return { ...files, columns };
}

async function countRows(session: Session, { table }: Control, runId: string): Promise<number> {
  const { rows } = await session.query<{ rows: string | null }>({
    text: `SELECT sum(rows)::text AS rows FROM ${table("spans")} WHERE run_id = $1`,
    values: [runId],
  });
  return Number(rows[0]?.rows ?? 0);
}

/** A comparison of the others says little. @throws JobError USAGE if all are gone */
function warnOfMissing({ name, warn }: TableTools, runId: RunId, due: number, left: number): void {
  const gone = `comparing run ${runId}: ${due - left} of ${due} rows are no longer in ${showTable(name)}: later rows with the same key took their place, or they were deleted`;
  if (left === 0) {
    throw new JobError("USAGE", gone, {
      hint: "to compare the runs to come, put the logical date into output.postgres.key; or compare two tables: --table schema.one --against schema.other",
    });
  }
  warn(gone);
}

async function placeOf(session: Session, { control, modeOf, name }: TableTools, plan: Plan): Promise<Place> {
  const { runId } = plan;
  const mode = modeOf(plan);
  if (!(await isFinished(session, control, runId))) {
    const own = mode.rowsAt(plan, { finished: false });
    if (showTable(own) !== showTable(name)) {
      return { name: own };
    }
  }
  switch (mode.kind) {
    case "replace": {
      if ((await readSwaps(session, control, name)).current === runId) {
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

/** Those of no fixed scale, or of more digits than a decimal of DuckDB has, and those with a NaN are read as floats. */
async function roundedColumns(
  session: Session,
  columns: readonly PgColumn[],
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

/** As text without trailing zeros: equal numbers have equal texts, whatever their precision and scale. */
function asExactText({ name }: PgColumn): ReadColumn {
  const quoted = quoteName(name);
  // As trim_scale, which Postgres 12 lacks. Only NaN and infinity have no scale.
  return {
    name,
    type: "utf8",
    hasNumbers: true,
    sql: `CASE WHEN scale(${quoted}) > 0 THEN rtrim(rtrim(${quoted}::text, '0'), '.') ELSE ${quoted}::text END`,
  };
}

/** @param isRounded a numeric column is read as floats */
function asRead({ name, type }: PgColumn, isRounded: boolean): ReadColumn {
  const quoted = quoteName(name);
  if (type?.name === "vector" && !type.array) {
    return { name, type: { kind: "list", element: "float32" }, sql: `array_to_json(${quoted}::real[])` };
  }
  if (isRounded) {
    return { name, type: "float64", sql: `${quoted}::float8` };
  }
  const element = type === undefined ? undefined : elementOf(type);
  if (element === undefined) {
    return { name, type: "utf8", sql: `${type?.array === true ? `array_to_json(${quoted})` : quoted}::text` };
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

const mostDigits = 38;

function elementOf({ name, decimal }: PgType): ColumnType | undefined {
  return decimal === undefined
    ? scalars[name]
    : decimal.precision <= mostDigits && decimal.scale >= 0 && decimal.scale <= decimal.precision
      ? { kind: "decimal", ...decimal }
      : undefined;
}

/** Copies rows of a published run, as texts, into a file of the spool. */
export async function readPublishedRows(
  tools: TableTools,
  { run, columns }: PublishedRowsRequest,
): Promise<StoredFiles> {
  const { name, planTarget } = tools;
  return await copyRows(tools, async (session) => {
    const found = (await findTable(session, name))?.columns ?? [];
    const arrays = new Set(found.filter(({ type }) => type?.array === true).map((column) => column.name));
    // Only Postgres reads the texts of arrays.
    const values = columns.map((column) =>
      arrays.has(column.name) ? `array_to_json(${quoteName(column.name)})` : quoteName(column.name),
    );
    const where = planTarget.mode === "append" ? whereRun(run.runId) : "";
    return `SELECT ${values.join(", ")} FROM ${quoteTable(name)}${where}`;
  });
}

function whereRun(runId: string | undefined): string {
  return runId === undefined ? "" : ` WHERE run_id = '${runId.replaceAll("'", "''")}'`;
}

/** The file is removed when it was read. */
async function copyRows(tools: TableTools, select: (session: Session) => Promise<string>): Promise<StoredFiles> {
  const { spool } = tools;
  await spool.prepare();
  const path = spool.newPath();
  const copied = await retried(
    tools,
    `reading ${tools.target}`,
    async (session) => {
      await session.query(textSettings);
      const rows = await select(session);
      const copy = session.query(copyTo(`COPY (${rows}) TO STDOUT (FORMAT csv, NULL '\\N')`));
      await pipeline(copy, createWriteStream(path, { mode: 0o600 }));
      return copy;
    },
    finishSeconds,
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
