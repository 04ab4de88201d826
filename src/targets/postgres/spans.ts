import { z } from "../../base/zod.js";
import type { Plan, RunId, Span } from "../../run/plan/plan.js";
import { spanAt, spanCount } from "../../run/plan/spans.js";
import type { StoredPlan } from "../target.js";
import type { SpanRecord } from "../../run/lifecycle/span-record.js";
import { type Connections, lock, type Session, transact } from "./connections.js";
import { type Control, damagedRun, plannedTarget } from "./control.js";
import { findTable, quoteTable, showTable, type TableName } from "./table.js";
import { committedAtSql } from "./swaps.js";
import { mergeProfiles, noRows, parseProfile, type SpanProfile } from "../../checks/profile/profile.js";
import { type EncodedRows, ensureControlTables, type TableTools, type TargetTools } from "./modes/mode.js";
import { bestEffort } from "../../base/promises.js";
import { JobError } from "../../base/errors.js";
import { type RejectedRow, rejectReasons } from "../../columns/types.js";

/** A committed span, as its control row describes it. */
export interface CommittedSpan extends SpanRecord {
  readonly span: number;
  /** OID of the table that took its rows. */
  readonly table: number;
}

/** int8 comes as text. */
const schema = z.object({
  span: z.int(),
  plan_id: z.string(),
  row_start: z.coerce.number(),
  row_end: z.coerce.number(),
  rows: z.coerce.number(),
  rejected: z.coerce.number(),
  filtered: z.coerce.number(),
  writer: z.string(),
  worker: z.int(),
  workers: z.int(),
  program: z.string(),
  provider: z.string(),
  batch_size: z.int(),
  on_bad_row: z.enum(["fail", "reject"]),
  table_oid: z.int(),
});

const names = schema.keyof().options;

/** The columns of a control row, for a query that calls the table `s`. */
export const spanColumns = names.map((column) => `s.${column}`).join(", ");

/** Reads the committed spans of a run. @throws JobError OUTPUT_DAMAGED when a row does not match the plan */
export async function readSpans(session: Session, control: Control, stored: StoredPlan): Promise<CommittedSpan[]> {
  const { rows } = await session.query({
    text: `SELECT ${spanColumns} FROM ${control.table("spans")} s WHERE s.run_id = $1`,
    values: [stored.plan.runId],
  });
  return rows.map((row) => committedSpan(control, stored, row));
}

/** Parses a control row. @throws JobError OUTPUT_DAMAGED when it does not match the plan */
export function committedSpan(control: Control, { plan, planId }: StoredPlan, row: unknown): CommittedSpan {
  const { data } = schema.safeParse(row);
  const due = data === undefined || data.span >= spanCount(plan) ? undefined : spanAt(plan, data.span);
  if (
    data === undefined ||
    data.plan_id !== planId ||
    data.row_start !== due?.rowStart ||
    data.row_end !== due.rowEnd ||
    data.rows + data.rejected + data.filtered !== due.rowEnd - due.rowStart
  ) {
    const which = data === undefined ? "a span" : `span ${data.span}`;
    throw damagedRun(
      plan.runId,
      `reading ${control.schema}.spans: ${which} of run ${plan.runId} is not of its plan`,
      "the control tables were changed; restore them from a backup",
    );
  }
  const { writer, worker, workers, program, provider, batch_size: batchSize, on_bad_row: onBadRow } = data;
  const maker = { writer, worker, workers, program, provider, batchSize, onBadRow };
  const { span, rows, rejected, filtered, table_oid: table } = data;
  return { span, rows, rejected, filtered, maker, table };
}

/** A span that is encoded and ready to be sent. */
export interface SpanToInsert {
  readonly stored: StoredPlan;
  readonly span: Span;
  readonly rows: EncodedRows;
  readonly rejects: readonly RejectedRow[];
  /** What its control row will say. */
  readonly due: CommittedSpan;
  /** JSON. */
  readonly profile: string;
  /** The number of the target's last swap when the attempt began; undefined: the run stages its rows outside the target. */
  readonly lastSwap: string | undefined;
}

/**
 * Inserts a span's control row, which commits the span with the transaction. Returns whether the target was swapped
 * since the attempt began.
 */
export async function insertSpan(
  session: Session,
  { control, name }: TargetTools,
  { stored, span, due, profile, lastSwap }: SpanToInsert,
): Promise<boolean> {
  const { maker } = due;
  const row: z.infer<typeof schema> = {
    span: span.index,
    plan_id: stored.planId,
    row_start: span.rowStart,
    row_end: span.rowEnd,
    rows: due.rows,
    rejected: due.rejected,
    filtered: due.filtered,
    writer: maker.writer,
    worker: maker.worker,
    workers: maker.workers,
    program: maker.program,
    provider: maker.provider,
    batch_size: maker.batchSize,
    on_bad_row: maker.onBadRow,
    table_oid: due.table,
  };
  const values = [stored.plan.runId, ...names.map((column) => row[column]), profile];
  const [target, last] = [`$${values.length + 1}`, `$${values.length + 2}::int8`];
  const isStaged = lastSwap === undefined;
  const isSwapped = `EXISTS (SELECT FROM ${control.table("swaps")} w WHERE w.n > ${last} AND w.target = ${target})`;
  const inserted = await session.query<{ swapped: boolean }>({
    text: `INSERT INTO ${control.table("spans")} (run_id, ${names.join(", ")}, profile, table_files, committed_at)
      VALUES (${values.map((_, at) => `$${at + 1}`).join(", ")}, ${filesSql(`$${names.length + 1}::oid`)},
        ${isStaged ? "DEFAULT" : committedAtSql(control, target, last)})
      RETURNING ${isStaged ? "false" : isSwapped} AS swapped`,
    values: isStaged ? values : [...values, showTable(name), lastSwap],
  });
  return inserted.rows[0]?.swapped === true;
}

/** The profiles of a span take up to about 200 KiB. */
const spansPerQuery = 64;

/** Merges the profiles of a run's committed spans. Reads a bounded number at a time. @throws JobError OUTPUT_DAMAGED */
export async function committedProfile({ connections, control }: TableTools, plan: Plan): Promise<SpanProfile> {
  let merged = noRows;
  for (let from = 0; from < spanCount(plan); from += spansPerQuery) {
    const { rows } = await connections.use((session) =>
      session.query<{ span: number; profile: string }>({
        text: `SELECT span, profile FROM ${control.table("spans")} WHERE run_id = $1 AND span >= $2 AND span < $3 ORDER BY span`,
        values: [plan.runId, from, from + spansPerQuery],
      }),
    );
    for (const { span, profile: text } of rows) {
      const profile = parseOrUndefined(text);
      if (profile === undefined) {
        throw damagedRun(
          plan.runId,
          `reading ${control.schema}.spans: the profile of span ${span} of run ${plan.runId} is not one`,
          "the control tables were changed; restore them from a backup",
        );
      }
      merged = mergeProfiles(merged, profile);
    }
  }
  return merged;
}

function parseOrUndefined(text: string): SpanProfile | undefined {
  try {
    return parseProfile(text);
  } catch {
    return undefined;
  }
}

/**
 * Records which of these spans have no control row any more, so that later attempts do not score them again: their rows
 * may be in the table. Never fails.
 */
export async function recordSpansGone(tools: TableTools, runId: RunId, known: Iterable<number>): Promise<void> {
  const { control, writer } = tools;
  const documents = control.table("documents");
  await bestEffort(async () => {
    await ensureControlTables(tools);
    await transact(tools, async (session) => {
      await lock(session, `spans_gone ${runId}`); // of two that find out at once, both count
      await session.query({
        text: `INSERT INTO ${documents} (run_id, name, version, document, writer)
          SELECT $1, 'spans_gone', (SELECT coalesce(max(version), 0) + 1 FROM ${documents} WHERE run_id = $1 AND name = 'spans_gone'),
            json_agg(n ORDER BY n), $2 FROM unnest($3::int4[]) AS n
          WHERE NOT EXISTS (SELECT FROM ${control.table("spans")} WHERE run_id = $1 AND span = n) HAVING count(*) > 0`,
        values: [runId, writer, [...known]],
      });
    });
  });
}

/**
 * The error for a run that appends and whose control rows of some spans are missing: only a look at the table tells
 * whether their rows are there.
 */
export function spansMissing(message: string, { table }: Control, runId: RunId, target: string): JobError {
  const forget = `DELETE FROM ${table("documents")} WHERE run_id = '${runId}' AND name = 'spans_gone'`;
  return new JobError("OUTPUT_DAMAGED", message, {
    hint: `rows of these spans may be in ${target} all the same: look for them there first. If they are, restore the control tables from a backup; or delete all rows of run ${runId} and start over with --new-run, which wants --allow-duplicates if rows of other runs stay. Only if none of them is there: ${forget}; then run the same command again`,
    damage: { runId },
  });
}

/**
 * Refuses a run whose control rows are known to be missing. `target`: where their rows are beside those of others;
 * undefined: a new run replaces them. @throws JobError OUTPUT_DAMAGED
 */
export async function refuseSpansGone(
  session: Session,
  control: Control,
  runId: RunId,
  target: string | undefined,
): Promise<void> {
  const { rows } = await session.query<{ span: number; count: number }>({
    text: `SELECT min(n::int4) AS span, count(DISTINCT n)::int4 AS count
      FROM ${control.table("documents")} d, json_array_elements_text(CASE WHEN name = 'spans_gone' THEN document ELSE '[]' END) AS n
      WHERE d.run_id = $1 AND name = 'spans_gone'
        AND NOT EXISTS (SELECT FROM ${control.table("spans")} s WHERE s.run_id = $1 AND s.span = n::int4) HAVING count(*) > 0`,
    values: [runId],
  });
  const [gone] = rows;
  if (gone !== undefined) {
    const more = gone.count > 1 ? ` and ${gone.count - 1} more` : "";
    const found = `reading ${control.schema}.spans: span ${gone.span}${more} of run ${runId} had been committed, and the control rows are gone`;
    throw target === undefined
      ? damagedRun(runId, found, "restore the control tables from a backup")
      : spansMissing(found, control, runId, target);
  }
}

/** SQL for a digest that names the files of a table's rows, and of its partitions. `oid`: SQL for the table's OID. */
function filesSql(oid: string): string {
  return `(SELECT md5(coalesce(string_agg(pg_relation_filenode(relid)::text, ' ' ORDER BY relid::oid), ''))
    FROM (SELECT relid FROM pg_partition_tree(${oid}) UNION SELECT ${oid}::regclass) AS tables)`;
}

/**
 * Detects that a table may have been emptied since a run wrote spans into it. Returns the digest of its files where
 * they differ from those that took the spans. TRUNCATE gives a table new files; so do VACUUM FULL, CLUSTER and ALTER
 * TABLE, which keep the rows. Returns undefined where the files are the same, or where this role may not read all rows.
 */
export async function changedFiles(
  session: Session,
  { name, control }: TargetTools,
  plan: Plan,
): Promise<string | undefined> {
  const table = await findTable(session, name);
  if (table === undefined || !table.readable || table.secured) {
    return undefined;
  }
  const { rows } = await session.query<{ files: string }>({
    text: `SELECT files FROM (SELECT ${filesSql("$2::oid")} AS files) AS f
      WHERE EXISTS (SELECT FROM ${control.table("spans")} s WHERE s.run_id = $1 AND s.rows > 0 AND s.table_files <> files)`,
    values: [plan.runId, table.oid],
  });
  return rows[0]?.files;
}

interface Counted {
  readonly there: string;
  readonly due: string;
  readonly since: string;
}

/**
 * Counts the rows of a table whose files have changed, which never happens in an undisturbed run. A table with fewer
 * rows than the run has written has lost some. `doing`: the act, for messages. `due`: SQL for how many rows the run has
 * written, `$1` the run.
 * @throws JobError OUTPUT_DAMAGED
 */
export async function refuseEmptied(
  session: Session,
  { name, control }: TargetTools,
  plan: Plan,
  { doing, due, files }: { readonly doing: string; readonly due: string; readonly files: string },
): Promise<void> {
  const spans = control.table("spans");
  await session.query("SET LOCAL statement_timeout = 0"); // a count may take longer than the limit of a statement
  const { rows } = await session.query<Counted>({
    text: `SELECT (SELECT count(*) FROM ${quoteTable(name)}) AS there, (${due})::int8 AS due,
      (SELECT coalesce(sum(rows), 0)::int8 FROM ${spans} WHERE run_id = $1 AND table_files = $2) AS since
      FROM (SELECT $1::text) AS run`,
    values: [plan.runId, files],
  });
  const [row] = rows;
  if (row === undefined || BigInt(row.there) >= BigInt(row.due)) {
    return;
  }
  const kept = `UPDATE ${spans} SET table_files = '${files}' WHERE run_id = '${plan.runId}'`;
  const found = `${doing}: ${showTable(name)} holds ${row.there} rows, and the run has put ${row.due} there`;
  throw new JobError("OUTPUT_DAMAGED", found, {
    hint: `it was emptied during the run. ${repairHint(plan, name, row)}. If rows were removed on purpose: ${kept}`,
    damage: { runId: plan.runId },
  });
}

function repairHint(plan: Plan, name: TableName, { there, since }: Counted): string {
  const again = "run --new-run";
  if (there === "0" || plannedTarget(plan).mode !== "append") {
    return `To score all rows again: ${again}`;
  }
  const left = since === "0" ? "" : `${since} of its rows are of spans that were committed since. `;
  return `${left}To score all rows again: TRUNCATE ${quoteTable(name)}, then ${again}; where other rows must stay, delete those of this run instead, and add --allow-duplicates`;
}

/** Postgres text cannot hold the character with code 0. */
function showNul(text: string): string {
  return text.replaceAll("\u0000", "\u2400");
}

const rowsPerInsert = 5000;

/** Inserts a span's rejected rows in the session's transaction. */
export async function insertRejects(
  session: Session,
  { table }: Control,
  runId: RunId,
  span: number,
  rejects: readonly RejectedRow[],
): Promise<void> {
  // In groups: millions of rejects exceed the longest text of JavaScript, and the largest jsonb value.
  for (let from = 0; from < rejects.length; from += rowsPerInsert) {
    const rows = rejects
      .slice(from, from + rowsPerInsert)
      .map(({ shard, row, columns, column, reason, value }, index) => ({
        n: from + index,
        shard: showNul(shard),
        row,
        column_name: column,
        reason,
        value: value === null ? null : showNul(value),
        columns: Object.fromEntries(
          Object.entries(columns).map(([name, text]) => [name, text === null ? null : showNul(text)]),
        ),
      }));
    await session.query({
      text: `INSERT INTO ${table("rejects")} (run_id, span, n, shard, row, column_name, reason, value, columns)
        SELECT $1, $2, r.* FROM jsonb_to_recordset($3::jsonb) AS
          r (n int, shard text, "row" bigint, column_name text, reason text, value text, columns jsonb)`,
      values: [runId, span, JSON.stringify(rows)],
    });
  }
}

const rowsPerQuery = 1000;

const rejectSchema = z.object({
  span: z.int(),
  n: z.int(),
  shard: z.string(),
  row: z.coerce.number(),
  column_name: z.string().nullable(),
  reason: z.enum(rejectReasons),
  value: z.string().nullable(),
  columns: z.record(z.string(), z.string().nullable()),
});

/** Yields the rejected rows of a run's committed spans, in span order. Reads a bounded number at a time. */
export async function* selectRejects(
  connections: Connections,
  control: Control,
  runId: RunId,
): AsyncGenerator<RejectedRow> {
  let after: readonly [number, number] = [-1, -1];
  for (;;) {
    const [span, n] = after;
    const { rows } = await connections.use((session) =>
      session.query({
        text: `SELECT span, n, shard, row, column_name, reason, value, columns FROM ${control.table("rejects")}
          WHERE run_id = $1 AND (span, n) > ($2, $3) ORDER BY span, n LIMIT ${rowsPerQuery}`,
        values: [runId, span, n],
      }),
    );
    for (const row of rows) {
      const { column_name: column, ...rejected } = rejectSchema.parse(row);
      after = [rejected.span, rejected.n];
      const { shard, row: number, columns, reason, value } = rejected;
      yield { shard, row: number, columns, column, reason, value };
    }
    if (rows.length < rowsPerQuery) {
      return;
    }
  }
}
