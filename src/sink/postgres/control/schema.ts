import { JobError } from "../../../util/errors.js";
import type { Session } from "../connections.js";
import { lock } from "../locks.js";
import { quoteName } from "../names.js";
import { hasSchema } from "../table.js";
import { rejectReasons } from "../../../columnar/types.js";

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

/** The layout of the control tables. */
const layoutVersion = 1;

interface ControlTable {
  readonly table: string;
  readonly comment: string;
  readonly columns: Readonly<Record<string, readonly [sql: string, comment: string]>>;
  readonly constraints?: string;
}

/**
 * The control tables. A run only inserts rows; `erase` and `prune` change them. A role with INSERT and SELECT is enough
 * for a run.
 */
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
      "The documents of runs: verdict, decision, errors, what was paid, notes. Rows are added, and none is changed",
    columns: {
      run_id: ["text NOT NULL", "the run"],
      name: ["text NOT NULL", "verdict, decision, errors, spending, late, late_told, told or spans_gone"],
      version: ["integer NOT NULL", "from 1: the first counts, and of errors and spending the last"],
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

/** SQL that makes the control tables, for one transaction. */
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

/** Joins statements and replaces `@` with the schema's name. */
function inSchema(schema: string, statements: readonly string[]): string {
  return statements.join("\n").replaceAll(/@(?=[. ])/g, () => quoteName(schema));
}

function quoteText(text: string): string {
  return `'${text.replaceAll("'", "''")}'`;
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
