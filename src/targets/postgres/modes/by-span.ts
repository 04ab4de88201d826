import { quoteName } from "../../../base/sql.js";
import { outputColumns } from "../../../models/binding/contract.js";
import { JobError } from "../../../base/errors.js";
import type { Plan } from "../../../run/plan/plan.js";
import { copyIn, lock, type Session } from "../connections.js";
import { damagedRun } from "../control.js";
import { type EncodedRows, KeyTakenConcurrently, type Mode, type ModeTools, type RowsNeeded } from "./mode.js";
import {
  collationName,
  createTargetTable,
  findTable,
  fitColumns,
  keysTable,
  oidOf,
  quoteTable,
  refuseChanged,
  showTable,
  pgTypeSql,
  stagedRowsTable,
  type TableName,
  type TargetColumn,
} from "../table.js";
import { checkStaging, dropOutdated, spanRowsSql, runAll, stagingGone } from "./copied-tables.js";
import { didYouMean } from "../../../base/suggest.js";

/** Mode append: rows are copied straight into the table. */
export function appendMode(tools: ModeTools): Mode {
  const { name, control } = tools;
  return {
    kind: "append",
    rowsAt: () => name,
    async prepare(session, plan, { mayCreate }) {
      const { columns, secured } = await prepareTable(session, tools, plan, mayCreate);
      if (secured) {
        throw new JobError(
          "PERMISSION",
          `checking table ${showTable(name)}: its row-level security applies to this role, and Postgres cannot COPY into such a table`,
          {
            hint: "connect as a role with BYPASSRLS, or as the owner of a table without FORCE ROW LEVEL SECURITY; or write output.postgres.mode: upsert, which inserts as the policies allow",
          },
        );
      }
      return columns;
    },
    write: (session, rows) => copyRows(session, name, rows),
    writtenRows: () => spanRowsSql(control),
  };
}

/**
 * Copies a span's rows into a table; returns how many the server took. Checks that it is still the table that the run
 * began with.
 */
export async function copyRows(session: Session, name: TableName, { chunks, columns }: EncodedRows): Promise<number> {
  const taken = await copyIn(session, copySql(quoteTable(name), columns), chunks);
  await refuseChanged(session, name, columns);
  return taken;
}

function copySql(table: string, columns: readonly TargetColumn[]): string {
  return `COPY ${table} (${columns.map((column) => quoteName(column.name)).join(", ")}) FROM STDIN (FORMAT binary)`;
}

async function appendTable(
  session: Session,
  name: TableName,
  from: TableName,
  columns: readonly TargetColumn[],
): Promise<void> {
  const names = columns.map((column) => quoteName(column.name)).join(", ");
  const due = await session.query<{ rows: number }>(`SELECT count(*)::float8 AS rows FROM ${quoteTable(from)}`);
  const put = await session.query(
    `INSERT INTO ${quoteTable(name)} (${names}) SELECT ${names} FROM ${quoteTable(from)}`,
  );
  if (put.rowCount !== due.rows[0]?.rows) {
    throw new JobError(
      "OUTPUT_REFUSED",
      `publishing to ${showTable(name)}: the table took ${put.rowCount} of ${due.rows[0]?.rows} rows`,
      { hint: "a trigger or a rule of the table keeps rows out or takes them elsewhere; nothing was changed" },
    );
  }
}

async function prepareTable(
  session: Session,
  { name, spec }: ModeTools,
  plan: Plan,
  mayCreate: boolean,
): Promise<{ readonly columns: TargetColumn[]; readonly secured: boolean }> {
  let found = await findTable(session, name);
  if (found === undefined && mayCreate && spec.create) {
    // Several attempts may start at once. The lock is the transaction's.
    await lock(session, showTable(name));
    await createTargetTable(session, name, plan, spec.key);
    found = await findTable(session, name);
  }
  if (found === undefined) {
    throw noSuchTable(name);
  }
  if (found.unlogged) {
    throw new JobError("OUTPUT_MISMATCH", `checking table ${showTable(name)}: it is UNLOGGED`, {
      hint: `a crash of the server would empty it, and leave the record that its rows are there; ALTER TABLE ${quoteTable(name)} SET LOGGED`,
    });
  }
  return { columns: fitColumns(name, found, outputColumns(plan.contract)), secured: found.secured };
}

export function noSuchTable(name: TableName): JobError {
  return new JobError("OUTPUT_MISMATCH", `checking table ${showTable(name)}: there is no such table`, {
    hint: "make it, or let output.postgres.create: true make it",
  });
}

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
      const { columns } = await prepareTable(session, tools, plan, mayCreate);
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

/** The caller has locked the run: one attempt at a time does this. */
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
  return damagedRun(
    runId,
    `checking table ${showTable(table)}: the table of the run's keys is gone`,
    "it was removed; restore it from a backup",
  );
}

interface Merge {
  readonly target: string;
  readonly keys: string;
  readonly key: readonly string[];
  /** The control table. */
  readonly spans: string;
}

/** Inserts keys in order, so that two spans with the same keys wait for each other and do not deadlock. */
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

/** No key comes twice in `from`. @throws JobError OUTPUT_REFUSED for a row that is not in the target afterwards */
async function mergeTable(
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

/** Refuses a run with keys of a span that has no control row: both commit together. */
async function refuseUncommitted(session: Session, keys: string, spans: string, { runId }: Plan): Promise<void> {
  const { rows } = await session.query<{ span: number | null }>({
    text: `SELECT min(infer_batch_span) AS span FROM ${keys}
      WHERE infer_batch_span NOT IN (SELECT span FROM ${spans} WHERE run_id = $1)`,
    values: [runId],
  });
  const span = rows[0]?.span ?? undefined;
  if (span !== undefined) {
    throw damagedRun(
      runId,
      `reading ${spans}: the row of span ${span} of run ${runId} is gone, and its keys are there`,
      "the control tables were changed; restore them from a backup",
    );
  }
}

function duplicate({ key }: Merge, row: unknown, where: string): JobError {
  return new JobError("DUPLICATE_KEY", `writing rows by key: ${shownKey(key, row)} comes ${where}`, {
    hint: "correct the input, or write output.postgres.on_duplicate: last to let the last row count; committed spans are kept",
  });
}

/** Of the rows of a key, the last one of the last span that has it counts, whatever the order of commits. */
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

/**
 * Mode append or upsert for a staged run: spans are written into a staging table of the run's own, as `modeAt` would
 * write them into the target. When the run is approved, one transaction inserts all rows into the target: readers see
 * none of them or all.
 */
export function stagedMode(tools: ModeTools, modeAt: (tools: ModeTools) => Mode): Mode {
  const { name, spec, control } = tools;
  const stagingOf = ({ runId }: Plan): TableName => stagedRowsTable(control.schema, runId);
  /** No row of a newer run is in the staging table. */
  const intoStaging = (plan: Plan): Mode =>
    modeAt({ ...tools, name: stagingOf(plan), refuseNewer: () => Promise.resolve() });
  const checkRows = async (session: Session, plan: Plan, doing: RowsNeeded): Promise<void> => {
    const due = intoStaging(plan).writtenRows?.(plan) ?? "0";
    if (doing === "writing" || doing === "judging") {
      await intoStaging(plan).checkRows?.(session, plan, doing); // a role that approves may not read these tables
    }
    await checkStaging(session, plan, stagingOf(plan), due, doing);
  };
  const finish = async (session: Session, plan: Plan): Promise<void> => {
    await checkRows(session, plan, "finishing");
    await publish(session, tools, plan, stagingOf(plan));
  };
  return {
    kind: spec.mode,
    rowsAt: (plan, { finished }) => (finished ? name : stagingOf(plan)),
    async prepare(session, plan, { mayCreate }) {
      await prepareTarget(session, tools, plan);
      if ((await findTable(session, stagingOf(plan))) === undefined) {
        if (!mayCreate) {
          throw stagingGone(stagingOf(plan), plan);
        }
        await makeStaging(session, tools, plan, stagingOf(plan));
      } else {
        await dropOutdated(session, name, stagingOf(plan), ["c"], spec.key);
      }
      return await intoStaging(plan).prepare(session, plan, { mayCreate });
    },
    write: (session, rows) => intoStaging(rows.plan).write(session, rows),
    checkOwnTables: async (session, plan) => await intoStaging(plan).checkOwnTables?.(session, plan),
    checkFinish: (session, plan) => refuseOtherTypes(session, tools, plan, stagingOf(plan)),
    checkRows,
    finish,
    // In a rehearsal, `finish` inserts no row, because the staging table is empty.
    rehearseFinish: { statements: spec.mode === "upsert" ? ["insert", "update"] : ["insert"], run: finish },
  };
}

/** Checks the target of a staged run, and makes it where it may: none of the run's rows was there before. */
async function prepareTarget(session: Session, tools: ModeTools, plan: Plan): Promise<TargetColumn[]> {
  const { name, spec } = tools;
  requireKey(spec.key, outputColumns(plan.contract));
  const { columns } = await prepareTable(session, tools, plan, true);
  if (spec.key.length > 0) {
    await requireUnique(session, name, spec.key);
  }
  return columns;
}

/** SQL for the columns $2 of table $1 with their types, and for its checks that concern no other columns. */
const definitions = `
  WITH written AS (SELECT a.*, t.typcollation FROM pg_attribute a JOIN pg_type t ON t.oid = a.atttypid
    WHERE a.attrelid = $1 AND a.attname = ANY ($2::text[]) AND NOT a.attisdropped)
  SELECT concat_ws(' ', quote_ident(attname), format_type(atttypid, atttypmod),
      CASE WHEN attcollation <> typcollation THEN 'COLLATE ' || ${collationName} END,
      CASE WHEN attnotnull THEN 'NOT NULL' END) AS sql, true AS is_column FROM written
  UNION ALL SELECT pg_get_constraintdef(oid), false FROM pg_constraint
    WHERE conrelid = $1 AND contype = 'c' AND conkey <@ (SELECT array_agg(attnum) FROM written)`;

/** The caller has locked the run. Without indexes it is filled faster; LIKE would need the right to read the target. */
async function makeStaging(session: Session, { name, spec }: ModeTools, plan: Plan, staging: TableName): Promise<void> {
  const output = outputColumns(plan.contract).map((column) => column.name);
  const { rows } = await session.query<{ sql: string; is_column: boolean }>({
    text: definitions,
    values: [await oidOf(session, name), output],
  });
  const key = spec.key.length === 0 ? [] : [`PRIMARY KEY (${spec.key.map(quoteName).join(", ")})`];
  const table = quoteTable(staging);
  const columns = rows.filter((row) => row.is_column).map(({ sql }) => sql);
  await session.query(`CREATE TABLE ${table} (${[...columns, ...key].join(", ")})`);
  await runAll(
    session,
    rows.filter((row) => !row.is_column).map(({ sql }) => ({ sql: `ALTER TABLE ${table} ADD ${sql}` })),
  );
  await session.query(
    `COMMENT ON TABLE ${table} IS 'Rows of a run that is not published yet; goes when it is published or discarded'`,
  );
}

async function publish(session: Session, tools: ModeTools, plan: Plan, staging: TableName): Promise<void> {
  const { name, spec, refuseNewer } = tools;
  await session.query("SET LOCAL statement_timeout = 0"); // all rows may take longer than the limit of a statement
  const columns = await prepareTarget(session, tools, plan);
  await (spec.mode === "upsert"
    ? mergeTable(session, tools, staging, columns)
    : appendTable(session, name, staging, columns));
  await refuseOtherTypes(session, tools, plan, staging);
  if (spec.mode === "upsert") {
    // The rows are locked now: a newer run that has put one of them has committed, and is seen; or it waits.
    await refuseNewer(session, plan);
  }
}

/**
 * Refuses a target whose columns have other types than when the run began: an assignment would convert the values.
 * Publishing calls it when it has written to the target, so that no other session can alter it.
 * @throws JobError OUTPUT_MISMATCH
 */
async function refuseOtherTypes(session: Session, { name }: ModeTools, plan: Plan, staging: TableName): Promise<void> {
  const output = outputColumns(plan.contract);
  const typesOf = async (table: TableName): Promise<readonly TargetColumn[]> => {
    const found = await findTable(session, table);
    return found === undefined ? [] : fitColumns(table, found, output);
  };
  const then = await typesOf(staging);
  for (const [index, { name: column, type }] of (await typesOf(name)).entries()) {
    const { notNull: _, ...now } = type;
    const { notNull: __, ...before } = then[index]?.type ?? type;
    if (JSON.stringify(now) !== JSON.stringify(before)) {
      throw new JobError(
        "OUTPUT_MISMATCH",
        `publishing to ${showTable(name)}: column ${column} was ${pgTypeSql(before)} when the run began, and is ${pgTypeSql(now)}`,
        { hint: "change it back, and run the same command again" },
      );
    }
  }
}
