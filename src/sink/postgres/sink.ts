import { assertNever, JobError } from "../../util/errors.js";
import { splitRunId } from "../../plan/identity.js";
import type { RolledBack } from "../../publish/readers-view.js";
import { requireKept } from "../../publish/pruned-run.js";
import type { Plan, RunId } from "../../plan/plan.js";
import { type PostgresOutputSpec, splitTable } from "../../spec/postgres-spec.js";
import type { Sink, StoredPlan } from "../port.js";
import { appendMode } from "./modes/append.js";
import type { ConnectionSettings } from "./connect.js";
import { openConnections, type Session, transact } from "./connections.js";
import { ensureControlTables, hasControlTables } from "./control/schema.js";
import { openSpilledCopy, type RowSpool } from "./copy/spilled-copy.js";
import { type Control, controlOf } from "./control/control.js";
import { addVersion, createDocument, readDocument, readReviewedPlan } from "./control/documents.js";
import { dropLeftovers, nothingPublished } from "./other-runs/own-tables.js";
import { refuseDuplicates, refuseTakingOver } from "./other-runs/new-run.js";
import { lock, lockRun, lockRuns, refuseSuperseded } from "./locks.js";
import type { Mode, ModeTools } from "./modes/mode.js";
import { showTable } from "./names.js";
import { hintingAtRun, newerRunCheck, refuseOlderNewRun } from "./other-runs/newer-runs.js";
import { replaceMode } from "./modes/replace.js";
import { rollBack } from "./modes/rollback.js";
import { lastReplacement } from "./control/swaps.js";
import { onceEach } from "../../util/once-each.js";
import type { RetryTools } from "../../util/retry.js";
import { type InControlTables, pastRuns } from "./other-runs/past-runs.js";
import { pruning, refusePrunedPins } from "./other-runs/prune-runs.js";
import { rehearse, rehearsePlanned } from "./rehearse.js";
import { readPublishedRows, readTable } from "./other-runs/read-rows.js";
import { retrying } from "./failures.js";
import { eraseRows } from "./other-runs/erase-rows.js";
import { finishSeconds, supersede } from "./finish-run.js";
import { openRun, prepareRun } from "./run-sink.js";
import type { RunTools } from "./run-tools.js";
import { compareTargets, targetOf } from "./target.js";
import { stagedMode } from "./modes/staged.js";
import { upsertMode } from "./modes/upsert.js";
import { bestEffort } from "../../util/best-effort.js";
import type { Ledger } from "../ledger.js";

export { connectionOf } from "./connect.js";

export interface PostgresSinkOptions {
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
  admitNewRun(runId: RunId): Promise<void>;
  rollback(): Promise<RolledBack>;
}

interface Tools extends RunTools {
  readonly spec: PostgresOutputSpec;
  readonly allowOlder: boolean;
  /** Whether a new run over existing rows is refused. */
  readonly refusesDuplicates: boolean;
}

/** Opens a table as a target. A span's rows and its row in the control table commit in one transaction. */
export function openPostgresSink(options: PostgresSinkOptions): PostgresSink {
  const { settings, retry } = options;
  const tools = toolsOf(options);
  const { control, connections, planTarget, target } = tools;
  const inControlTables: InControlTables = (doing, none, work) =>
    readControlTables(tools, { doing: `${doing} at ${settings.server}`, none, work });
  return {
    target,
    planTarget,
    ledger: openLedger(tools),
    newRunAdds: options.spec.mode === "append",
    compareTarget: (planned) => ({
      lines: compareTargets(planned, planTarget),
      isElsewhere: planned["table"] !== planTarget.table,
    }),
    expect() {},
    find: (base) =>
      inControlTables<StoredPlan | undefined>(`looking for run ${base}`, undefined, (session) =>
        control.latestPlan(session, base),
      ),
    admitNewRun: (runId) =>
      inControlTables(`reading ${target}`, undefined, (session) => admitNewRun(session, tools, runId)),
    create: (plan) => creating(tools, (session) => createRun(session, tools, plan)),
    createInPlace: (plan, held) =>
      creating(tools, async (session) =>
        (await supersede(session, tools, held)) ? await createRun(session, tools, plan) : undefined,
      ),
    rehearse: (plan, state) => rehearseRun(tools, { plan, ...state, program: options.program }),
    open: (stored, how) => retrying(`reading ${target}`, retry, () => openRun(tools, requireKept(stored), how)),
    ...pastRuns(tools, inControlTables),
    stored: (runId) =>
      inControlTables(`reading run ${runId}`, undefined, (session) => readReviewedPlan(session, control, runId)),
    readPublished: (request) =>
      readPublishedRows({ ...tools, hasRowsOfAllRuns: options.spec.mode === "append", spool: options.spool }, request),
    readTable: (what, key) => readTable({ ...tools, spool: options.spool }, what, key),
    ...pruning(tools, { mode: options.spec.mode, read: inControlTables }),
    erase: (request) => eraseRows(tools, request),
    async rollback() {
      const doing = `rolling back ${target}`;
      const due = await inControlTables(
        doing,
        undefined,
        async (session) => (await lastReplacement(session, control, tools.name))?.runId,
      );
      return await retrying(doing, retry, (last) => rollBackTarget(tools, { last, due })).catch(lookAtRollback);
    },
    async [Symbol.asyncDispose]() {
      await connections[Symbol.asyncDispose]();
      await options.spool[Symbol.asyncDispose]();
    },
  };
}

interface RehearsedRun {
  readonly plan: Plan;
  readonly isPlanned: boolean;
  readonly command: string;
  readonly program: string;
}

async function rehearseRun(
  tools: Tools,
  { plan, isPlanned, command, program }: RehearsedRun,
): Promise<readonly string[]> {
  const create = (session: Session): Promise<StoredPlan> => createRun(session, tools, plan);
  return await retrying(`checking ${tools.target}`, tools.retry, () =>
    hintingAtRun({ command, isPlanned }, () =>
      isPlanned ? rehearsePlanned(tools, plan) : rehearse(tools, { plan, program, createRun: create }),
    ),
  );
}

/** Reads from the control tables in a transaction. `none`: where there are no control tables, nothing was ever done. */
async function readControlTables<T>(
  tools: Tools,
  {
    doing,
    none,
    work,
  }: {
    readonly doing: string;
    readonly none: T;
    readonly work: (session: Session) => Promise<T>;
  },
): Promise<T> {
  return await retrying(doing, tools.retry, () =>
    transact(tools, async (session) => {
      return (await hasControlTables(session, tools.control.schema)) ? await work(session) : none;
    }),
  );
}

function toolsOf(options: PostgresSinkOptions): Tools {
  const { spec, settings, retry, writer, program, allowOlder, allowDuplicates } = options;
  const connections = openConnections(settings, spec.timeouts);
  const name = splitTable(spec.table);
  const control = controlOf(spec.control_schema);
  const target = `${showTable(name)} at ${settings.server}`;
  const { warn } = retry;
  const refuseNewer = newerRunCheck({ control, table: showTable(name), allowOlder, warn });
  const modeTools = { name, spec, control, refuseNewer };
  const { timeouts } = spec;
  const refusesDuplicates = spec.mode === "append" && !allowDuplicates;
  const transactions = { connections, timeouts, warn };
  return {
    spec,
    retry,
    writer,
    spilled: openSpilledCopy(options.spool),
    control,
    modeOf: (plan) => modeOf(modeTools, plan),
    name,
    target,
    planTarget: targetOf(spec, settings),
    refuseNewer,
    allowOlder,
    warnOnce: onceEach(warn),
    refusesDuplicates,
    ensureControlTables: (last) => ensureControlTables(transactions, { schema: control.schema, program, last }),
    ...transactions,
  };
}

async function admitNewRun(
  session: Session,
  { control, name, spec: { mode }, allowOlder, refusesDuplicates }: Tools,
  runId: RunId,
): Promise<void> {
  await refuseTakingOver(session, control, { runId, target: showTable(name) });
  if (mode !== "append" && !allowOlder) {
    await refuseOlderNewRun(session, control, { runId, target: showTable(name), mode });
  }
  if (!refusesDuplicates || (await nothingPublished(session, control, runId))) {
    return;
  }
  try {
    await refuseDuplicates(session, name);
  } catch (error) {
    if (!(error instanceof JobError)) {
      throw error; // the transaction is aborted: further queries would fail
    }
    // The rows may be this run's own: another attempt has planned it.
    if ((await control.readPlan(session, runId)) === undefined) {
      throw error;
    }
  }
}

/** Runs `work`, which stores a plan, in a transaction. */
async function creating<T>(tools: Tools, work: (session: Session) => Promise<T>): Promise<T> {
  return await retrying(`preparing ${tools.target}`, tools.retry, async (last) => {
    await tools.ensureControlTables(last);
    return await transact(tools, work, { last });
  });
}

async function createRun(session: Session, tools: Tools, plan: Plan): Promise<StoredPlan> {
  const { control } = tools;
  const { runId } = plan;
  await lockRuns(session, runId, { shared: false });
  await refuseSuperseded(session, control, runId);
  if (await control.storePlan(session, plan)) {
    await refuseForgotten(session, control, { runId, target: showTable(tools.name) });
    await refuseTakingOver(session, control, { runId, target: showTable(tools.name) });
    const admitted = !tools.refusesDuplicates || splitRunId(runId).number === 1;
    if (!admitted && !(await nothingPublished(session, control, runId))) {
      await refuseDuplicates(session, tools.name);
    }
    await dropLeftovers(session, control, { runId, target: showTable(tools.name), mode: tools.spec.mode });
    await refusePrunedPins(session, control, plan, showTable(tools.name));
  }
  const stored = await control.readPlan(session, runId);
  if (stored === undefined) {
    throw new Error(`the plan of run ${runId} was stored and is gone`);
  }
  if (stored.pruned !== undefined) {
    throw new JobError("PLAN_CHANGED", `planning run ${runId}: the runs before it were pruned meanwhile`, {
      hint: "run the same command again",
    });
  }
  await lockRun(session, runId);
  await prepareRun(session, tools, stored, { mayCreate: true });
  return stored;
}

/** Refuses to plan a run anew whose plan is gone while other control rows of it are there. @throws JobError OUTPUT_DAMAGED */
async function refuseForgotten(
  session: Session,
  { schema, table }: Control,
  { runId, target }: { readonly runId: RunId; readonly target: string },
): Promise<void> {
  const tables = (["attempts", "finishes"] as const).map(table);
  const { rows } = await session.query({
    text: tables.map((name) => `SELECT FROM ${name} WHERE run_id = $1`).join(" UNION ALL "),
    values: [runId],
  });
  if (rows.length > 0) {
    const forget = tables.map((name) => `DELETE FROM ${name} WHERE run_id = '${runId}'`).join("; ");
    throw new JobError("OUTPUT_DAMAGED", `reading ${schema}.runs: the plan of run ${runId} is gone`, {
      hint: `rows of run ${runId} may be in ${target} all the same: look for them there first. If they are, restore the control tables from a backup, or delete all of them. When none is there: ${forget}; then run the same command again`,
    });
  }
}

/** A rollback whose answer was lost may have been made: the same command would undo another run. @throws the error */
function lookAtRollback(error: unknown): never {
  throw error instanceof JobError && error.code === "DATABASE"
    ? new JobError("DATABASE", error.message, {
        hint: "the rollback may have been made all the same: infer-batch status shows whose rows readers have. Roll back again only if they are still those of the later run",
        cause: error,
      })
    : error;
}

/** Rolls back the last replacement. @throws JobError USAGE where there is none */
async function rollBackTarget(
  tools: Tools,
  { last, due }: { readonly last: unknown; readonly due: string | undefined },
): Promise<RolledBack> {
  const { spec, control } = tools;
  if (spec.mode !== "replace") {
    throw new JobError("USAGE", `rolling back ${tools.target}: output.postgres.mode is ${spec.mode}`, {
      hint: "only what mode replace swapped in can be swapped back",
    });
  }
  const work = async (session: Session): Promise<RolledBack> => {
    if (!(await hasControlTables(session, control.schema))) {
      throw new JobError("USAGE", `rolling back ${tools.target}: no run has replaced it`);
    }
    return await rollBack(session, tools, due);
  };
  return await transact(tools, work, { last, silentSeconds: finishSeconds });
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
export function openLedger(tools: RunTools): Ledger {
  const { control, retry, target } = tools;
  return {
    failure: "DATABASE",
    read: (runId, kind) =>
      retrying(`reading ${target}`, retry, () =>
        transact(tools, async (session) =>
          (await hasControlTables(session, control.schema))
            ? await readDocument(session, control, { runId, kind })
            : undefined,
        ),
      ),
    create: (runId, kind, value) =>
      retrying(`writing to ${target}`, retry, async (last) => {
        await tools.ensureControlTables(last); // a note on a run that is not planned yet may be the first row there
        return await transact(tools, (session) => createDocument(session, tools, { runId, kind, value }), { last });
      }),
    note: (runId, kind, change) =>
      bestEffort(() =>
        transact(tools, async (session) => {
          await lock(session, `${kind.name} ${runId}`);
          const next = change(await readDocument(session, control, { runId, kind }));
          if (next !== undefined) {
            await addVersion(session, tools, { runId, kind, value: next });
          }
        }),
      ),
  };
}
