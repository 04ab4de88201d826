import { quoteName } from "../../../base/sql.js";
import { outputColumns } from "../../../models/binding/contract.js";
import { JobError } from "../../../base/errors.js";
import type { Plan, RunId } from "../../../run/plan/plan.js";
import { copyRows, keyNotNull, noSuchTable, onConflict, requireKey, requireUnique } from "./by-span.js";
import {
  createTargetTable,
  derivedName,
  findTable,
  fitColumns,
  type FoundTable,
  oidOf,
  quoteTable,
  shortHash,
  showTable,
  stagingTable,
  type TableName,
} from "../table.js";
import {
  allConstraints,
  checkStaging,
  copyAttributes,
  dropOutdated,
  indexShape,
  makeRowTable,
  refuseOtherShape,
  spanRowsSql,
  runAll,
  stagingGone,
} from "./copied-tables.js";
import { lock, type Session } from "../connections.js";
import { type Control, lockRuns } from "../control.js";
import { previousTables, readSwaps, recordSwap, type Swapped, type Undoable } from "../swaps.js";
import type { Mode, ModeTools } from "./mode.js";
import type { RolledBack, VisibleRun } from "../../../run/lifecycle/published-run.js";
import { isPruned } from "../past-runs.js";
import { splitTable } from "../../../job/jobfile/output-spec.js";

/**
 * Mode replace: rows are copied into a staging table like the target. When every span is committed, one short
 * transaction swaps it in: readers see the old predictions or the new ones.
 */
export function replaceMode(tools: ModeTools): Mode {
  const { name, spec } = tools;
  const stagingOf = ({ runId }: Plan): TableName => stagingTable(name, runId);
  return {
    kind: "replace",
    rowsAt: (plan, { finished }) => (finished ? name : stagingOf(plan)),
    async prepare(session, plan, { mayCreate }) {
      const output = outputColumns(plan.contract);
      requireKey(spec.key, output);
      const target = await findTable(session, name);
      if (target !== undefined) {
        fitColumns(name, target, output);
        await refuseUnfit(session, tools, target);
      } else if (!spec.create) {
        throw noSuchTable(name);
      }
      const staging = stagingOf(plan);
      let found = await findTable(session, staging);
      if (found !== undefined && target !== undefined) {
        await dropOutdated(session, name, staging, allConstraints, []);
        found = await findTable(session, staging);
      }
      if (found === undefined && mayCreate) {
        await lock(session, showTable(staging));
        found = await findTable(session, staging);
        if (found === undefined) {
          await (target === undefined
            ? createTargetTable(session, staging, plan, spec.key)
            : makeRowTable(session, name, staging));
          await (target !== undefined && spec.swap === "rename" ? copyAttributes(session, name, staging) : undefined);
          found = await findTable(session, staging);
        }
      }
      if (found === undefined) {
        throw stagingGone(staging, plan);
      }
      return keyNotNull(fitColumns(staging, found, output), spec.key);
    },
    write: (session, rows) => copyRows(session, stagingOf(rows.plan), rows),
    checkFinish: (session, plan) => checkSwap(session, tools, stagingOf(plan)),
    checkRows: (session, plan, doing) =>
      checkStaging(session, plan, stagingOf(plan), spanRowsSql(tools.control), doing),
    finish: (session, plan) => swapIn(session, tools, plan, stagingOf(plan)),
    rehearseFinish:
      spec.swap === "rename"
        ? undefined
        : {
            statements: ["insert", "update", "delete"],
            async run(session, plan) {
              if ((await findTable(session, name)) !== undefined) {
                await session.query(wholeTables);
                const columns = outputColumns(plan.contract).map((column) => column.name);
                await exchangeNoRows(session, { target: name, from: stagingOf(plan), key: spec.key, columns });
              }
            },
          },
    unneededTables: async (session) =>
      (await previousTables(session, tools.control, name))
        .slice(spec.keep_previous)
        .map((table) => splitTable(table.name)),
  };
}

async function refuseUnfit(session: Session, { name, spec }: ModeTools, target: FoundTable): Promise<void> {
  if (spec.swap === "delete_insert") {
    await (spec.key.length > 0 ? requireUnique(session, name, spec.key) : refuseReferred(session, name, target.oid));
    return;
  }
  if (target.kind !== "r") {
    throw new JobError("OUTPUT_MISMATCH", `checking table ${showTable(name)}: it is partitioned`, {
      hint: "write output.postgres.swap: delete_insert, which exchanges the rows and keeps the table",
    });
  }
  await refuseDependents(session, name, target.oid);
}

/** Compares as the swap does, without a lock that readers wait for. */
async function checkSwap(session: Session, { name, spec }: ModeTools, staging: TableName): Promise<void> {
  if (spec.swap !== "rename") {
    return;
  }
  if ((await findTable(session, name)) !== undefined) {
    await session.query("SET LOCAL statement_timeout = 0"); // to check a new foreign key takes its time
    await copyAttributes(session, name, staging);
    await refuseOtherShape(session, name, staging);
  }
  await refuseIncoming(session, staging);
}

async function swapIn(session: Session, tools: ModeTools, plan: Plan, staging: TableName): Promise<void> {
  const { name, spec, control, refuseNewer } = tools;
  // The rows were committed span by span; checking all of them may take longer than the limit of a statement.
  await session.query("SET LOCAL statement_timeout = 0");
  await session.query(wholeTables);
  await checkStaging(session, plan, staging, spanRowsSql(control), "finishing");
  await session.query(`ANALYZE ${quoteTable(staging)}`);
  if (spec.swap === "rename" && (await findTable(session, name)) !== undefined) {
    await copyAttributes(session, name, staging); // to check a new foreign key takes its time
  }
  // Also where no table exists that could be locked: finishers of several runs publish one after the other.
  await lock(session, `swap ${showTable(name)}`);
  await refuseNewer(session, plan);
  if (spec.swap === "rename") {
    // Before the target: its readers need not wait for a session that reads the staging table.
    await session.query(`LOCK TABLE ${quoteTable(staging)} IN ACCESS EXCLUSIVE MODE`);
    await refuseIncoming(session, staging);
  }
  const target = await lockTarget(session, tools);
  if (target === undefined) {
    await session.query(`ALTER TABLE ${quoteTable(staging)} RENAME TO ${quoteName(name.table)}`);
    await recordSwap(session, control, name, { run_id: plan.runId, action: "replace", kept: null });
    return;
  }
  const kept = await freeName(session, name, "__before", plan.runId);
  const output = outputColumns(plan.contract);
  if (spec.swap === "rename") {
    await refuseUnfit(session, tools, target);
    await copyAttributes(session, name, staging);
    await refuseOtherShape(session, name, staging);
    await exchangeNames(session, { target: name, incoming: staging, kept });
  } else {
    fitColumns(name, target, output);
    await refuseUnfit(session, tools, target);
    const writable = writableColumns(target);
    if (spec.keep_previous > 0) {
      await copyTable(session, name, kept, writable);
    }
    const columns = output.map((column) => column.name);
    // The staging table is dropped after the transaction: a view of it must not keep the run from being published.
    await exchangeRows(session, { target: name, from: staging, key: spec.key, columns });
  }
  const isKept = spec.swap === "rename" || spec.keep_previous > 0;
  await recordSwap(session, control, name, { run_id: plan.runId, action: "replace", kept: isKept ? kept.table : null });
}

/** A policy that hides rows from this role would keep them in the table. */
const wholeTables = "SET LOCAL row_security = off";

async function lockTarget(session: Session, { name, spec }: ModeTools): Promise<FoundTable | undefined> {
  if ((await findTable(session, name)) === undefined) {
    return undefined;
  }
  await session.query(
    `LOCK TABLE ${quoteTable(name)} IN ${spec.swap === "rename" ? "ACCESS" : "SHARE ROW"} EXCLUSIVE MODE`,
  );
  return await findTable(session, name);
}

function writableColumns({ columns }: FoundTable): string[] {
  return columns.filter(({ computed }) => !computed).map((column) => column.name);
}

/**
 * Swaps back the table that the last `replace` replaced which is not rolled back yet, and keeps the rows of that run in
 * a table. Safe to repeat: where the answer to a commit was lost, or another command was first, nothing else is undone.
 * @param due the run that is to be undone: the last one that was not, when the command began
 * @throws JobError USAGE when there is nothing to restore; OUTPUT_NEWER when rows of other runs would go, too;
 * ALREADY_DECIDED when the rows are those of a pruned run
 */
export async function rollBack(session: Session, tools: ModeTools, due: string | undefined): Promise<RolledBack> {
  const { name, control } = tools;
  await session.query("SET LOCAL statement_timeout = 0");
  await session.query(wholeTables);
  // `erase` takes this lock, too, so it never sees tables while they are being renamed.
  await lock(session, `swap ${showTable(name)}`);
  const { replacement, last } = await readSwaps(session, control, name);
  if (due !== undefined && replacement?.runId !== due) {
    return await rolledBackMeanwhile(session, tools, due, last);
  }
  if (replacement?.back !== undefined) {
    // A concurrent prune either commits first and is seen below, or waits.
    await lockRuns(session, replacement.back, { shared: true });
  }
  const target = await lockTarget(session, tools);
  if (target === undefined) {
    throw new JobError("USAGE", `rolling back ${showTable(name)}: there is no such table`);
  }
  const { runId, back, before } = await requireReplaced(session, name, target, { replacement, last });
  await refuseLaterRows(session, tools, runId, before);
  if (back !== undefined && (await isPruned(session, control, back))) {
    throw new JobError(
      "ALREADY_DECIDED",
      `rolling back ${showTable(name)}: ${showTable(before)} has the rows of run ${back}, which is pruned`, // `prune` could not drop it
      {
        hint: `nothing was changed; the next infer-batch prune drops that table. To have these predictions again, score them with run --new-run`,
      },
    );
  }
  const undone = await freeName(session, name, "__undone", runId);
  await swapBack(session, tools, { target, before, undone });
  await recordSwap(session, control, name, { run_id: runId, action: "rollback", kept: undone.table });
  return await rolledBack(session, tools, runId, undone.table);
}

async function rolledBack(session: Session, tools: ModeTools, runId: RunId, kept: string): Promise<RolledBack> {
  const { name, control } = tools;
  const { current } = await readSwaps(session, control, name); // undefined: the rows are of no run
  return {
    kept: showTable({ schema: name.schema, table: kept }),
    undone: await runWithParams(session, control, runId),
    restored: current && (await runWithParams(session, control, current)),
  };
}

/** @throws JobError OUTPUT_NEWER if the run is not rolled back, but replaced */
async function rolledBackMeanwhile(
  session: Session,
  tools: ModeTools,
  due: string,
  last: Swapped["last"],
): Promise<RolledBack> {
  if (last?.action !== "rollback" || last.run_id !== due || last.kept === null) {
    throw new JobError(
      "OUTPUT_NEWER",
      `rolling back run ${due}: another command has replaced ${showTable(tools.name)} meanwhile`,
      {
        hint: "nothing was changed; infer-batch status shows whose rows readers have",
      },
    );
  }
  return await rolledBack(session, tools, last.run_id, last.kept);
}

async function requireReplaced(
  session: Session,
  name: TableName,
  target: FoundTable,
  { replacement, last }: Pick<Swapped, "replacement" | "last">,
): Promise<Undoable & { readonly before: TableName }> {
  const doing = `rolling back ${showTable(name)}`;
  if (replacement === undefined || last === undefined) {
    throw new JobError(
      "USAGE",
      `${doing}: ${last === undefined ? "no run has replaced it" : "all of its replacements were rolled back already"}`,
    );
  }
  const { kept } = replacement;
  const before = kept === null ? undefined : { schema: name.schema, table: kept };
  if (before === undefined || (await findTable(session, before)) === undefined) {
    throw new JobError(
      "USAGE",
      `${doing}: no table was there before run ${replacement.runId} replaced it, or it is not kept any more`,
      { hint: "output.postgres.keep_previous sets how many tables are kept from now on" },
    );
  }
  if (last.table_oid !== target.oid) {
    throw new JobError(
      "USAGE",
      `${doing}: it is not the table that ${last.action === "replace" ? "" : "the rollback of "}run ${last.run_id} put there`,
      {
        hint: `the table was replaced since then; the table from before the run is ${showTable(before)}`,
      },
    );
  }
  return { ...replacement, before };
}

async function swapBack(
  session: Session,
  tools: ModeTools,
  { target, before, undone }: { readonly target: FoundTable; readonly before: TableName; readonly undone: TableName },
): Promise<void> {
  const { name, spec } = tools;
  if (spec.swap === "rename") {
    await refuseDependents(session, name, target.oid);
    await copyAttributes(session, name, before);
    await exchangeNames(session, { target: name, incoming: before, kept: undone });
  } else {
    await refuseUnfit(session, tools, target);
    const columns = writableColumns(target);
    await copyTable(session, name, undone, columns);
    const fixed = target.columns.filter(({ generated }) => generated).map((column) => column.name);
    await exchangeRows(session, { target: name, from: before, key: spec.key, columns, fixed });
    await session.query(`DROP TABLE ${quoteTable(before)}`);
  }
}

async function runWithParams(session: Session, { table }: Control, runId: RunId): Promise<VisibleRun> {
  const { rows } = await session.query<Pick<VisibleRun, "params">>({
    text: `SELECT params FROM ${table("runs")} WHERE run_id = $1`,
    values: [runId],
  });
  return { runId, params: rows[0]?.params ?? null };
}

const namedLimit = 5;

/**
 * A rollback would remove rows that other runs have put into the table since, too. The caller holds a lock that writers
 * of the table wait for. `before`: the table that keeps what was replaced.
 */
async function refuseLaterRows(
  session: Session,
  { control: { table, where }, name }: ModeTools,
  replacedBy: RunId,
  before: TableName,
): Promise<void> {
  const spans = `FROM ${table("spans")} s WHERE s.run_id = r.run_id AND s.rows > 0`;
  const hasSpans = `EXISTS (SELECT ${spans} AND s.committed_at >
    (SELECT max(at) FROM ${table("swaps")} WHERE target = $1 AND run_id = $2 AND action = 'replace'))`;
  // Spans of staged runs are put there together.
  const isPublished = `EXISTS (SELECT ${spans}) AND EXISTS (SELECT FROM ${table("finishes")} f WHERE f.run_id = r.run_id
    AND f.publication > (SELECT coalesce(max(publication), 0) FROM ${table("finishes")} WHERE run_id = $2))`;
  const { rows: runs } = await session.query<{ readonly run_id: RunId; readonly published: boolean }>({
    text: `SELECT run_id, NOT (${where.isUnfinished}) AS published FROM ${table("runs")} r
      WHERE r.target = $1 AND r.run_id <> $2 AND r.mode <> 'replace'
        AND CASE WHEN r.staged THEN ${isPublished} ELSE ${hasSpans} END
        AND NOT (${where.isUnfinished} AND ${where.hasLater})
      ORDER BY planned_at`,
    values: [showTable(name), replacedBy],
  });
  if (runs.length === 0) {
    return;
  }
  const shown = runs
    .slice(0, namedLimit)
    .map(({ run_id: runId, published }) => `${runId}${published ? "" : " (not finished)"}`);
  const more = runs.length > namedLimit ? ` and ${runs.length - namedLimit} more` : "";
  const have = runs.length === 1 ? `run ${shown.join("")} has` : `runs ${shown.join(", ")}${more} have`;
  throw new JobError(
    "OUTPUT_NEWER",
    `rolling back ${showTable(name)}: ${have} put rows into it since run ${replacedBy} replaced it, and a rollback would take them out`,
    {
      hint: `nothing was changed; the rows from before run ${replacedBy} are in ${showTable(before)}: copy the rows that readers need from there`,
    },
  );
}

async function freeName(session: Session, target: TableName, suffix: string, runId: string): Promise<TableName> {
  for (let n = 1; ; n += 1) {
    const name = derivedName(target, `${suffix}_${shortHash(`${showTable(target)} ${runId} ${n}`)}`);
    if ((await findTable(session, name)) === undefined) {
      return name;
    }
  }
}

/**
 * Indexes, their constraints and owned sequences exchange names, too. The caller holds the locks. Indexes are matched
 * by their shape: after a REINDEX CONCURRENTLY their OIDs are in another order.
 */
async function exchangeNames(
  session: Session,
  { target, incoming, kept }: { target: TableName; incoming: TableName; kept: TableName },
): Promise<void> {
  const [old, fresh] = [await oidOf(session, target), await oidOf(session, incoming)];
  const names = await session.query<{ sql: string }>({
    text: `WITH i AS (SELECT indrelid, indexrelid::regclass AS index, relname, shape, row_number() OVER (PARTITION BY indrelid, shape ORDER BY indexrelid) AS n
        FROM (SELECT *, ${indexShape} AS shape FROM pg_index i WHERE indrelid IN ($1, $2)) AS s JOIN pg_class ON oid = indexrelid),
      pairs AS (SELECT o.n, o.index AS old, o.relname AS name, f.index AS fresh, f.relname AS other,
          left(o.relname, 12) || '_' || substr(md5($3::text || o.relname), 1, 12) AS parked
        FROM i o JOIN i f ON o.shape = f.shape AND o.n = f.n AND o.indrelid = $1 AND f.indrelid = $2)
      SELECT 1 AS step, n, format('ALTER INDEX %s RENAME TO %I', old, parked) AS sql FROM pairs
      UNION ALL SELECT 2, n, format('ALTER INDEX %s RENAME TO %I', fresh, name) FROM pairs
      UNION ALL SELECT 3, 0, format('ALTER SEQUENCE %s OWNED BY %s.%I', s.oid::regclass, $2::regclass, a.attname)
        FROM pg_depend d JOIN pg_class s ON s.oid = d.objid AND s.relkind = 'S' AND d.deptype = 'a'
        JOIN pg_attribute a ON a.attrelid = $1 AND a.attnum = d.refobjsubid WHERE d.refobjid = $1
      ORDER BY 1, 2`,
    values: [old, fresh, kept.table],
  });
  await runAll(session, names.rows);
  await session.query(`ALTER TABLE ${quoteTable(target)} RENAME TO ${quoteName(kept.table)}`);
  await session.query(`ALTER TABLE ${quoteTable(incoming)} RENAME TO ${quoteName(target.table)}`);
}

interface Exchange {
  readonly target: TableName;
  readonly from: TableName;
  readonly key: readonly string[];
  readonly columns: readonly string[];
  /** Columns that can be inserted but not updated. */
  readonly fixed?: readonly string[];
}

/**
 * Exchanges the rows of the target for those of another table, in the session's transaction: readers see the old ones
 * until it commits. With a key, rows that stay keep their place, so that foreign keys hold.
 */
async function exchangeRows(session: Session, exchange: Exchange): Promise<void> {
  const { target, from } = exchange;
  await session.query("SET CONSTRAINTS ALL DEFERRED");
  for (const sql of exchangeSql(exchange)) {
    await session.query(sql);
  }
  const { rows } = await session.query<{ there: string; due: string }>(
    `SELECT (SELECT count(*) FROM ${quoteTable(target)}) AS there, (SELECT count(*) FROM ${quoteTable(from)}) AS due`,
  );
  if (rows[0]?.there !== rows[0]?.due) {
    throw new JobError(
      "OUTPUT_REFUSED",
      `exchanging the rows of ${showTable(target)}: it holds ${rows[0]?.there} rows afterwards instead of ${rows[0]?.due}`,
      { hint: "a trigger or a rule of the table keeps rows out, or in; nothing was changed" },
    );
  }
}

/** Carries them out for no row, so that the server checks the rights that they need. */
async function exchangeNoRows(session: Session, exchange: Exchange): Promise<void> {
  for (const sql of [...exchangeSql(exchange, "false"), `SELECT FROM ${quoteTable(exchange.target)} WHERE false`]) {
    await session.query(sql);
  }
}

/** SQL that deletes rows of the target, then inserts or updates the others. @param which the rows that are concerned */
function exchangeSql({ target, from, key, columns, fixed = [] }: Exchange, which = "true"): string[] {
  const names = columns.map(quoteName);
  const keys = key.map(quoteName);
  const same = keys.map((column) => `s.${column} = t.${column}`).join(" AND ");
  const gone = keys.length === 0 ? "" : ` AND NOT EXISTS (SELECT FROM ${quoteTable(from)} s WHERE ${same})`;
  const updated = names.filter((_, index) => !fixed.includes(columns[index] ?? ""));
  const conflict = keys.length === 0 ? "" : ` ${onConflict(keys, updated)}`;
  return [
    `DELETE FROM ${quoteTable(target)} t WHERE ${which}${gone}`,
    `INSERT INTO ${quoteTable(target)} (${names.join(", ")}) OVERRIDING SYSTEM VALUE
     SELECT ${names.join(", ")} FROM ${quoteTable(from)} WHERE ${which}${conflict}`,
  ];
}

async function copyTable(session: Session, from: TableName, to: TableName, columns: readonly string[]): Promise<void> {
  await makeRowTable(session, from, to);
  const names = columns.map(quoteName).join(", ");
  await session.query(
    `INSERT INTO ${quoteTable(to)} (${names}) OVERRIDING SYSTEM VALUE SELECT ${names} FROM ${quoteTable(from)}`,
  );
}

/**
 * SQL for the objects that would stay with the old table, or be lost, when a table is swapped by renaming. Views and
 * foreign keys follow a table's OID, not its name, and so do functions and columns that use its row type; triggers and
 * policies belong to one table.
 */
const dependents = `
  SELECT 'view ' || v.oid::regclass AS shown FROM pg_depend d JOIN pg_rewrite r ON r.oid = d.objid
    JOIN pg_class v ON v.oid = r.ev_class
    WHERE d.classid = 'pg_rewrite'::regclass AND d.refclassid = 'pg_class'::regclass AND d.refobjid = $1 AND v.oid <> $1
  UNION SELECT format('foreign key %s of %s', conname, conrelid::regclass) FROM pg_constraint
    WHERE contype = 'f' AND confrelid = $1
  UNION SELECT 'function ' || objid::regprocedure FROM pg_depend
    WHERE classid = 'pg_proc'::regclass AND refclassid = 'pg_class'::regclass AND refobjid = $1
  UNION SELECT pg_describe_object(d.classid, d.objid, d.objsubid) FROM pg_class c JOIN pg_type t ON t.oid = c.reltype
    JOIN pg_depend d ON d.refclassid = 'pg_type'::regclass AND d.refobjid IN (t.oid, t.typarray) AND d.deptype = 'n'
    WHERE c.oid = $1
  UNION SELECT 'row level security' FROM pg_class WHERE oid = $1 AND (relrowsecurity OR relforcerowsecurity)
  UNION SELECT 'replica identity by an index' FROM pg_class WHERE oid = $1 AND relreplident = 'i'
  UNION SELECT 'trigger ' || tgname FROM pg_trigger WHERE tgrelid = $1 AND NOT tgisinternal
  UNION SELECT 'policy ' || polname FROM pg_policy WHERE polrelid = $1
  UNION SELECT 'rule ' || rulename FROM pg_rewrite WHERE ev_class = $1 AND rulename <> '_RETURN'
  UNION SELECT 'publication ' || pubname FROM pg_publication_rel JOIN pg_publication p ON p.oid = prpubid WHERE prrelid = $1
  UNION SELECT 'child table ' || inhrelid::regclass FROM pg_inherits WHERE inhparent = $1
  UNION SELECT 'parent table ' || inhparent::regclass FROM pg_inherits WHERE inhrelid = $1
  ORDER BY 1`;

async function refuseDependents(
  session: Session,
  name: TableName,
  oid: number,
  hint = "write output.postgres.swap: delete_insert, which exchanges the rows and keeps the table",
): Promise<void> {
  const { rows } = await session.query<{ shown: string }>({ text: dependents, values: [oid] });
  if (rows.length > 0) {
    throw new JobError(
      "OUTPUT_MISMATCH",
      `checking table ${showTable(name)}: it cannot be swapped by renaming, since these belong to it: ${rows.map(({ shown }) => shown).join(", ")}`,
      { hint },
    );
  }
}

async function refuseIncoming(session: Session, staging: TableName): Promise<void> {
  const oid = await oidOf(session, staging);
  if (oid !== undefined) {
    const hint =
      "drop them, and run the same command again: they would belong to the target, which no later run could swap";
    await refuseDependents(session, staging, oid, hint);
  }
}

/**
 * Without a key, all rows are deleted first: rows that refer to them would be deleted, too (CASCADE), lose their
 * reference (SET NULL), or prevent the deletion.
 */
async function refuseReferred(session: Session, name: TableName, oid: number): Promise<void> {
  const { rows } = await session.query<{ shown: string }>({
    text: `SELECT format('%s of %s', conname, conrelid::regclass) AS shown FROM pg_constraint
      WHERE contype = 'f' AND confrelid = $1 AND conparentid = 0 ORDER BY 1`,
    values: [oid],
  });
  if (rows.length > 0) {
    throw new JobError(
      "OUTPUT_MISMATCH",
      `checking table ${showTable(name)}: foreign keys refer to its rows: ${rows.map(({ shown }) => shown).join(", ")}`,
      { hint: "write output.postgres.key: rows whose key stays then keep their place" },
    );
  }
}
