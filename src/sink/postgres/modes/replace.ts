import { outputColumns } from "../../../binding/contract.js";
import { JobError } from "../../../util/errors.js";
import type { Plan } from "../../../plan/plan.js";
import { copyRows, noSuchTable } from "./append.js";
import {
  allConstraints,
  checkStaging,
  copyAttributes,
  dropOutdated,
  makeRowTable,
  refuseOtherShape,
  rowsOfSpans,
  stagingGone,
} from "./staging.js";
import type { Session } from "../connections.js";
import {
  copyTable,
  exchangeNames,
  exchangeNoRows,
  exchangeRows,
  freeName,
  refuseDependents,
  refuseIncoming,
  refuseReferred,
} from "./swap.js";
import { lock } from "../locks.js";
import { keptTables, recordSwap } from "../control/swaps.js";
import type { Mode, ModeTools } from "./mode.js";
import { quoteName, quoteTable, showTable, stagingTable, type TableName } from "../names.js";
import { createTable, findTable, fitColumns, type FoundTable } from "../table.js";
import { keyNotNull, requireKey, requireUnique } from "./upsert.js";

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
            ? createTable(session, staging, plan, spec.key)
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
      checkStaging(session, plan, stagingOf(plan), rowsOfSpans(tools.control), doing),
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
    unneededTables: (session) => keptTables(session, tools.control, name, spec.keep_previous),
  };
}

export async function refuseUnfit(session: Session, { name, spec }: ModeTools, target: FoundTable): Promise<void> {
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

/** Compares target and staging table as the swap does, without a lock that readers wait for. @throws JobError OUTPUT_MISMATCH */
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
  await checkStaging(session, plan, staging, rowsOfSpans(control), "finishing");
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
export const wholeTables = "SET LOCAL row_security = off";

/** Locks the target until the transaction ends, and reads its columns; undefined when there is none. */
export async function lockTarget(session: Session, { name, spec }: ModeTools): Promise<FoundTable | undefined> {
  if ((await findTable(session, name)) === undefined) {
    return undefined;
  }
  await session.query(
    `LOCK TABLE ${quoteTable(name)} IN ${spec.swap === "rename" ? "ACCESS" : "SHARE ROW"} EXCLUSIVE MODE`,
  );
  return await findTable(session, name);
}

export function writableColumns({ columns }: FoundTable): string[] {
  return columns.filter(({ computed }) => !computed).map((column) => column.name);
}
