import { assertNever, JobError } from "../../util/errors.js";
import type { RolledBack } from "../../publish/published-run.js";
import { requireKept } from "../../publish/pruned-run.js";
import { numberedRunId } from "../../plan/identity.js";
import type { Plan } from "../../plan/plan.js";
import { type PostgresOutputSpec, splitTable } from "../../spec/output-spec.js";
import type { Sink, StoredPlan, TargetTable } from "../port.js";
import { appendMode, stagedMode, upsertMode } from "./modes/by-span.js";
import type { ConnectionSettings } from "./connect.js";
import { lock, openConnections, retrying, type Session, transact } from "./connections.js";
import {
  finishSeconds,
  type Mode,
  type ModeTools,
  retried,
  retriedRead,
  retriedWrite,
  type RunTools,
} from "./modes/mode.js";
import { addVersion, controlOf, createDocument, hasControlTables, readDocument, targetOf } from "./control.js";
import { openSpilledCopy, type RowSpool } from "./copy-binary.js";
import { showTable } from "./table.js";
import { findNewer, hintingAtRun, newerRunCheck } from "./newer-runs.js";
import { replaceMode, rollBack } from "./modes/replace.js";
import { onceEach } from "../../util/once-each.js";
import type { RetryTools } from "../../util/retry.js";
import { leftTables, pastRuns, pruneRuns } from "./past-runs.js";
import { createRun, rehearse, rehearsePlanned } from "./new-run.js";
import { readPublishedRows, readTable } from "./read-rows.js";
import { eraseRows } from "./erase-rows.js";
import { dropTables } from "./own-tables.js";
import { openRun } from "./run.js";
import type { Ledger } from "../ledger.js";
import { previousTables, readSwaps } from "./swaps.js";

export { connectionOf } from "./connect.js";

interface PostgresSinkOptions {
  readonly spec: PostgresOutputSpec;
  readonly settings: ConnectionSettings;
  readonly retry: RetryTools;
  /** Names this attempt among all attempts on all machines. */
  readonly writer: string;
  /** Lets a new run add its rows to those of earlier runs, in mode append. */
  readonly allowDuplicates: boolean;
  /** Lets a run publish over the rows of a newer run. */
  readonly allowOlder: boolean;
  /** Name and version of this program. */
  readonly program: string;
  /** Takes rows of incomplete spans; closed with the sink. */
  readonly spool: RowSpool;
}

export interface PostgresSink extends Sink {
  readonly table: TargetTable;
}

/** Opens a table as a target. A span's rows and its row in the control table commit in one transaction. */
export function openPostgresSink(options: PostgresSinkOptions): PostgresSink {
  const { settings, spool } = options;
  const tools = toolsOf(options);
  const { control, connections, planTarget, target } = tools;
  const doing = `reading ${target}`;
  return {
    target,
    planTarget,
    ledger: openLedger(tools),
    expect() {},
    find: (base, number) =>
      retriedRead<StoredPlan | undefined>(
        tools,
        `looking for run ${base} at ${settings.server}`,
        undefined,
        (session) =>
          number === undefined
            ? control.latestPlan(session, base)
            : control.readPlan(session, numberedRunId(base, number)),
      ),
    create: (plan, insteadOf) =>
      retriedWrite(tools, `preparing ${target}`, (session) => createRun(session, tools, plan, insteadOf)),
    rehearse: (plan, { isPlanned, command }) =>
      retrying(`checking ${target}`, tools.retry, () =>
        hintingAtRun({ command, isPlanned }, () => (isPlanned ? rehearsePlanned(tools, plan) : rehearse(tools, plan))),
      ),
    open: (stored, how) => retrying(`reading ${target}`, tools.retry, () => openRun(tools, requireKept(stored), how)),
    ...pastRuns(tools),
    readPublished: (request) => readPublishedRows(tools, request),
    prune: (request) => pruneRuns(tools, request),
    table: {
      read: (table, key) => readTable(tools, table, key),
      newer: (plan) => retriedRead(tools, doing, undefined, (session) => findNewer(session, control, plan)),
      erase: (request) => eraseRows(tools, request),
      previous: () => retriedRead(tools, doing, [], (session) => previousTables(session, control, tools.name)),
      async drop(table) {
        await dropTables(tools, () => Promise.resolve([splitTable(table)]));
        return (await leftTables(tools, [table])).size === 0;
      },
      rollBack: () => rollBackTarget(tools),
    },
    async [Symbol.asyncDispose]() {
      await connections[Symbol.asyncDispose]();
      await spool[Symbol.asyncDispose]();
    },
  };
}

function toolsOf({ settings, ...options }: PostgresSinkOptions): RunTools {
  const { spec, retry, allowOlder, spool } = options;
  const { warn } = retry;
  const name = splitTable(spec.table);
  const control = controlOf(spec.control_schema);
  const refuseNewer = newerRunCheck(control, name, allowOlder, warn);
  const modeTools = { name, spec, control, refuseNewer };
  return {
    ...options,
    ...modeTools,
    connections: openConnections(settings, spec.timeouts),
    timeouts: spec.timeouts,
    warn,
    warnOnce: onceEach(warn),
    spilled: openSpilledCopy(spool),
    modeOf: (plan) => modeOf(modeTools, plan),
    target: `${showTable(name)} at ${settings.server}`,
    planTarget: targetOf(spec, settings),
  };
}

/** Rolls back the last replacement. @throws JobError USAGE where there is none */
async function rollBackTarget(tools: RunTools): Promise<RolledBack> {
  const { spec, control, target, name } = tools;
  const doing = `rolling back ${target}`;
  if (spec.mode !== "replace") {
    throw new JobError("USAGE", `${doing}: output.postgres.mode is ${spec.mode}`, {
      hint: "only what mode replace swapped in can be swapped back",
    });
  }
  const due = await retriedRead(
    tools,
    doing,
    undefined,
    async (session) => (await readSwaps(session, control, name)).replacement?.runId,
  );
  const work = async (session: Session): Promise<RolledBack> => {
    if (!(await hasControlTables(session, control.schema))) {
      throw new JobError("USAGE", `${doing}: no run has replaced it`);
    }
    return await rollBack(session, tools, due);
  };
  try {
    return await retried(tools, doing, work, finishSeconds);
  } catch (error) {
    if (!(error instanceof JobError) || error.code !== "DATABASE") {
      throw error;
    }
    // If only the answer was lost, the same command would undo another run.
    throw new JobError("DATABASE", error.message, {
      hint: "the rollback may have been made all the same: infer-batch status shows whose rows readers have. Roll back again only if they are still those of the later run",
      cause: error,
    });
  }
}

function modeOf(tools: ModeTools, { staged }: Plan): Mode {
  switch (tools.spec.mode) {
    case "append":
      return staged ? stagedMode(tools, appendMode) : appendMode(tools);
    case "upsert":
      return staged ? stagedMode(tools, upsertMode) : upsertMode(tools);
    case "replace":
      return replaceMode(tools);
    default:
      return assertNever(tools.spec.mode);
  }
}

/** Opens the documents of runs: rows, of which a role that may only insert can add versions, and change none. */
function openLedger(tools: RunTools): Ledger {
  const { control, target } = tools;
  return {
    read: (runId, kind) =>
      retriedRead(tools, `reading ${target}`, undefined, (session) => readDocument(session, control, runId, kind)),
    // A note on a run that is not planned yet may be the first row there.
    create: (runId, kind, value) =>
      retriedWrite(tools, `writing to ${target}`, (session) => createDocument(session, tools, runId, kind, value)),
    change: (runId, kind, next) =>
      transact(tools, async (session) => {
        await lock(session, `${kind.name} ${runId}`);
        const value = next(await readDocument(session, control, runId, kind));
        if (value !== undefined) {
          await addVersion(session, tools, runId, kind, value);
        }
      }),
  };
}
