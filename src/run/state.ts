import type { RejectedRow } from "../columns/types.js";
import type { RunId } from "./plan/plan.js";
import type { AttemptFailure } from "./lifecycle/recorded-run.js";
import type { RunComparison } from "./lifecycle/erasure.js";
import { type Decision, isRolledBack } from "./lifecycle/lifecycle.js";
import { commandList, type PaidReport, toScoreAgain, type VerdictReport } from "../report/report.js";
import { type CommittedBy, rowsOf, type RowsOfRun } from "./lifecycle/span-record.js";
import { spanAt, spanCount } from "./plan/spans.js";
import { comparisonDocument, decisionDocument, verdictDocument } from "../stores/ledger.js";
import type { RunSink } from "../targets/target.js";
import { JobError } from "../base/errors.js";
import { lastFailure as lastFailureOf } from "./attempt.js";
import { lostSpans, verdictReport } from "./conclude.js";
import { paidReport } from "./paid.js";
import {
  againCommand,
  decidingCommands,
  eraseAgain,
  newRunCommand,
  readersLine,
  rolledBackReport,
  spellOut,
  unfinishedLines,
  unfinishedRuns,
  type UnfinishedText,
} from "./hints.js";
import { findPlanned, openOwn, refuseElsewhere } from "./resume.js";
import type { JobContext } from "../flow/context.js";

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
  const { spec, sink, base, command } = context;
  const stored = await orDamage(() => sink.find(base));
  const unfinished = await unfinishedRuns(context);
  const about = {
    ...nothing,
    runId: base,
    unfinished,
    unfinishedLines: unfinishedLines(context, unfinished),
    output: sink.target,
  };
  if (stored === undefined) {
    return { ...about, status: "not_planned", commands: [command(spec.params)] };
  }
  if (stored instanceof JobError) {
    return { ...about, rowsPlanned: null, spansPlanned: null, ...damagedBy(context, stored) };
  }

  const { plan, pruned } = stored;
  const planned = { ...about, runId: plan.runId, rowsPlanned: plan.input.rows, spansPlanned: spanCount(plan) };
  if (pruned !== undefined) {
    refuseElsewhere(context, { plan, state: { kind: "published" } });
    return { ...planned, status: "pruned" };
  }
  const run = await orDamage(() => openOwn(context, stored));
  if (run instanceof JobError) {
    return { ...planned, ...damagedBy(context, run) };
  }

  const { state, spans } = run;
  const isOpen = state.kind === "unfinished" || state.kind === "approved";
  const lost = await lostSpans(context, run);
  const lastFailure = isOpen ? ((await lastFailureOf(sink, plan.runId)) ?? null) : null;
  const isPaidFor = isDetailed && state.kind === "unfinished" && context.lookAtPaid !== undefined;
  const committed = [...spans.keys()].map((index) => spanAt(plan, index));
  return {
    ...planned,
    ...(lost === undefined ? {} : { damage: [lost.message], error: spellOut(context, lost) }),
    status: isRolledBack(state) ? "rolled_back" : state.kind,
    ...(await decided(context, run)),
    ...(await toDecide(context, run)),
    ...(isOpen && plan.erasure === undefined && lost === undefined ? continuing(context, run, lastFailure) : {}),
    paid: isPaidFor ? await paidReport(context.lookAtPaid, run.answers().read()) : undefined,
    lastFailure,
    spansCommitted: spans.size,
    rowsCommitted: committed.reduce((sum, { rowStart, rowEnd }) => sum + rowEnd - rowStart, 0),
    rowsOfRun: rowsOf(spans),
    attempts: countByAttempt(spans),
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

/** Errors of a run whose spec, input or model is not the planned one. */
const changes: ReadonlySet<string> = new Set(["PLAN_CHANGED", "INPUT_CHANGED", "INPUT_REWRITTEN", "MODEL_CHANGED"]);

/** The command that continues an open run, or scores it again if something is not as planned. */
function continuing(
  context: JobContext,
  { plan, state }: RunSink,
  lastFailure: AttemptFailure | null,
): Pick<RunState, "commands" | "purpose"> {
  if (lastFailure !== null && changes.has(lastFailure.code)) {
    const purpose = "to continue, restore what changed; to score again with the change";
    return { commands: [newRunCommand(context, plan)], purpose };
  }
  const purpose = state.kind === "approved" ? "to publish it" : "to continue";
  return {
    commands: [context.command(plan.params)],
    purpose: lastFailure === null ? purpose : `${purpose}, after you fix the cause`,
  };
}

async function decided(
  context: JobContext,
  { plan, state }: RunSink,
): Promise<Pick<RunState, "verdict" | "comparison" | "decision">> {
  const { ledger } = context.sink;
  const isApproved = plan.staged && state.kind === "published";
  const verdict = plan.checks === null ? undefined : await ledger.read(plan.runId, verdictDocument);
  const decision = isApproved ? await ledger.read(plan.runId, decisionDocument) : undefined;
  return {
    verdict: verdict === undefined ? null : verdictReport(context, plan, verdict),
    comparison: await ledger.read(plan.runId, comparisonDocument),
    decision: "decision" in state ? state.decision : (decision ?? null),
  };
}

/** What a person needs to know who decides on a held run, or on one that was rolled back; and the commands. */
async function toDecide(
  context: JobContext,
  { plan, state }: RunSink,
): Promise<Pick<RunState, "readers" | "commands" | "purpose">> {
  const { erasure } = plan;
  if (isRolledBack(state)) {
    const { readersHave, newRun } = await rolledBackReport(context, plan);
    return { readers: readersHave === undefined ? [] : [`readers have ${readersHave}`], commands: [newRun] };
  }
  if (erasure !== undefined && state.kind !== "published") {
    const about = `it is an erasure by ${erasure.by} of rows of run ${erasure.of}; ${eraseAgain}`;
    return { readers: [about], commands: [newRunCommand(context, plan)] };
  }
  if (state.kind !== "held" && state.kind !== "discarded") {
    return { readers: [], commands: [] };
  }
  const line = await readersLine(context, plan);
  const readers = line === undefined ? [] : [line];
  if (state.kind === "discarded") {
    return { readers, commands: [againCommand(context, plan)], purpose: toScoreAgain };
  }
  const commands = decidingCommands(context, plan);
  return {
    readers: commands.newer === undefined ? readers : [...readers, commands.newer],
    commands: commandList(commands),
  };
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
): Pick<RunState, "status" | "damage" | "error" | "spansCommitted" | "rowsCommitted"> &
  Partial<Pick<RunState, "runId">> {
  const { runId, found = [error.message] } = error.damage ?? {};
  return {
    ...(runId === undefined ? {} : { runId: runId as RunId }),
    status: "damaged",
    spansCommitted: null,
    rowsCommitted: null,
    damage: found,
    error: spellOut(context, error),
  };
}

function countByAttempt(spans: RunSink["spans"]): (CommittedBy & { spans: number })[] {
  const counted = new Map<string, CommittedBy & { spans: number }>();
  for (const [, { maker: attempt }] of [...spans].toSorted(([left], [right]) => left - right)) {
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
  const stored = await findPlanned(context, "reading the rejected rows of");
  requireLatest(stored.plan.runId, asked);
  const run = await openOwn(context, stored);
  yield* run.rejects();
}
