import { outputColumns } from "../../../binding/contract.js";
import { JobError } from "../../../util/errors.js";
import { didYouMean } from "../../../util/suggest.js";
import type { Plan } from "../../../plan/plan.js";
import { copySql, prepareTable } from "./append.js";
import { copyIn, type Session } from "../connections.js";
import { damagedRun } from "../control/control.js";
import { type EncodedRows, KeyTakenConcurrently, type Mode, type ModeTools } from "./mode.js";
import { keysTable, quoteName, quoteTable, showTable, type TableName } from "../names.js";
import { oidOf } from "./staging.js";
import { refuseChanged, type TargetColumn } from "../table.js";

const temporary = "pg_temp.infer_batch_span";

/**
 * Mode upsert: rows are copied into a temporary table, and put from there into the target by key. A table of the run's
 * own keeps its keys until it is finished, so that a key that comes twice, in one span or in two, is never missed.
 */
export function upsertMode(tools: ModeTools): Mode {
  const { name, spec, control, refuseNewer } = tools;
  const tableOf = ({ runId }: Plan): TableName => keysTable(control.schema, runId);
  const keysOf = (plan: Plan): string => quoteTable(tableOf(plan));
  return {
    kind: "upsert",
    rowsAt: () => name,
    async prepare(session, plan, { mayCreate }) {
      requireKey(spec.key, outputColumns(plan.contract));
      const columns = await prepareTable(session, tools, plan, mayCreate);
      await requireUnique(session, name, spec.key);
      if ((await oidOf(session, tableOf(plan))) === undefined) {
        if (!mayCreate) {
          throw keysGone(plan, tableOf(plan));
        }
        await makeKeys(session, tools, tableOf(plan));
      }
      return keyNotNull(columns, spec.key);
    },
    async write(session, rows) {
      const columns = rows.columns.map((column) => quoteName(column.name)).join(", ");
      await session.query(
        `CREATE TEMP TABLE infer_batch_span ON COMMIT DROP AS SELECT ${columns} FROM ${quoteTable(name)} WITH NO DATA`,
      );
      const taken = await copyIn(session, copySql(temporary, rows.columns), rows.chunks);
      const merge = {
        target: quoteTable(name),
        keys: keysOf(rows.plan),
        key: spec.key,
        spans: control.table("spans"),
      };
      const { put, due } = await (spec.on_duplicate === "fail" ? mergeOnce : mergeLast)(session, merge, rows);
      if (put < due) {
        await refuseMissing(session, merge, temporary, `writing span ${rows.span}`);
      }
      await refuseChanged(session, name, rows.columns);
      // The rows are locked now: a newer run that has put one of them has committed, and is seen; or it waits.
      await refuseNewer(session, rows.plan);
      return taken;
    },
    writtenRows: (plan) => `SELECT count(*) FROM ${keysOf(plan)}`,
    checkRows: (session, plan) => refuseUncommitted(session, keysOf(plan), control.table("spans"), plan),
    async checkOwnTables(session, plan) {
      if ((await oidOf(session, tableOf(plan))) === undefined) {
        throw keysGone(plan, tableOf(plan));
      }
    },
  };
}

/** Checks that each key column is an output column. @throws JobError OUTPUT_MISMATCH */
export function requireKey(key: readonly string[], output: readonly { readonly name: string }[]): void {
  const names = output.map(({ name }) => name);
  for (const column of key) {
    if (!names.includes(column)) {
      throw new JobError(
        "OUTPUT_MISMATCH",
        `reading output.postgres.key: \`${column}\` is not an output column; they are ${names.join(", ")}${didYouMean(column, names)}`,
        { hint: "the columns that name a row must be among output.columns" },
      );
    }
  }
}

/** Lets key columns take no NULL: NULL equals no NULL, so that such rows would be added again and again. */
export function keyNotNull(columns: readonly TargetColumn[], key: readonly string[]): TargetColumn[] {
  return columns.map((column) =>
    key.includes(column.name) && !column.type.notNull
      ? { ...column, type: { ...column.type, notNull: "key" } }
      : column,
  );
}

/** Checks that the key is unique, which ON CONFLICT needs an index for. @throws JobError OUTPUT_MISMATCH */
export async function requireUnique(session: Session, name: TableName, key: readonly string[]): Promise<void> {
  const { rows } = await session.query({
    text: `SELECT 1 FROM pg_index i JOIN pg_class c ON c.oid = i.indrelid JOIN pg_namespace n ON n.oid = c.relnamespace
      WHERE n.nspname = $1 AND c.relname = $2 AND i.indisunique AND i.indisvalid AND i.indimmediate
        AND i.indpred IS NULL AND i.indexprs IS NULL
        AND (SELECT array_agg(a.attname::text ORDER BY a.attname::text COLLATE "C") FROM pg_attribute a
             WHERE a.attrelid = c.oid AND a.attnum = ANY (i.indkey[0:i.indnkeyatts - 1]))
          = (SELECT array_agg(k ORDER BY k COLLATE "C") FROM unnest($3::text[]) AS k)`,
    values: [name.schema, name.table, key],
  });
  if (rows.length === 0) {
    throw new JobError(
      "OUTPUT_MISMATCH",
      `checking table ${showTable(name)}: no primary key or unique index over exactly (${key.join(", ")})`,
      { hint: `CREATE UNIQUE INDEX ON ${quoteTable(name)} (${key.map(quoteName).join(", ")})` },
    );
  }
}

/** Makes the table of a run's keys. The caller has locked the run: one attempt at a time does this. */
async function makeKeys(session: Session, { name, spec: { key } }: ModeTools, table: TableName): Promise<void> {
  const keys = quoteTable(table);
  const columns = key.map(quoteName).join(", ");
  await session.query(
    `CREATE TABLE ${keys} AS SELECT ${columns}, 0 AS infer_batch_span FROM ${quoteTable(name)} WITH NO DATA`,
  );
  // The constraint has no name of its own, which would have to be unique among runs.
  await session.query(`ALTER TABLE ${keys} ADD PRIMARY KEY (${columns})`);
  await session.query(
    `COMMENT ON TABLE ${keys} IS 'Keys that an unfinished run has had, by span; goes when it is finished'`,
  );
}

/** To make the table anew while spans are committed could put their keys twice, without a word. */
function keysGone({ runId }: Plan, table: TableName): JobError {
  return damagedRun(`checking table ${showTable(table)}: the table of the run's keys is gone`, {
    hint: "it was removed; restore it from a backup",
    runId,
  });
}

interface Merge {
  readonly target: string;
  readonly keys: string;
  readonly key: readonly string[];
  /** The control table. */
  readonly spans: string;
}

/** SQL that inserts keys in order, so that two spans with the same keys wait for each other and do not deadlock. */
function insertSql(
  { target, key }: Pick<Merge, "target" | "key">,
  columns: readonly TargetColumn[],
  from: string,
): string {
  const names = columns.map((column) => quoteName(column.name));
  const keyNames = key.map(quoteName);
  return `INSERT INTO ${target} (${names.join(", ")}) SELECT ${names.map((column) => `s.${column}`).join(", ")} FROM ${from}
    ORDER BY ${keyNames.map((column) => `s.${column}`).join(", ")} ${onConflict(keyNames, names)}`;
}

/** SQL that updates a row with the same key. @param names quoted names of the columns that get the new values */
export function onConflict(key: readonly string[], names: readonly string[]): string {
  const updates = names.filter((name) => !key.includes(name)).map((name) => `${name} = EXCLUDED.${name}`);
  return `ON CONFLICT (${key.join(", ")}) ${updates.length === 0 ? "DO NOTHING" : `DO UPDATE SET ${updates.join(", ")}`}`;
}

/** Counts of a merge: rows put, of rows due. */
interface Merged {
  readonly put: number;
  readonly due: number;
}

/**
 * Checks rows that were not put. A row may already be in the target with the same values, with nothing to update, or a
 * trigger may ignore such updates. But a trigger may also keep out a row that is not in the target.
 * @throws JobError OUTPUT_REFUSED
 */
async function refuseMissing(
  session: Session,
  { target, key }: Pick<Merge, "target" | "key">,
  from: string,
  doing: string,
): Promise<void> {
  const same = key.map((column) => `t.${quoteName(column)} = s.${quoteName(column)}`).join(" AND ");
  const { rows } = await session.query(
    `SELECT ${key.map((column) => `s.${quoteName(column)}`).join(", ")} FROM ${from} s
     WHERE NOT EXISTS (SELECT FROM ${target} t WHERE ${same}) ORDER BY 1 LIMIT 1`,
  );
  if (rows.length > 0) {
    throw new JobError(
      "OUTPUT_REFUSED",
      `${doing} by key: the row with ${shownKey(key, rows[0])} is not in the table afterwards`,
      { hint: "a trigger of the table or a policy keeps rows out; committed spans are kept" },
    );
  }
}

/**
 * Inserts the rows of a table into the target, and updates rows with the same key. No key comes twice in `from`.
 * @throws JobError OUTPUT_REFUSED for a row that is not in the target afterwards
 */
export async function mergeTable(
  session: Session,
  { name, spec: { key } }: ModeTools,
  from: TableName,
  columns: readonly TargetColumn[],
): Promise<void> {
  const merge = { target: quoteTable(name), key };
  const put = await session.query(insertSql(merge, columns, `${quoteTable(from)} s`));
  const { rows } = await session.query<{ due: number }>(`SELECT count(*)::float8 AS due FROM ${quoteTable(from)}`);
  if ((put.rowCount ?? 0) < (rows[0]?.due ?? 0)) {
    await refuseMissing(session, merge, quoteTable(from), `publishing to ${showTable(name)}`);
  }
}

function shownKey(key: readonly string[], row: unknown): string {
  return key.map((column) => `${column} = ${JSON.stringify(Reflect.get(Object(row), column))}`).join(", ");
}

async function mergeOnce(session: Session, merge: Merge, rows: EncodedRows): Promise<Merged> {
  const key = merge.key.map(quoteName).join(", ");
  const twice = await session.query(
    `SELECT ${key} FROM ${temporary} GROUP BY ${key} HAVING count(*) > 1 ORDER BY 1 LIMIT 1`,
  );
  if (twice.rows.length > 0) {
    throw duplicate(merge, twice.rows[0], `twice in span ${rows.span}`);
  }
  const { rowCount } = await session.query(
    `INSERT INTO ${merge.keys} SELECT ${key}, ${rows.span} FROM ${temporary} ORDER BY ${key} ON CONFLICT DO NOTHING`,
  );
  const all = await session.query<{ rows: number }>(`SELECT count(*)::int4 AS rows FROM ${temporary}`);
  if (rowCount !== all.rows[0]?.rows) {
    const earlier = await session.query<Record<string, unknown>>(
      `SELECT ${merge.key.map((column) => `k.${quoteName(column)}`).join(", ")}, k.infer_batch_span FROM ${merge.keys} k
       JOIN ${temporary} s USING (${key}) WHERE k.infer_batch_span <> ${rows.span} ORDER BY 1 LIMIT 1`,
    );
    if (earlier.rows.length === 0) {
      await refuseUncommitted(session, merge.keys, merge.spans, rows.plan);
      throw new KeyTakenConcurrently(); // by the same span of another attempt
    }
    const { infer_batch_span: span, ...row } = earlier.rows[0] ?? {};
    throw duplicate(merge, row, `in span ${String(span)} and in span ${rows.span}`);
  }
  const put = await session.query(insertSql(merge, rows.columns, `${temporary} s`));
  return { put: put.rowCount ?? 0, due: rowCount ?? 0 };
}

/** Refuses a run with keys of a span that has no control row: both commit together. @throws JobError OUTPUT_DAMAGED */
async function refuseUncommitted(session: Session, keys: string, spans: string, { runId }: Plan): Promise<void> {
  const { rows } = await session.query<{ span: number | null }>({
    text: `SELECT min(infer_batch_span) AS span FROM ${keys}
      WHERE infer_batch_span NOT IN (SELECT span FROM ${spans} WHERE run_id = $1)`,
    values: [runId],
  });
  const span = rows[0]?.span ?? undefined;
  if (span !== undefined) {
    throw damagedRun(`reading ${spans}: the row of span ${span} of run ${runId} is gone, and its keys are there`, {
      hint: "the control tables were changed; restore them from a backup",
      runId,
    });
  }
}

function duplicate({ key }: Merge, row: unknown, where: string): JobError {
  return new JobError("DUPLICATE_KEY", `writing rows by key: ${shownKey(key, row)} comes ${where}`, {
    hint: "correct the input, or write output.postgres.on_duplicate: last to let the last row count; committed spans are kept",
  });
}

/**
 * Merges a span's rows so that the last one of a key counts: of the last span that has the key, independent of the order of
 * commits, and of its last row there.
 */
async function mergeLast(session: Session, merge: Merge, rows: EncodedRows): Promise<Merged> {
  const key = merge.key.map(quoteName).join(", ");
  // Rows of a table that one COPY filled are in their order.
  const merged = await session.query<{ readonly put: number; readonly due: number }>(
    `WITH s AS MATERIALIZED (SELECT DISTINCT ON (${key}) * FROM ${temporary} ORDER BY ${key}, ctid DESC),
     won AS (INSERT INTO ${merge.keys} AS k SELECT ${key}, ${rows.span} FROM s ORDER BY ${key}
       ON CONFLICT (${key}) DO UPDATE SET infer_batch_span = EXCLUDED.infer_batch_span
         WHERE k.infer_batch_span < EXCLUDED.infer_batch_span
       RETURNING ${key}),
     put AS (${insertSql(merge, rows.columns, `s JOIN won USING (${key})`)} RETURNING 1)
     SELECT (SELECT count(*)::int4 FROM put) AS put, (SELECT count(*)::int4 FROM won) AS due`,
  );
  return merged.rows[0] ?? { put: 0, due: 0 };
}
