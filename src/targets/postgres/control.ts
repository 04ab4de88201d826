import { quoteName, quoteText } from "../../base/sql.js";
import { sha256Of } from "../../base/sha256.js";
import { numberedRunId, splitRunId } from "../../run/plan/identity.js";
import { parseJson, parsePlan, planToText } from "../../run/plan/parse-plan.js";
import type { Plan, PlanTarget, RunId } from "../../run/plan/plan.js";
import { spanCount } from "../../run/plan/spans.js";
import { parseTombstone } from "../../run/lifecycle/pruned-run.js";
import { logicalDateOf } from "../../run/lifecycle/published-run.js";
import type { StoredPlan } from "../target.js";
import { lock, type Session } from "./connections.js";
import { hasSchema, showTable } from "./table.js";
import { type Decision, requireApproved } from "../../run/lifecycle/lifecycle.js";
import { JobError } from "../../base/errors.js";
import { decisionDocument, type DocumentKind } from "../../stores/ledger.js";
import { rejectReasons } from "../../columns/types.js";
import { compareTargets } from "../../run/plan/compare.js";
import { type PostgresMode, type PostgresOutputSpec, splitTable } from "../../job/jobfile/output-spec.js";
import { z } from "../../base/zod.js";

type ControlTableName =
  | "runs"
  | "attempts"
  | "spans"
  | "rejects"
  | "finishes"
  | "documents"
  | "verdicts"
  | "decisions"
  | "swaps";

/** The control tables, and SQL for conditions on a row `r` of the table of runs. */
export interface Control {
  readonly schema: string;
  /** `"infer_batch".spans` */
  readonly table: (name: ControlTableName) => string;
  readonly where: RunConditions;
}

interface RunConditions {
  readonly isUnfinished: string;
  /** A later run of the same params was planned. */
  readonly hasLater: string;
  /** Attempts may still finish the run: it is neither published nor discarded, and has no later run. */
  readonly isOpen: string;
  readonly isHeld: string;
  readonly isRolledBack: string;
  isDecided(kind: Decision["kind"]): string;
}

export function controlOf(schema: string): Control {
  const table: Control["table"] = (name) => `${quoteName(schema)}.${name}`;
  return { schema, table, where: runConditions(table) };
}

export async function selectPlan(session: Session, control: Control, runId: RunId): Promise<StoredPlan | undefined> {
  return await planBy(session, control, "run_id = $1", runId);
}

/** Reads the plan of the latest of the runs that start with `base`; of a pruned run too. */
export async function latestPlan(session: Session, control: Control, base: RunId): Promise<StoredPlan | undefined> {
  return await planBy(session, control, "base = $1 ORDER BY number DESC LIMIT 1", base);
}

/** The latest of the runs after this one; undefined where there is none. */
export async function laterRun(session: Session, { table }: Control, runId: RunId): Promise<RunId | undefined> {
  const { base, number } = splitRunId(runId);
  const { rows } = await session.query<{ number: number }>({
    text: `SELECT number FROM ${table("runs")} WHERE base = $1 AND number > $2 ORDER BY number DESC LIMIT 1`,
    values: [base, number],
  });
  return rows[0] && numberedRunId(base, rows[0].number);
}

export async function isFinished(session: Session, { table }: Control, runId: RunId): Promise<boolean> {
  const { rows } = await session.query({
    text: `SELECT FROM ${table("finishes")} WHERE run_id = $1`,
    values: [runId],
  });
  return rows.length > 0;
}

/** A run's plan as it is stored in a row. */
export interface PlanRow {
  readonly plan: string;
  readonly plan_id: string;
}

async function planBy(
  session: Session,
  { schema, table }: Control,
  which: string,
  id: RunId,
): Promise<StoredPlan | undefined> {
  const { rows } = await session.query<PlanRow & { run_id: RunId }>({
    text: `SELECT run_id, plan, plan_id FROM ${table("runs")} WHERE ${which}`,
    values: [id],
  });
  const [row] = rows;
  if (row === undefined) {
    return undefined;
  }
  const pruned = parseTombstone(row.plan);
  if (pruned !== undefined) {
    return { plan: pruned.plan, planId: row.plan_id, pruned };
  }
  const stored = parseStoredPlan(row);
  if (stored === undefined) {
    throw damagedRun(
      row.run_id,
      `reading run ${row.run_id} from ${schema}.runs: its plan is damaged, or of another version of infer-batch`,
      "restore it, or use that version",
    );
  }
  return stored;
}

/** Parses the plan of a row; undefined if it is damaged, or another version of this program wrote it. */
export function parseStoredPlan({ plan: text, plan_id: planId }: PlanRow): StoredPlan | undefined {
  const plan = sha256Of(text) === planId ? parsePlan(text) : undefined;
  return plan !== undefined && isPostgresPlan(plan) ? { plan, planId } : undefined;
}

/** Stores a plan unless the run has one, as `text`, which a tombstone has of its own. Returns whether it was stored. */
export async function storePlan(
  session: Session,
  { table }: Control,
  plan: Plan,
  text = planToText(plan),
): Promise<boolean> {
  const { table: target, mode } = plannedTarget(plan);
  const { base, number } = splitRunId(plan.runId);
  const { rowCount } = await session.query({
    text: `INSERT INTO ${table("runs")} (run_id, base, number, plan_id, job, target, mode, rows_planned, spans_planned, plan, params, staged, logical_date)
          VALUES ($1, $2, $3, $4, $5, $6, $7, $8, $9, $10, $11, $12, $13) ON CONFLICT DO NOTHING`,
    values: [
      plan.runId,
      base,
      number,
      sha256Of(text),
      plan.job,
      target,
      mode,
      plan.input.rows,
      spanCount(plan),
      text,
      JSON.stringify(plan.params),
      plan.staged,
      logicalDateOf(plan) ?? null,
    ],
  });
  return rowCount === 1;
}

/** SQL that writes a timestamp as ISO 8601 in UTC, as JavaScript does. */
export function utcText(expression: string): string {
  return `to_char(${expression} AT TIME ZONE 'UTC', 'YYYY-MM-DD"T"HH24:MI:SS.MS"Z"')`;
}

function runConditions(table: Control["table"]): RunConditions {
  const isUnfinished = `NOT EXISTS (SELECT FROM ${table("finishes")} f WHERE f.run_id = r.run_id)`;
  const hasLater = `EXISTS (SELECT FROM ${table("runs")} l WHERE l.base = r.base AND l.number > r.number)`;
  const isDecided: RunConditions["isDecided"] = (kind) =>
    `EXISTS (SELECT FROM ${table("decisions")} d WHERE d.run_id = r.run_id AND d.kind = '${kind}')`;
  return {
    isUnfinished,
    hasLater,
    isOpen: `(${isUnfinished} AND NOT ${isDecided("discarded")} AND NOT ${hasLater})`,
    isHeld: `(r.staged AND EXISTS (SELECT FROM ${table("verdicts")} v WHERE v.run_id = r.run_id AND v.outcome = 'hold')
      AND NOT EXISTS (SELECT FROM ${table("decisions")} d WHERE d.run_id = r.run_id))`,
    isRolledBack: `EXISTS (SELECT FROM ${table("swaps")} w WHERE w.run_id = r.run_id AND w.action = 'rollback')`,
    isDecided,
  };
}

/** The error for damage to a run that a new run can replace. `hint`: another way to repair it. */
export function damagedRun(runId: RunId, message: string, hint: string): JobError {
  return new JobError("OUTPUT_DAMAGED", message, { hint: `${hint}, or start over with --new-run`, damage: { runId } });
}

/**
 * Lets one attempt at a time make and remove a run's tables. Two attempts that swap tables would deadlock, and a late
 * one would make anew what the finish has removed.
 */
export async function lockRun(session: Session, runId: RunId): Promise<void> {
  await lock(session, `run ${runId}`);
}

/**
 * The fence around the runs of one job and its params. A transaction that makes something of a run visible takes it
 * `shared`, checks for a later run, and commits; a transaction that stores a later run's plan takes it alone. So all of
 * an earlier run is visible before a later plan is stored, or never.
 */
export async function lockRuns(session: Session, runId: RunId, how: { readonly shared: boolean }): Promise<void> {
  await lock(session, `runs ${splitRunId(runId).base}`, how);
}

/**
 * Stops an attempt whose run was superseded. The check is a statement of its own: it sees what was committed while
 * `lockRuns` waited.
 * @throws JobError PLAN_CHANGED
 */
export async function refuseSuperseded(session: Session, control: Control, runId: RunId): Promise<void> {
  const later = await laterRun(session, control, runId);
  if (later !== undefined) {
    throw new JobError("PLAN_CHANGED", `reading ${control.schema}.runs: run ${later} came after ${runId}`, {
      hint: "run the same command again: it continues that run",
    });
  }
}

/**
 * Stops an attempt whose run was superseded, or, where the run is staged, discarded. Checks as `refuseSuperseded` does.
 * @throws JobError PLAN_CHANGED, DISCARDED
 */
export async function refuseStoppedRun(session: Session, control: Control, { runId, staged }: Plan): Promise<void> {
  await refuseSuperseded(session, control, runId);
  const decision = staged ? await selectDocument(session, control, runId, decisionDocument) : undefined;
  if (decision !== undefined) {
    requireApproved(decision, runId);
  }
}

/** Documents of which the last version counts. Of the others it is the first: nobody can change a decision by inserting. */
const changing: ReadonlySet<DocumentKind<unknown>["name"]> = new Set(["errors", "spending", "passed"]);

/** SQL for the documents of a run that count, as an object of their texts. @param run SQL for its id */
export function documentsSql({ table }: Pick<Control, "table">, run: string): string {
  const last = [...changing].map((name) => `'${name}'`).join(", ");
  return `(SELECT json_object_agg(name, text) FROM (
      SELECT DISTINCT ON (name) name, document::text AS text FROM ${table("documents")} WHERE run_id = ${run}
      ORDER BY name, CASE WHEN name IN (${last}) THEN -version ELSE version END) AS d)`;
}

/** Parses the text of a document; undefined: there is none. @throws JobError OUTPUT_DAMAGED */
export function parseDocument<T>(
  { schema }: Pick<Control, "schema">,
  runId: RunId,
  { name, parse }: DocumentKind<T>,
  text: string | undefined,
): T | undefined {
  const document = text === undefined ? undefined : parse(parseJson(text));
  if (text !== undefined && document === undefined) {
    throw damagedRun(
      runId,
      `reading ${schema}.documents: the ${name} of run ${runId} was not written by infer-batch`,
      "the control tables were changed; restore them from a backup",
    );
  }
  return document;
}

/** Reads a document of a run; undefined: there is none. @throws JobError OUTPUT_DAMAGED */
export async function selectDocument<T>(
  session: Session,
  control: Control,
  runId: RunId,
  kind: DocumentKind<T>,
): Promise<T | undefined> {
  const { rows } = await session.query<{ document: string }>({
    text: `SELECT document::text AS document FROM ${control.table("documents")} WHERE run_id = $1 AND name = $2
      ORDER BY version ${changing.has(kind.name) ? "DESC" : ""} LIMIT 1`,
    values: [runId, kind.name],
  });
  return parseDocument(control, runId, kind, rows[0]?.document);
}

interface WritingTools {
  readonly control: Control;
  readonly writer: string;
}

/**
 * Creates a document of a run unless there is one, and returns the stored one. An insertion of the same key waits for an
 * earlier one to commit, so that the first one counts.
 */
export async function createDocument<T>(
  session: Session,
  { control, writer }: WritingTools,
  runId: RunId,
  kind: DocumentKind<T>,
  value: T,
): Promise<T> {
  await session.query({
    text: `INSERT INTO ${control.table("documents")} (run_id, name, version, document, writer) VALUES ($1, $2, 1, $3, $4)
      ON CONFLICT DO NOTHING`,
    values: [runId, kind.name, documentText(value), writer],
  });
  const stored = await selectDocument(session, control, runId, kind);
  if (stored === undefined) {
    throw damagedRun(
      runId,
      `writing ${control.schema}.documents: the ${kind.name} of run ${runId} is gone since it was written`,
      "a trigger, a rule or a policy keeps it out; remove that",
    );
  }
  return stored;
}

/** Adds the next version of a document of a planned run. The caller has locked it. */
export async function addVersion<T>(
  session: Session,
  { control: { table }, writer }: WritingTools,
  runId: RunId,
  kind: DocumentKind<T>,
  value: T,
): Promise<void> {
  await session.query({
    text: `INSERT INTO ${table("documents")} (run_id, name, version, document, writer)
      SELECT $1, $2, (SELECT coalesce(max(version), 0) + 1 FROM ${table("documents")} WHERE run_id = $1 AND name = $2), $3, $4
      WHERE EXISTS (SELECT FROM ${table("runs")} WHERE run_id = $1)`,
    values: [runId, kind.name, documentText(value), writer],
  });
}

/**
 * A value as JSON of which Postgres can read every part: it has no text with the character of code 0, and none with
 * half of a surrogate pair.
 */
export function documentText(value: unknown): string {
  return JSON.stringify(value).replaceAll(
    /(?<!\\)((?:\\\\)*)\\u(0000|d[0-9a-f]{3})/g,
    (_, before: string, code) => `${before}${code === "0000" ? "\u2400" : "\ufffd"}`,
  );
}

/**
 * Whether there are control tables. @throws JobError OUTPUT_DAMAGED when they are of another layout, or the table
 * `version` or its rows are gone
 */
export async function hasControlTables(session: Session, schema: string): Promise<boolean> {
  // Not by to_regclass, which may answer from a cache that is older than the lock it waited for.
  const there = await session.query<{ relname: string }>({
    text: `SELECT c.relname FROM pg_class c JOIN pg_namespace n ON n.oid = c.relnamespace
      WHERE n.nspname = $1 AND c.relname IN ('version', 'runs', 'spans')`,
    values: [schema],
  });
  if (there.rows.length === 0) {
    return false;
  }
  const isWhole = there.rows.some(({ relname }) => relname === "version");
  const found = isWhole
    ? await session.query<{ version: number | null }>(
        `SELECT max(version) AS version FROM ${quoteName(schema)}.version`,
      )
    : undefined;
  const newest = found?.rows[0]?.version ?? undefined;
  if (newest === undefined) {
    throw new JobError("OUTPUT_DAMAGED", `checking control schema ${schema}: its table version is gone or empty`, {
      hint: "restore the control tables from a backup",
    });
  }
  if (newest !== layoutVersion) {
    throw new JobError(
      "OUTPUT_DAMAGED",
      `checking control schema ${schema}: its tables have layout ${newest}, and this program knows ${layoutVersion}`,
      { hint: "use the program that made them, or another output.postgres.control_schema" },
    );
  }
  return true;
}

/** Creates the control tables. When several attempts start at once, one of them does it. */
export async function makeControlTables(session: Session, schema: string, program: string): Promise<void> {
  // The lock is the transaction's, since a pooler may give each transaction another session.
  await lock(session, schema);
  if (!(await hasControlTables(session, schema))) {
    const making = (await hasSchema(session, schema)) ? "" : `CREATE SCHEMA ${quoteName(schema)};`;
    await session.query(making + creation(schema, program));
  }
}

const layoutVersion = 1;

interface ControlTable {
  readonly table: string;
  readonly comment: string;
  readonly columns: Readonly<Record<string, readonly [sql: string, comment: string]>>;
  readonly constraints?: string;
}

/** A run only inserts rows; `erase` and `prune` change them. A role with INSERT and SELECT is enough for a run. */
const tables: readonly ControlTable[] = [
  {
    table: "version",
    comment: "Which layout these tables have",
    columns: {
      version: ["integer PRIMARY KEY", "of this layout; the largest counts"],
      made_at: ["timestamptz NOT NULL DEFAULT now()", "when"],
      made_by: ["text NOT NULL", "program that made it"],
    },
  },
  {
    table: "runs",
    comment: "A row for each run: its plan, which the first attempt wrote and every other one takes up",
    columns: {
      run_id: ["text PRIMARY KEY", "job name and digest of its params; -r2 and so on for new runs"],
      base: ["text NOT NULL", "run_id of the first of the runs of this job and these params"],
      number: ["integer NOT NULL", "which of them, from 1: --new-run opens the next one"],
      plan_id: ["text NOT NULL", "sha256 of the plan's text, in hex"],
      job: ["text NOT NULL", "name in the job spec"],
      target: ["text NOT NULL", "schema and table of the predictions"],
      mode: ["text NOT NULL", "append, upsert or replace"],
      rows_planned: ["bigint NOT NULL", "input rows"],
      spans_planned: ["integer NOT NULL", "spans that they are committed in"],
      plan: ["text NOT NULL", "the plan, JSON"],
      planned_at: ["timestamptz NOT NULL DEFAULT clock_timestamp()", "when the plan was stored"],
      params: ["json NOT NULL", "params of the plan"],
      staged: ["boolean NOT NULL", "whether its rows are published together, after a decision"],
      logical_date: ["date", "the date that the run is for; NULL: its params name none"],
    },
    constraints: "UNIQUE (run_id, plan_id), UNIQUE (base, number)",
  },
  {
    table: "attempts",
    comment: "A row for each process that worked on a run",
    columns: {
      run_id: ["text NOT NULL", "the run"],
      writer: ["text NOT NULL", "host, process and a random number: names the attempt"],
      program: ["text NOT NULL", "name and version"],
      started_at: ["timestamptz NOT NULL DEFAULT clock_timestamp()", "when it was ready to score"],
    },
    constraints: "PRIMARY KEY (run_id, writer)",
  },
  {
    table: "spans",
    comment: "A row for each committed span, inserted by the transaction that inserted the span's rows",
    columns: {
      run_id: ["text NOT NULL", "the run"],
      span: ["integer NOT NULL", "number of the span, from 0"],
      plan_id: ["text NOT NULL", "the plan that it was scored by"],
      row_start: ["bigint NOT NULL", "first row of the run in this span, from 0"],
      row_end: ["bigint NOT NULL", "the row after its last"],
      rows: ["bigint NOT NULL", "predictions that this span gave"],
      rejected: ["bigint NOT NULL", "rows set aside in the table of rejects"],
      filtered: ["bigint NOT NULL", "rows that input.where left out"],
      writer: ["text NOT NULL", "the attempt that committed it"],
      worker: ["integer NOT NULL", "which of several workers that was, from 0"],
      workers: ["integer NOT NULL", "how many they were"],
      program: ["text NOT NULL", "name and version"],
      provider: ["text NOT NULL", "what the model ran on"],
      batch_size: ["integer NOT NULL", "rows that it was given at once"],
      on_bad_row: ["text NOT NULL", "fail or reject"],
      table_oid: [
        "oid NOT NULL",
        "pg_class.oid of the table that took the rows: one of its name may be another by now",
      ],
      table_files: ["text NOT NULL", "digest of the names of that table's files: TRUNCATE gives it others"],
      committed_at: [
        "timestamptz NOT NULL DEFAULT clock_timestamp()",
        "when, after every swap of the target that it saw",
      ],
      profile: ["text", "counts and histograms of its columns, JSON; NULL: the run was pruned"],
    },
    constraints:
      "PRIMARY KEY (run_id, span), FOREIGN KEY (run_id, plan_id) REFERENCES @.runs (run_id, plan_id), CHECK (rows + rejected + filtered = row_end - row_start)",
  },
  {
    table: "rejects",
    comment: "A row for each input row that could not be scored or stored",
    columns: {
      run_id: ["text NOT NULL", "the run"],
      span: ["integer NOT NULL", "the span that would have held it"],
      n: ["integer NOT NULL", "its place among the rejects of the span, from 0"],
      shard: ["text NOT NULL", "the file it is in"],
      row: ["bigint NOT NULL", "its number in that file, from 0"],
      column_name: ["text", "the column at fault; NULL where the row as a whole is"],
      reason: ["text NOT NULL", rejectReasons.join(", ")],
      value: ["text", "what was found; NULL for NULL. A character with code 0 is shown as U+2400"],
      columns: ["jsonb NOT NULL", "output.columns of the row, as text"],
    },
    constraints: "PRIMARY KEY (run_id, span, n)",
  },
  {
    table: "finishes",
    comment: "A row for each run that is complete and published",
    columns: {
      run_id: ["text PRIMARY KEY", "the run"],
      writer: ["text NOT NULL", "the attempt that finished it"],
      finished_at: ["timestamptz NOT NULL DEFAULT clock_timestamp()", "when"],
      target: ["text NOT NULL", "schema and table of the predictions"],
      publication: ["bigint NOT NULL", "number of the publication among those of its target, from 1"],
      profile: ["text", "profile of the whole run, JSON; NULL: the run was pruned"],
      profile_sha256: ["text", "sha256 of that text, in hex"],
      model_sha256: ["text NOT NULL", "sha256 of the model, in hex"],
      spending: ["json", "answers of a language model that the run paid for, tokens and cost; NULL: none"],
    },
    constraints: "UNIQUE (target, publication)",
  },
  {
    table: "documents",
    comment:
      "The documents of runs: verdict, decision, errors, what was paid, notes. None is changed, and old notes of days are removed",
    columns: {
      run_id: ["text NOT NULL", "the run"],
      name: [
        "text NOT NULL",
        "verdict, decision, errors, spending, late, late_told, told, range, passed, day or spans_gone",
      ],
      version: ["integer NOT NULL", "from 1: the first counts, and of errors, spending and passed the last"],
      document: ["json NOT NULL", "what it says"],
      writer: ["text NOT NULL", "the attempt that wrote it"],
      at: ["timestamptz NOT NULL DEFAULT clock_timestamp()", "when"],
    },
    constraints: "PRIMARY KEY (run_id, name, version)",
  },
  {
    table: "swaps",
    comment: "A row for each time that a table was swapped: mode replace, and its rollback",
    columns: {
      n: ["bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY", "in order"],
      target: ["text NOT NULL", "schema and table of the predictions"],
      run_id: ["text NOT NULL", "the run that replaced the rows, or the run that was rolled back"],
      kept: ["text", "the table that holds the rows that were there before; NULL: none is kept"],
      action: ["text NOT NULL", "replace or rollback"],
      table_oid: ["oid NOT NULL", "pg_class.oid of the target since then"],
      at: ["timestamptz NOT NULL DEFAULT clock_timestamp()", "when, after every span of an unfinished run"],
    },
  },
];

function creation(schema: string, program: string): string {
  const comment = `COMMENT ON SCHEMA @ IS 'Control tables of infer-batch: plans, progress and rejects';`;
  return inSchema(schema, [...tables.map(tableSql), views.trim(), comment, versionSql(program)]);
}

function tableSql({ table, comment, columns, constraints }: ControlTable): string {
  const definitions = Object.entries(columns).map(([column, [sql]]) => `${quoteName(column)} ${sql}`);
  const all = [...definitions, ...(constraints === undefined ? [] : [constraints])].join(", ");
  return [
    `CREATE TABLE @.${table} (${all});`,
    `COMMENT ON TABLE @.${table} IS ${quoteText(comment)};`,
    ...Object.entries(columns).map(([column, [, text]]) => columnComment(table, column, text)),
  ].join("\n");
}

function columnComment(table: string, column: string, text: string): string {
  return `COMMENT ON COLUMN @.${table}.${quoteName(column)} IS ${quoteText(text)};`;
}

function versionSql(program: string): string {
  return `INSERT INTO @.version (version, made_by) VALUES (${layoutVersion}, ${quoteText(program)});`;
}

function inSchema(schema: string, statements: readonly string[]): string {
  return statements.join("\n").replaceAll(/@(?=[. ])/g, () => quoteName(schema));
}

/** SQL that makes the views for people, and for conditions on runs; `@` stands for the schema. */
const views = `
CREATE VIEW @.verdicts AS
SELECT run_id, document #>> '{verdict,outcome}' AS outcome, document AS verdict, writer, at AS judged_at
FROM @.documents WHERE name = 'verdict' AND version = 1;
COMMENT ON VIEW @.verdicts IS 'A row for each run that checks have judged: publish or hold, and the checks with their values and limits';
CREATE VIEW @.decisions AS
SELECT run_id, document ->> 'kind' AS kind, document ->> 'by' AS by, (document ->> 'at')::timestamptz AS at,
  document ->> 'reason' AS reason, (document ->> 'asBaseline')::boolean AS as_baseline, document ->> 'successor' AS successor
FROM @.documents WHERE name = 'decision' AND version = 1;
COMMENT ON VIEW @.decisions IS 'A row for each run that was approved, discarded or superseded: by whom, when and why, and whether later runs are compared with it';
CREATE VIEW @.errors AS
SELECT d.run_id, e ->> 'writer' AS writer, e ->> 'code' AS code, e ->> 'message' AS message, (e ->> 'at')::timestamptz AS at
FROM @.documents d CROSS JOIN LATERAL json_array_elements(document -> 'errors') AS e
WHERE name = 'errors' AND NOT EXISTS (
  SELECT FROM @.documents n WHERE n.run_id = d.run_id AND n.name = 'errors' AND n.version > d.version);
COMMENT ON VIEW @.errors IS 'The last errors of the attempts of each run, a row each';
CREATE VIEW @.progress AS
SELECT r.run_id, r.job, r.target, r.mode,
  CASE WHEN f.run_id IS NOT NULL THEN 'complete' WHEN l.later THEN 'abandoned' ELSE 'unfinished' END AS status,
  r.spans_planned, s.spans_committed, r.rows_planned, s.rows_committed, s.rows_rejected, s.rows_filtered,
  round(s.rows_committed / nullif(extract(epoch FROM s.last_commit_at - a.first_started_at), 0))::bigint AS rows_per_second,
  a.attempts, r.planned_at, s.last_commit_at, f.finished_at, e.message AS last_error, e.at AS last_error_at,
  CASE WHEN f.run_id IS NOT NULL THEN 'published'
    WHEN l.later AND (d.kind IS NULL OR d.kind = 'approved') THEN 'abandoned' WHEN d.kind IS NOT NULL THEN d.kind
    WHEN r.staged AND v.outcome = 'hold' THEN 'held' ELSE 'unfinished' END AS state,
  f.publication, d.by AS decided_by, d.at AS decided_at, d.reason
FROM @.runs r
LEFT JOIN @.finishes f USING (run_id)
LEFT JOIN @.verdicts v USING (run_id)
LEFT JOIN @.decisions d USING (run_id)
CROSS JOIN LATERAL (SELECT EXISTS (SELECT 1 FROM @.runs n WHERE n.base = r.base AND n.number > r.number) AS later) l
CROSS JOIN LATERAL (
  SELECT count(*) AS spans_committed, coalesce(sum(rows), 0)::bigint AS rows_committed,
    coalesce(sum(rejected), 0)::bigint AS rows_rejected, coalesce(sum(filtered), 0)::bigint AS rows_filtered,
    max(committed_at) AS last_commit_at
  FROM @.spans WHERE spans.run_id = r.run_id) s
CROSS JOIN LATERAL (
  SELECT count(*) AS attempts, min(started_at) AS first_started_at FROM @.attempts WHERE attempts.run_id = r.run_id) a
LEFT JOIN LATERAL (
  SELECT message, at FROM @.errors WHERE errors.run_id = r.run_id ORDER BY at DESC LIMIT 1) e ON true;
COMMENT ON VIEW @.progress IS 'A row for each run: how far it is, how fast, its state, and the last error';
`;

/** What a plan pins of a table in Postgres. */
export interface PostgresTarget extends PlanTarget {
  readonly kind: "postgres";
  /** `host:port/database`: for people. A server may move while a run is unfinished. */
  readonly server: string;
  /** `schema.table` */
  readonly table: string;
  readonly mode: PostgresMode;
  readonly key: readonly string[];
  /** "fail" in other modes than `upsert`, where it has no effect. */
  readonly onDuplicate: "fail" | "last";
}

const schema = z.strictObject({
  kind: z.literal("postgres"),
  server: z.string(),
  table: z.string(),
  mode: z.enum(["append", "upsert", "replace"]),
  key: z.array(z.string()),
  onDuplicate: z.enum(["fail", "last"]),
}) satisfies z.ZodType<PostgresTarget>;

/** The target that a spec names. */
export function targetOf(
  { table, mode, key, on_duplicate: asked }: PostgresOutputSpec,
  { server }: { readonly server: string },
): PostgresTarget {
  const onDuplicate = mode === "upsert" ? asked : "fail";
  return { kind: "postgres", server, table: showTable(splitTable(table)), mode, key, onDuplicate };
}

function isPostgresPlan({ target }: Plan): boolean {
  return schema.safeParse(target).success;
}

/** What a plan pins of its table. @throws Error for a plan that `isPostgresPlan` does not admit */
export function plannedTarget({ target }: Plan): PostgresTarget {
  return schema.parse(target);
}

/**
 * Rows are written as the plan says, or not at all: into its table, in its mode, by its key, even if the spec has
 * changed since.
 * @param act what cannot be done: "finishing"
 * @throws JobError PLAN_CHANGED
 */
export function requirePlannedTarget({ runId, target }: Plan, asked: PostgresTarget, act: string): void {
  const { lines, isElsewhere } = compareTargets(target, asked);
  if (lines.length > 0) {
    throw new JobError("PLAN_CHANGED", `${act} run ${runId}: ${lines.join("; ")}`, {
      hint: isElsewhere
        ? "give each job a name of its own; or name the table of the plan in output.postgres.table again"
        : "restore what was planned, and run the same command again; or score again, as another run: run --new-run",
    });
  }
}
