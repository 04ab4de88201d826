import { quoteName } from "../../base/sql.js";
import { DatabaseError } from "pg";
import {
  type ErasedTable,
  parseRunComparison,
  type TableErasure,
  verdictWithoutRows,
  withoutRows,
} from "../../run/lifecycle/erasure.js";
import { splitTable } from "../../job/jobfile/output-spec.js";
import { JobError } from "../../base/errors.js";
import {
  findTable,
  type LeftTable,
  lookAtTables,
  pgTypeOf,
  quoteTable,
  showTable,
  pgTypeSql,
  stagingTable,
  type TableName,
} from "./table.js";
import { closedRuns, dropTables, type PastRun, rowTablesOf, tablesOfClosedRuns } from "./own-tables.js";
import { lock, type Session } from "./connections.js";
import { documentText, hasControlTables, lockRuns, type PlanRow, parseStoredPlan } from "./control.js";
import { finishSeconds, retried, retriedWrite, type TableTools } from "./modes/mode.js";
import { previousTables } from "./swaps.js";
import type { RunId } from "../../run/plan/plan.js";
import { parseJson } from "../../run/plan/parse-plan.js";
import { parseRunVerdict } from "../../run/lifecycle/lifecycle.js";
import { outputColumns } from "../../models/binding/contract.js";

/**
 * Deletes the rows of some keys in one transaction: from the target, from the tables that keep what runs replaced, from
 * the runs' own tables, and from the rejects of all runs for the target.
 * @throws JobError NOT_ERASED while a run is open: its attempts count the rows that they have written
 */
export async function eraseFromTables(tools: TableTools, request: TableErasure): Promise<readonly ErasedTable[]> {
  let done: Erased = { erased: [], record: undefined };
  await (request.dryRun ? retried : retriedWrite)(
    tools,
    `erasing rows of ${tools.target}`,
    async (session) => {
      done = await orWrongKey(request, () => eraseInTransaction(session, tools, request, done));
    },
    finishSeconds,
  );
  if (!request.dryRun) {
    // Runs that are over may have left tables that could not be dropped then.
    await dropTables(tools, (session) => tablesOfClosedRuns(session, tools.control, showTable(tools.name)));
  }
  return done.erased;
}

interface Erased {
  readonly erased: readonly ErasedTable[];
  /** Which row of the table of erasures records it. */
  readonly record: string | undefined;
}

/** @param before the try before this one: of its COMMIT, only the answer may be lost */
async function eraseInTransaction(
  session: Session,
  tools: TableTools,
  request: TableErasure,
  before: Erased,
): Promise<Erased> {
  const { control, name } = tools;
  const target = showTable(name);
  if (!(await hasControlTables(session, control.schema))) {
    return { erased: [], record: undefined };
  }
  await session.query("SET LOCAL statement_timeout = 0"); // the tables may have no index on the key
  if (!request.dryRun) {
    // Take the locks in the same order as the finish of a run. Another order could deadlock.
    await lockReplacing(session, await refuseOpenRuns(session, tools, request));
    await lock(session, `swap ${target}`);
    await lock(session, `publication ${target}`);
    if (await isRecorded(session, control.schema, before)) {
      return before;
    }
  }
  // Read again: a run may have been opened while this waited.
  const unfinished = await refuseOpenRuns(session, tools, request);
  const previous = (await previousTables(session, control, name)).map((table) => splitTable(table.name));
  const erased: ErasedTable[] = [];
  for (const table of [name, ...previous]) {
    const types = await keyTypes(session, table, request);
    if (types === undefined) {
      if (table === name || (await findTable(session, table)) === undefined) {
        continue; // no run has made it yet, or a run or `prune` has just dropped it
      }
      throw new JobError("OUTPUT_MISMATCH", `erasing rows of ${showTable(table)}: it has no column for the key`, {
        hint: `drop the table if it is not needed; infer-batch rollback puts its rows back`,
      });
    }
    erased.push({
      name: showTable(table),
      rows: await eraseFrom(session, table, types, request),
      rejects: 0,
    });
  }
  // A table of a run that is over may have been kept, because a view or a session needs it.
  const closed = await closedRuns(session, control, target, null);
  erased.push(
    ...(await eraseFromOwn(session, tools, closed, request)),
    ...(await eraseFromOwn(session, tools, unfinished, request, (run) => startOver(session, tools, run))),
  );
  // Rejected rows outlive the table, and store key values as text.
  const types = (await keyTypes(session, name, request)) ?? (await plannedKeyTypes(session, tools, request));
  const rejects = await eraseRejects(session, tools, types, request);
  erased.push({ name: showTable({ schema: control.schema, table: "rejects" }), rows: 0, rejects });
  if (request.dryRun) {
    return { erased, record: undefined };
  }
  await stripRecords(session, tools);
  return { erased, record: await recordErasure(session, tools, request, erased) };
}

/**
 * Staging tables, and the key tables of `upsert`, of which what is erased is not reported. `after`: called with a run
 * of `replace` that has lost rows.
 */
async function eraseFromOwn(
  session: Session,
  { control }: TableTools,
  runs: readonly PastRun[],
  request: TableErasure,
  after?: (run: PastRun) => Promise<void>,
): Promise<readonly ErasedTable[]> {
  const erased: ErasedTable[] = [];
  const named = runs.flatMap((run) => rowTablesOf(control, run).map((name) => ({ run, name })));
  const found = await lookAtTables(
    session,
    named.map(({ name }) => name),
  );
  const existing = new Map(found.map((table) => [quoteTable(table), table]));
  for (const { run, name } of named) {
    const table = existing.get(quoteTable(name));
    const types = table && (await keyTypes(session, table, request));
    if (table === undefined || types === undefined) {
      continue;
    }
    requireErasable(table, run);
    const rows = await eraseFrom(session, table, types, request);
    if (rows > 0 && run.mode !== "upsert") {
      erased.push({ name: showTable(table), rows, rejects: 0 });
    }
    if (rows > 0 && run.mode === "replace" && !request.dryRun) {
      await after?.(run);
    }
  }
  return erased;
}

/** Waits for a span or finish in progress, and blocks new ones. */
async function lockReplacing(session: Session, runs: readonly PastRun[]): Promise<void> {
  const ids = runs.filter(({ mode }) => mode === "replace").map(({ runId }) => runId);
  for (const runId of ids.toSorted()) {
    await lockRuns(session, runId, { shared: false });
  }
}

/**
 * Deletes the committed spans of unfinished runs after some of their rows were erased: their staging table
 * could never be swapped in, because it must have all rows of its spans. So the next run for these params keeps all of
 * them anew. No reader has seen any. A role that may not delete spans leaves them. Needs the lock of `lockReplacing`.
 */
async function startOver(session: Session, { control, name }: TableTools, { runId }: PastRun): Promise<void> {
  const spans = control.table("spans");
  const { rows } = await session.query<{ may: boolean }>({
    text: "SELECT has_table_privilege($1, 'DELETE') AS may",
    values: [spans],
  });
  if (rows[0]?.may === true) {
    await session.query({ text: `DELETE FROM ${spans} WHERE run_id = $1`, values: [runId] });
    await session.query(`DELETE FROM ${quoteTable(stagingTable(name, runId))}`);
  }
}

async function eraseFrom(
  session: Session,
  table: TableName,
  types: readonly string[],
  request: TableErasure,
): Promise<number> {
  const isKey = request.keys.columns.map((name, index) => `r.${quoteName(name)} = k.k${index}`).join(" AND ");
  return await eraseWhere(session, quoteTable(table), isKey, types, request);
}

async function eraseRejects(
  session: Session,
  { control: { table }, planTarget }: TableTools,
  types: readonly string[],
  request: TableErasure,
): Promise<number> {
  const { columns } = request.keys;
  const at = columns.length + 1;
  const isKey = types.map((type, index) => {
    const text = `r.columns ->> $${at + 1 + index}`;
    const isNumber = `CASE WHEN ${text} ~ '^-?[0-9]+([.][0-9]+)?$' THEN (${text})::numeric = k.k${index} END`; // 1.5 is 1.50
    return `(${text} IN (k.t${index}, k.k${index}::text)${/^numeric(\([^)]*\))?$/.test(type) ? ` OR ${isNumber}` : ""})`;
  });
  const isOfTarget = `r.run_id IN (SELECT run_id FROM ${table("runs")} WHERE target = $${at})`;
  const values = [planTarget.table, ...columns];
  return await eraseWhere(session, table("rejects"), [...isKey, isOfTarget].join(" AND "), types, request, values);
}

/**
 * Deletes the rows `r` of a table for which a condition holds with one of the keys `k` (k0, k1 …; as texts t0, t1 …), or
 * counts them.
 * @param more the values of the parameters behind those of the keys
 */
async function eraseWhere(
  session: Session,
  table: string,
  condition: string,
  types: readonly string[],
  { keys, dryRun, found }: TableErasure,
  more: readonly string[] = [],
): Promise<number> {
  const lists = types.map((_, index) => `$${index + 1}::text[]`).join(", ");
  const texts = types.map((_, index) => `t${index}`).join(", ");
  const typed = types.map((type, index) => `t${index}::${type} AS k${index}`).join(", ");
  const erased = dryRun
    ? `SELECT k.n FROM ${table} r JOIN k ON ${condition}`
    : `DELETE FROM ${table} r USING k WHERE ${condition} RETURNING k.n`;
  const { rows } = await session.query<{ n: string; rows: string }>({
    text: `WITH k AS (SELECT n, ${texts}, ${typed} FROM unnest(${lists}) WITH ORDINALITY AS u (${texts}, n)), d AS (${erased})
      SELECT n, count(*) AS rows FROM d GROUP BY n`,
    values: [...keys.columns.map((_, index) => keys.keys.map((key) => key[index] ?? "")), ...more],
  });
  for (const { n } of rows) {
    found.add(Number(n) - 1);
  }
  return rows.reduce((sum, row) => sum + Number(row.rows), 0);
}

/** Rows that this role may not erase would stay, without a word. */
function requireErasable({ owner, mayErase, role, ...table }: LeftTable, { runId }: PastRun): void {
  if (!mayErase) {
    throw new JobError(
      "PERMISSION",
      `erasing rows of ${showTable(table)}, a table of run ${runId}: it belongs to ${owner}, and ${role} may not erase its rows, so nothing was erased from it and from the other tables of the target`,
      {
        hint: `as ${owner}: GRANT SELECT, DELETE ON ${quoteTable(table)} TO ${quoteName(role)}\n    then run the same infer-batch erase again`,
      },
    );
  }
}

/** The server's message about a value that a type does not have quotes the value, which is a person's key. */
async function orWrongKey<T>({ keys }: TableErasure, work: () => Promise<T>): Promise<T> {
  try {
    return await work();
  } catch (error) {
    if (error instanceof DatabaseError && error.code?.startsWith("22") === true) {
      throw new JobError("USAGE", `reading the keys: one is not a value of ${keys.columns.join(", ")}`, {
        hint: "each key is a value of the column that --key names, such as 17 for an integer",
      });
    }
    throw error;
  }
}

interface OpenRun {
  readonly run_id: RunId;
  readonly job: string;
  readonly mode: string;
  readonly params: Record<string, string>;
  readonly held: boolean;
}

/** Refuses while a run for the target is unfinished or held. Returns the unfinished runs that no attempt continues. */
async function refuseOpenRuns(
  session: Session,
  { control: { table, where }, planTarget: { table: target } }: TableTools,
  { job, command, isOver }: TableErasure,
): Promise<readonly PastRun[]> {
  const { rows } = await session.query<OpenRun>({
    text: `SELECT run_id, job, mode, params, ${where.isHeld} AS held
      FROM ${table("runs")} r WHERE target = $1 AND ${where.isOpen} ORDER BY planned_at`,
    values: [target],
  });
  const open = rows.find((run) => run.job !== job || isOver?.(run.params) !== true);
  if (open !== undefined) {
    const { run_id: runId, held, params } = open;
    const older = open.mode === "append" ? "" : " (with --allow-older, if a newer run has published to the table)";
    const line = held ? command(params, { verb: "approve", runId }) : command(params);
    const how =
      open.job === job
        ? `${line}${older}`
        : `it belongs to job ${open.job}: use the spec of that job, or give this job its name`;
    throw new JobError(
      "NOT_ERASED",
      `erasing rows of ${target}: run ${runId} is ${held ? "held by its checks" : "not finished"}, so nothing was erased`,
      {
        hint: `${held ? "approve or discard it" : "finish it"}: ${how}\n    then run the same infer-batch erase again`,
      },
    );
  }
  return rows.map(({ run_id: runId, mode }) => ({ runId, target, mode }));
}

async function keyTypes(
  session: Session,
  table: TableName,
  { keys }: TableErasure,
): Promise<readonly string[] | undefined> {
  const found = await findTable(session, table);
  const types = keys.columns.map((name) => withoutLimit(found?.columns.find((column) => column.name === name)?.shown));
  return types.every((type) => type !== undefined) ? types : undefined;
}

/** The type without its length or digits: an explicit cast to varchar(3) or numeric(9,2) would make another key of one. */
function withoutLimit(type: string | undefined): string | undefined {
  const [, name = type, after = ""] = /^(.*?)\([\d,]+\)(.*)$/.exec(type ?? "") ?? [];
  return name === "character" && name !== type
    ? `bpchar${after}`
    : name === "bit"
      ? `bit varying${after}`
      : type && `${name}${after}`;
}

/** How many plans are read at most. Plans can be large, and the latest one nearly always has the columns. */
const plansLimit = 20;

/** Of a table that is gone: from the latest plan that has all of them; text if no plan has. */
async function plannedKeyTypes(
  session: Session,
  { control: { table }, planTarget }: TableTools,
  { keys: { columns } }: TableErasure,
): Promise<readonly string[]> {
  const { rows } = await session.query<PlanRow>({
    text: `SELECT plan, plan_id FROM ${table("runs")} WHERE target = $1 ORDER BY planned_at DESC LIMIT ${plansLimit}`,
    values: [planTarget.table],
  });
  for (const row of rows) {
    const stored = parseStoredPlan(row);
    const output = stored === undefined ? [] : outputColumns(stored.plan.contract);
    const types = columns.flatMap((name) => output.filter((column) => column.name === name).slice(0, 1));
    if (types.length === columns.length) {
      return types.map(({ type }) => pgTypeSql(pgTypeOf(type)));
    }
  }
  return columns.map(() => "text");
}

async function stripRecords(
  session: Session,
  { control: { table }, planTarget: { table: target } }: TableTools,
): Promise<void> {
  const { rows } = await session.query<{ run_id: string; name: "verdict" | "comparison"; document: string }>({
    text: `SELECT run_id, name, document::text AS document FROM ${table("documents")}
      WHERE run_id IN (SELECT run_id FROM ${table("runs")} WHERE target = $1)
      AND (name = 'comparison' OR (name = 'verdict' AND document::text LIKE '%"examples":%'))`,
    values: [target],
  });
  await session.query({
    text: `UPDATE ${table("documents")} SET document = json_build_object('errors', '[]'::json, 'begun', document -> 'begun')
      WHERE name = 'errors' AND run_id IN (SELECT run_id FROM ${table("runs")} WHERE target = $1)`,
    values: [target],
  });
  for (const { run_id: runId, name, document } of rows) {
    const stripped = strip(name, document);
    if (stripped !== document) {
      await session.query({
        text: `UPDATE ${table("documents")} SET document = $2 WHERE run_id = $1 AND name = $3`,
        values: [runId, stripped, name],
      });
    }
  }
}

function strip(name: "verdict" | "comparison", text: string): string {
  const json = parseJson(text);
  const [verdict, result] =
    name === "verdict" ? [parseRunVerdict(json), undefined] : [undefined, parseRunComparison(json)];
  const stripped = (verdict && verdictWithoutRows(verdict)) ?? (result && withoutRows(result));
  return stripped === undefined ? text : documentText(stripped);
}

/** No two rows of the table of erasures have the same, also where a server that took over has lost some. */
const recordId = "concat(n, ' at ', extract(epoch FROM at))";

async function isRecorded(session: Session, schema: string, { record }: Erased): Promise<boolean> {
  const name = { schema, table: "erasures" };
  if (record === undefined || (await findTable(session, name)) === undefined) {
    return false;
  }
  const text = `SELECT FROM ${quoteTable(name)} WHERE ${recordId} = $1`;
  return (await session.query({ text, values: [record] })).rows.length > 0;
}

/** When and how many, and never of whom. The table is made by the first erasure: a job without any needs none. */
async function recordErasure(
  session: Session,
  { control: { schema }, planTarget }: TableTools,
  { keys, found, by }: TableErasure,
  erased: readonly ErasedTable[],
): Promise<string | undefined> {
  const name = { schema, table: "erasures" };
  const table = quoteTable(name);
  if ((await findTable(session, name)) === undefined) {
    await lock(session, schema); // an erasure of another table may be making it
  }
  if ((await findTable(session, name)) === undefined) {
    await session.query(`CREATE TABLE ${table} (
      n bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY, target text NOT NULL, by text NOT NULL,
      at timestamptz NOT NULL DEFAULT clock_timestamp(), key text[] NOT NULL, keys bigint NOT NULL,
      keys_not_found bigint NOT NULL, rows bigint NOT NULL, rejects bigint NOT NULL);
      COMMENT ON TABLE ${table} IS 'A row for each time that rows of persons were erased: when and how many'`);
  }
  const inserted = await session.query<{ record: string }>({
    text: `INSERT INTO ${table} (target, by, key, keys, keys_not_found, rows, rejects) VALUES ($1, $2, $3, $4, $5, $6, $7)
      RETURNING ${recordId} AS record`,
    values: [
      planTarget.table,
      by,
      keys.columns,
      keys.keys.length,
      keys.keys.length - found.size,
      erased.reduce((sum, { rows }) => sum + rows, 0),
      erased.reduce((sum, { rejects }) => sum + rejects, 0),
    ],
  });
  return inserted.rows[0]?.record;
}
