import { JobError, assertNever } from "../../base/errors.js";
import type { PublishedRun, RolledBack } from "../../run/lifecycle/published-run.js";
import { type PreviousTable, requireKept } from "../../run/lifecycle/pruned-run.js";
import { numberedRunId } from "../../run/plan/identity.js";
import type { Plan } from "../../run/plan/plan.js";
import { splitTable } from "../../job/jobfile/output-spec.js";
import type { Sink, StoredPlan, TargetTable } from "../target.js";
import { appendMode, stagedMode, upsertMode } from "./modes/by-span.js";
import { type Session, lock, openConnections, retrying, transact } from "./connections.js";
import {
  type Mode,
  type ModeTools,
  type PostgresSinkOptions,
  type TableTools,
  finishSeconds,
  retried,
  retriedRead,
  retriedWrite,
} from "./modes/mode.js";
import {
  addVersion,
  controlOf,
  createDocument,
  hasControlTables,
  latestPlan,
  selectDocument,
  selectPlan,
  targetOf,
} from "./control.js";
import { openSpilledCopy } from "./copy-binary.js";
import { showTable } from "./table.js";
import { newerRunCheck } from "./newer-runs.js";
import { replaceMode, rollBack } from "./modes/replace.js";
import { onceEach } from "../../base/once-each.js";
import { pruneTables, publishedProfile, publishedRuns, readHistory } from "./past-runs.js";
import { createRun, rehearseNewRun, rehearsePlanned } from "./new-run.js";
import { openTableRows } from "./look-up.js";
import { readPublishedRows, readTable } from "./read-rows.js";
import { eraseFromTables } from "./erase-rows.js";
import { createOfRun, openRun } from "./run.js";
import type { Ledger } from "../../stores/ledger.js";
import { previousTables, readSwaps } from "./swaps.js";
import { prunePrevious } from "./own-tables.js";
import type { RecordedRun } from "../../run/lifecycle/recorded-run.js";

export { connectionOf } from "./connect.js";

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
    makePlace: () => Promise.resolve(),
    find: (base, number) =>
      retriedRead<StoredPlan | undefined>(
        tools,
        `looking for run ${base} at ${settings.server}`,
        undefined,
        (session) =>
          number === undefined
            ? latestPlan(session, control, base)
            : selectPlan(session, control, numberedRunId(base, number)),
      ),
    create: (plan, insteadOf) =>
      retriedWrite(tools, `preparing ${target}`, (session) => createRun(session, tools, plan, insteadOf)),
    rehearse: (plan, isPlanned) =>
      retrying(`checking ${target}`, tools.retry, () => (isPlanned ? rehearsePlanned : rehearseNewRun)(tools, plan)),
    open: (stored, how) => retrying(`reading ${target}`, tools.retry, () => openRun(tools, requireKept(stored), how)),
    published: () => retriedRead<readonly PublishedRun[]>(tools, doing, [], (session) => publishedRuns(session, tools)),
    readProfile: (pinned) => retried(tools, doing, (session) => publishedProfile(session, control, pinned)),
    history: (request) =>
      retriedRead<readonly RecordedRun[]>(
        tools,
        `reading the runs of ${request.job} at ${settings.server}`,
        [],
        (session) => readHistory(session, tools, request),
      ),
    readPublished: (request) => readPublishedRows(tools, request),
    prune: (request) => pruneTables(tools, request),
    openKeyedRows: (plan, key) => openTableRows(tools, plan, key),
    table: {
      read: (table, key) => readTable(tools, table, key),
      erase: (request) => eraseFromTables(tools, request),
      async prunePrevious(choose, dryRun) {
        const all = await retriedRead<readonly PreviousTable[]>(tools, doing, [], (session) =>
          previousTables(session, control, tools.name),
        );
        return await prunePrevious(tools, choose(all), dryRun);
      },
      rollBack: () => rollBackTarget(tools),
    },
    async [Symbol.asyncDispose]() {
      await connections[Symbol.asyncDispose]();
      await spool[Symbol.asyncDispose]();
    },
  };
}

function toolsOf(options: PostgresSinkOptions): TableTools {
  const { settings, spec, retry, allowOlder, spool } = options;
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
    seen: new Map(),
    modeOf: (plan) => modeOf(modeTools, plan),
    target: `${showTable(name)} at ${settings.server}`,
    planTarget: targetOf(spec, settings),
  };
}

async function rollBackTarget(tools: TableTools): Promise<RolledBack> {
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

/** Documents are rows, of which a role that may only insert can add versions, and change none. */
function openLedger(tools: TableTools): Ledger {
  const { control, target } = tools;
  return {
    read: (runId, kind) =>
      retriedRead(tools, `reading ${target}`, undefined, (session) => selectDocument(session, control, runId, kind)),
    // A note on a run that is not planned yet may be the first row there.
    create: (run, kind, value) =>
      typeof run === "string"
        ? retriedWrite(tools, `writing to ${target}`, (session) => createDocument(session, tools, run, kind, value))
        : createOfRun(tools, run, kind, value),
    change: (runId, kind, next) =>
      transact(tools, async (session) => {
        await lock(session, `${kind.name} ${runId}`);
        const value = next(await selectDocument(session, control, runId, kind));
        if (value !== undefined) {
          await addVersion(session, tools, runId, kind, value);
        }
      }),
    async remove(runId, { name }) {
      const text = `DELETE FROM ${control.table("documents")} WHERE run_id = $1 AND name = $2`;
      await retriedWrite(tools, `removing from ${target}`, (session) => session.query({ text, values: [runId, name] }));
    },
  };
}
