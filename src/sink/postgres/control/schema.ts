import { rejectReasons } from "../../../columnar/types.js";
import { JobError } from "../../../util/errors.js";
import type { Session } from "../connections.js";
import { lock } from "../locks.js";
import { quoteName } from "../names.js";
import { hasSchema } from "../table.js";

/** Layout of the control tables. A change adds a step that migrates the previous layout. */
const version = 1;

interface ColumnComment {
  readonly table: string;
  readonly comment: string;
  readonly columns: Readonly<Record<string, readonly [sql: string, comment: string]>>;
  readonly constraints?: string;
}

/** The control tables. Rows are only inserted: a role with INSERT and SELECT is enough. */
const tables: readonly ColumnComment[] = [
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
      committed_at: ["timestamptz NOT NULL DEFAULT clock_timestamp()", "just before its commit"],
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
    comment: "A row for each run that is complete",
    columns: {
      run_id: ["text PRIMARY KEY", "the run"],
      writer: ["text NOT NULL", "the attempt that finished it"],
      finished_at: ["timestamptz NOT NULL DEFAULT clock_timestamp()", "when"],
    },
  },
  {
    table: "errors",
    comment: "A row for each attempt that ended with an error it could still tell",
    columns: {
      run_id: ["text NOT NULL", "the run"],
      writer: ["text NOT NULL", "the attempt"],
      code: ["text NOT NULL", "name of the error"],
      message: ["text NOT NULL", "its text"],
      at: ["timestamptz NOT NULL DEFAULT clock_timestamp()", "when"],
    },
  },
  {
    table: "swaps",
    comment: "A row for each time that a table was swapped: mode replace, and its rollback",
    columns: {
      n: ["bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY", "in order"],
      target: ["text NOT NULL", "schema and table of the predictions"],
      run_id: ["text NOT NULL", "the run whose rows are in the target now"],
      kept: ["text", "the table that holds the rows that were there before; NULL: none is kept"],
      action: ["text NOT NULL", "replace or rollback"],
      table_oid: ["oid NOT NULL", "pg_class.oid of the target since then"],
      at: ["timestamptz NOT NULL DEFAULT clock_timestamp()", "when"],
    },
  },
];

const progressView = `
CREATE VIEW @.progress AS
SELECT r.run_id, r.job, r.target, r.mode,
  CASE WHEN f.run_id IS NOT NULL THEN 'complete'
    WHEN EXISTS (SELECT 1 FROM @.runs l WHERE l.base = r.base AND l.number > r.number) THEN 'given_up'
    ELSE 'unfinished' END AS status,
  r.spans_planned, s.spans_committed, r.rows_planned, s.rows_committed, s.rows_rejected, s.rows_filtered,
  round(s.rows_committed / nullif(extract(epoch FROM s.last_commit_at - a.first_started_at), 0))::bigint AS rows_per_second,
  a.attempts, r.planned_at, s.last_commit_at, f.finished_at, e.message AS last_error, e.at AS last_error_at
FROM @.runs r
LEFT JOIN @.finishes f USING (run_id)
CROSS JOIN LATERAL (
  SELECT count(*) AS spans_committed, coalesce(sum(rows), 0)::bigint AS rows_committed,
    coalesce(sum(rejected), 0)::bigint AS rows_rejected, coalesce(sum(filtered), 0)::bigint AS rows_filtered,
    max(committed_at) AS last_commit_at
  FROM @.spans WHERE spans.run_id = r.run_id) s
CROSS JOIN LATERAL (
  SELECT count(*) AS attempts, min(started_at) AS first_started_at FROM @.attempts WHERE attempts.run_id = r.run_id) a
LEFT JOIN LATERAL (
  SELECT message, at FROM @.errors WHERE errors.run_id = r.run_id ORDER BY at DESC LIMIT 1) e ON true;
COMMENT ON VIEW @.progress IS 'A row for each run: how far it is, how fast, and the last error';
`;

/** SQL that makes the control tables, for one transaction. */
function creation(schema: string, program: string): string {
  const name = quoteName(schema);
  const made = tables.map(({ table, comment, columns, constraints }) => {
    const definitions = Object.entries(columns).map(([column, [sql]]) => `${quoteName(column)} ${sql}`);
    const comments = Object.entries(columns).map(
      ([column, [, text]]) => `COMMENT ON COLUMN ${name}.${table}.${quoteName(column)} IS ${quoteText(text)};`,
    );
    return `CREATE TABLE ${name}.${table} (${[...definitions, ...(constraints === undefined ? [] : [constraints])].join(", ")});
      COMMENT ON TABLE ${name}.${table} IS ${quoteText(comment)}; ${comments.join(" ")}`;
  });
  return `${made.join("\n")}${progressView}
    COMMENT ON SCHEMA ${name} IS 'Control tables of infer-batch: plans, progress and rejects';
    INSERT INTO ${name}.version (version, made_by) VALUES (${version}, ${quoteText(program)});`.replaceAll(
    "@.",
    `${name}.`,
  );
}

function quoteText(text: string): string {
  return `'${text.replaceAll("'", "''")}'`;
}

/** Whether the control tables exist. @throws JobError OUTPUT_FOREIGN when a newer program made them */
export async function hasControlTables(session: Session, schema: string): Promise<boolean> {
  // Not by to_regclass, which may answer from a cache that is older than the lock it waited for.
  const there = await session.query({
    text: "SELECT 1 FROM pg_class c JOIN pg_namespace n ON n.oid = c.relnamespace WHERE n.nspname = $1 AND c.relname = 'version'",
    values: [schema],
  });
  if (there.rows.length === 0) {
    return false;
  }
  const found = await session.query<{ version: number | null }>(
    `SELECT max(version) AS version FROM ${quoteName(schema)}.version`,
  );
  const newest = found.rows[0]?.version ?? 0;
  if (newest !== version) {
    throw new JobError(
      "OUTPUT_FOREIGN",
      `checking control schema ${schema}: its tables have layout ${newest}, this program knows ${version}`,
      { hint: "use the newer program, or another output.postgres.control_schema" },
    );
  }
  return true;
}

/**
 * Makes the control tables where they are missing. Of several attempts at once, one makes them. Needs a transaction.
 */
export async function makeControlTables(session: Session, schema: string, program: string): Promise<void> {
  if (await hasControlTables(session, schema)) {
    return;
  }
  // The lock is the transaction's, since a pooler may give each transaction another session.
  await lock(session, schema);
  if (!(await hasControlTables(session, schema))) {
    const making = (await hasSchema(session, schema)) ? "" : `CREATE SCHEMA ${quoteName(schema)};`;
    await session.query(making + creation(schema, program));
  }
}
