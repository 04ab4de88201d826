import type { RejectedRow } from "../columnar/types.js";
import { runIdOf } from "../plan/identity.js";
import type { Plan, RunId } from "../plan/plan.js";
import { type PaidReport, type VerdictReport, commandList, toScoreAgain } from "../report/report.js";
import { type CommittedBy, type RowsOfRun, rowsOf } from "../publish/span-record.js";
import { spanAt, spanCount } from "../plan/spans.js";
import { comparisonDocument, decisionDocument, verdictDocument } from "../sink/ledger.js";
import type { RunSink } from "../sink/port.js";
import { JobError } from "../util/errors.js";
import { countCommitted, lastFailure as lastFailureOf } from "./attempt.js";
import { lostSpans, verdictReport } from "./conclude.js";
import { paidReport } from "./paid.js";
import {
  type UnfinishedText,
  decidingCommands,
  eraseAgain,
  finishingCommand,
  readersLine,
  rolledBackReport,
  spellOut,
  unfinishedLines,
  unfinishedRuns,
} from "./hints.js";
import type { AttemptFailure } from "../publish/recorded-run.js";
import type { RunComparison } from "../publish/erasure.js";
import { type Decision, isRolledBack } from "../publish/lifecycle.js";
import { notPlanned, openOwn, requireOwn } from "./resume.js";
import type { JobContext } from "../scoring/context.js";

export interface RunState {
  readonly runId: RunId;
  readonly status:
    | "not_planned"
    | "unfinished"
    | "held"
    | "approved"
    | "published"
    | "rolled_back"
    | "discarded"
    | "superseded"
    | "pruned"
    | "damaged";
  /** What the checks say; null: they have not judged the run. */
  readonly verdict: VerdictReport | null;
  /** How a second model agrees; undefined: the run has none, or they are not compared. */
  readonly comparison?: RunComparison | undefined;
  /** What was decided on the run; null: nothing. */
  readonly decision: Decision | null;
  /** The error that the last attempt which failed ended with, while the run is not published; null: none is recorded. */
  readonly lastFailure: AttemptFailure | null;
  /** What an unfinished run has paid for and asked for; undefined: predictions are free, or it was not read. */
  readonly paid?: PaidReport | undefined;
  /** What readers have while the run is held, discarded or rolled back, and what publishing it would replace, a line each. */
  readonly readers: readonly string[];
  /** The commands that decide on a held run, continue an unfinished one, or score one that is not planned, or was discarded or rolled back; none for another. */
  readonly commands: readonly string[];
  /** What the only command does; absent: its name says it, or there are several. */
  readonly purpose?: string | undefined;
  /** null: the run's plan is gone or unreadable. */
  readonly rowsPlanned: number | null;
  /** Planned rows in committed spans. null: unknown for a damaged run. */
  readonly rowsCommitted: number | null;
  /** What became of the committed rows; null: unknown for a damaged run, and none for one that is not there. */
  readonly rowsOfRun: RowsOfRun | null;
  /** null: the run's plan is gone or unreadable. */
  readonly spansPlanned: number | null;
  /** null: unknown for a damaged run. */
  readonly spansCommitted: number | null;
  /** Everything that is wrong with the output, a line each. */
  readonly damage: readonly string[];
  /** The error that `run` would end with. */
  readonly error: JobError | undefined;
  /** The attempts that committed spans, with how many, in span order. */
  readonly attempts: readonly (CommittedBy & { readonly spans: number })[];
  /** Other runs of the job that are not finished. */
  readonly unfinished: readonly UnfinishedText[];
  /** What people read of them, a line each. */
  readonly unfinishedLines: readonly string[];
  readonly output: string;
}

/** What is known of a run that is not planned. */
const nothing = {
  verdict: null,
  decision: null,
  readers: [],
  commands: [],
  lastFailure: null,
  rowsPlanned: 0,
  rowsCommitted: 0,
  rowsOfRun: null,
  spansPlanned: 0,
  spansCommitted: 0,
  attempts: [],
  damage: [],
  error: undefined,
};

/**
 * Returns the state of a run from the target alone. Writes nothing.
 * @throws JobError PLAN_CHANGED if another job has made it
 * @param isDetailed also reads what the run has paid for
 */
export async function runState(context: JobContext, isDetailed = false): Promise<RunState> {
  const { spec, sink } = context;
  const base = runIdOf(spec.name, spec.params, context.sha256);
  const stored = await orDamage(() => sink.find(base));
  const unfinished = await unfinishedRuns(context);
  const about = { unfinished, unfinishedLines: unfinishedLines(context, unfinished), output: sink.target };
  if (stored === undefined) {
    return { runId: base, status: "not_planned", ...nothing, commands: [context.command(spec.params)], ...about };
  }
  if (stored instanceof JobError) {
    return { runId: base, ...nothing, rowsPlanned: null, spansPlanned: null, ...damagedBy(context, stored), ...about };
  }
  const { plan, pruned } = stored;
  if (pruned !== undefined) {
    requireOwn(context, plan, { state: { kind: "published" } });
    const planned = { rowsPlanned: plan.input.rows, spansPlanned: spanCount(plan) };
    return { ...nothing, ...planned, runId: plan.runId, status: "pruned", ...about };
  }
  const planned = { runId: plan.runId, rowsPlanned: plan.input.rows, spansPlanned: spanCount(plan) };
  const run = await orDamage(() => openOwn(context, stored));
  if (run instanceof JobError) {
    return { ...nothing, ...planned, ...damagedBy(context, run), ...about };
  }
  const lost = await lostSpans(context, plan, run);
  const lastFailure = openKinds.has(run.state.kind) ? ((await lastFailureOf(sink, plan.runId)) ?? null) : null;
  return {
    ...nothing,
    ...planned,
    ...(lost === undefined ? {} : { damage: [lost.message], error: spellOut(context, lost) }),
    status: isRolledBack(run.state) ? "rolled_back" : run.state.kind,
    ...(await reviewOf(context, plan, run)),
    ...(lost !== undefined ? {} : await continuing(context, plan, { run, lastFailure })),
    paid: isDetailed && run.state.kind === "unfinished" ? await paidOf(context, run) : undefined,
    lastFailure,
    spansCommitted: countCommitted(run),
    rowsCommitted: rowsCommitted(plan, run),
    rowsOfRun: rowsOf(run.spans),
    attempts: countByAttempt(run.spans),
    ...about,
  };
}

/**
 * Refuses to show a run in place of the one that was asked for, which a later run of the same params came after.
 * @throws JobError USAGE
 */
export function requireLatest(latest: RunId, asked: string | undefined): void {
  if (asked !== undefined && asked !== latest) {
    throw new JobError("USAGE", `looking for run ${asked}: the latest run of these params is ${latest}`, {
      hint: "name that run, or leave out --run; infer-batch history says what became of earlier ones",
    });
  }
}

/** States of a run that the next attempt goes on with. */
const openKinds: ReadonlySet<string> = new Set(["unfinished", "approved"]);

/** Errors of a run whose spec, input or model is not the planned one. */
const changes: ReadonlySet<string> = new Set(["PLAN_CHANGED", "INPUT_CHANGED", "MODEL_CHANGED"]);

/**
 * The command that continues an unfinished run, or scores it again if something is not as planned; nothing for another
 * run, and for an erasure, which another command finishes.
 */
async function continuing(
  context: JobContext,
  plan: Plan,
  { run: { state }, lastFailure }: { readonly run: RunSink; readonly lastFailure: AttemptFailure | null },
): Promise<Partial<Pick<RunState, "commands" | "purpose">>> {
  if (plan.erasure !== undefined || !openKinds.has(state.kind)) {
    return {};
  }
  if (lastFailure !== null && changes.has(lastFailure.code)) {
    const { newRun } = await decidingCommands(context, plan);
    return { commands: [newRun], purpose: "to continue, restore what changed; to score again with the change" };
  }
  const { command } = await finishingCommand(context, plan);
  const purpose = state.kind === "approved" ? "to publish it" : "to continue";
  return { commands: [command], purpose: lastFailure === null ? purpose : `${purpose}, after you fix the cause` };
}

async function paidOf(context: JobContext, run: RunSink): Promise<PaidReport | undefined> {
  return context.lookAtPaid && (await paidReport(context.lookAtPaid, run.answers().read()));
}

/** What the checks say of a run, and what was decided on it. */
async function reviewOf(
  context: JobContext,
  plan: Plan,
  run: RunSink,
): Promise<Pick<RunState, "verdict" | "comparison" | "decision" | "readers" | "commands" | "purpose">> {
  const { state } = run;
  const verdict = plan.checks === null ? undefined : await context.sink.ledger.read(plan.runId, verdictDocument);
  const stored =
    plan.staged && state.kind === "published"
      ? await context.sink.ledger.read(plan.runId, decisionDocument)
      : undefined;
  return {
    verdict: verdict === undefined ? null : verdictReport(context, plan, verdict),
    ...(await decidingTexts(context, plan, run)),
    comparison: await context.sink.ledger.read(plan.runId, comparisonDocument),
    decision: "decision" in state ? state.decision : (stored ?? null),
  };
}

/** What a person needs to know who decides on a held run, or on one that was rolled back; and the commands. */
async function decidingTexts(
  context: JobContext,
  plan: Plan,
  { state }: RunSink,
): Promise<Pick<RunState, "readers" | "commands" | "purpose">> {
  if (isRolledBack(state)) {
    const { readersHave, newRun } = await rolledBackReport(context, plan);
    return { readers: readersHave === undefined ? [] : [`readers have ${readersHave}`], commands: [newRun] };
  }
  const { erasure } = plan;
  if (erasure !== undefined && state.kind !== "published") {
    const about = `it is an erasure by ${erasure.by} of rows of run ${erasure.of}; ${eraseAgain}`;
    return { readers: [about], commands: [`${context.command(plan.params)} --new-run`] };
  }
  const line = ["held", "discarded"].includes(state.kind) ? await readersLine(context, plan) : undefined;
  const readers = line === undefined ? [] : [line];
  if (state.kind !== "held" && state.kind !== "discarded") {
    return { readers, commands: [] };
  }
  const commands = await decidingCommands(context, plan);
  if (state.kind === "discarded") {
    return { readers, commands: [commands.newRun], purpose: toScoreAgain };
  }
  const { newer } = commands;
  return { readers: newer === undefined ? readers : [...readers, newer], commands: commandList(commands) };
}

/** Returns a damaged output as a state; throws any other error. */
async function orDamage<T>(work: () => Promise<T>): Promise<T | JobError> {
  try {
    return await work();
  } catch (error) {
    if (error instanceof JobError && error.damage !== undefined) {
      return error;
    }
    throw error;
  }
}

function damagedBy(
  context: JobContext,
  error: JobError,
): Pick<RunState, "status" | "damage" | "error" | "spansCommitted" | "rowsCommitted"> & {
  readonly runId?: RunId;
} {
  const { runId, found = [error.message] } = error.damage ?? {};
  const named = runId === undefined ? {} : { runId: runId as RunId };
  return {
    ...named,
    status: "damaged",
    spansCommitted: null,
    rowsCommitted: null,
    damage: found,
    error: spellOut(context, error),
  };
}

function rowsCommitted(plan: Plan, { spans }: RunSink): number {
  return [...spans.keys()]
    .map((index) => spanAt(plan, index))
    .reduce((sum, { rowStart, rowEnd }) => sum + rowEnd - rowStart, 0);
}

function countByAttempt(spans: RunSink["spans"]): (CommittedBy & { spans: number })[] {
  const counted = new Map<string, CommittedBy & { spans: number }>();
  for (const [, { maker: attempt }] of [...spans].toSorted(([one], [other]) => one - other)) {
    const key = `${attempt.worker}/${attempt.workers} ${attempt.writer}`;
    counted.set(key, { ...attempt, spans: (counted.get(key)?.spans ?? 0) + 1 });
  }
  return [...counted.values()];
}

/**
 * Reads the rejected rows of the run's committed spans.
 * @param asked the id of the run that is meant; default: the latest one
 * @throws JobError USAGE if it is not the latest run of these params, or none is planned
 */
export async function* rejectedRows(context: JobContext, asked?: string): AsyncGenerator<RejectedRow> {
  const { spec, sink, sha256 } = context;
  const stored = await sink.find(runIdOf(spec.name, spec.params, sha256));
  if (stored === undefined) {
    throw notPlanned(context, "reading the rejected rows of");
  }
  requireLatest(stored.plan.runId, asked);
  const run = await openOwn(context, stored);
  yield* run.rejects();
}
