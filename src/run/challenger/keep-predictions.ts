import { binsFor, mergeProfiles, profileRows, profileText, type SpanProfile } from "../../checks/profile/profile.js";
import { numberedRunId, runIdOf, splitRunId } from "../../plan/identity.js";
import { isMarkedKept, keptJob } from "../../plan/kept-predictions.js";
import type { Plan, RunId, Span } from "../../plan/plan.js";
import { spanCount } from "../../plan/spans.js";
import { replacedBy } from "../../publish/readers-view.js";
import { attemptJson } from "../../report/attempt-json.js";
import { count } from "../../report/report.js";
import type { KeptPiece, PredictionKeeper } from "../../scoring/challenger/port.js";
import type { JobContext } from "../../scoring/context.js";
import type { RunSink, Sink, StoredPlan } from "../../sink/port.js";
import { messageOf } from "../../util/errors.js";
import { attemptFacts } from "../attempt.js";
import { compareTargets } from "../../plan/compare.js";

/** The run of the challenger's predictions at their own target. */
interface KeptRun {
  readonly sink: Sink;
  readonly stored: StoredPlan;
  readonly run: RunSink;
}

/** The plan of the challenger's predictions: each of its spans has the rows of the same span of the run. */
function keptPlan(context: JobContext, plan: Plan, sink: Sink, runId: RunId): Plan {
  const { challenger, ...champion } = plan;
  if (challenger === undefined) {
    throw new Error(`run ${plan.runId} has no challenger`);
  }
  const { uri, sha256, version, origin, tokenizers, request, contract } = challenger;
  return {
    ...champion,
    runId,
    job: keptJob(context.spec.name),
    model: { uri, sha256, version, origin, tokenizers },
    request: { ...plan.request, ...request },
    contract: { ...contract, passthrough: plan.contract.passthrough },
    target: sink.planTarget,
    staged: false,
    checks: null,
    kept: true,
  };
}

/** Where the predictions of a job's challenger are kept, as its spec names it; undefined: they are not kept. */
export function keptPlaceOf({ challenger }: JobContext["spec"]): string | undefined {
  const { parquet, postgres } = challenger?.output ?? {};
  return parquet?.path ?? postgres?.table;
}

/** The job whose runs are the kept predictions of a job's challenger. */
export function keptContext(context: JobContext, sink: Sink): JobContext {
  return { ...context, sink, spec: { ...context.spec, name: keptJob(context.spec.name) } };
}

/** Whether two plans are of the same predictions. Their runs may have different numbers. */
function isSame({ runId: _one, ...one }: Plan, { runId: _other, ...other }: Plan): boolean {
  return JSON.stringify(one) === JSON.stringify(other);
}

/**
 * How to keep all predictions of a run, whose checks have not judged it yet: it may be held in a moment. `scoredAnew`: the
 * targets that get all rows of the new run.
 */
function keepAllText({ command }: JobContext, { params }: Plan, scoredAnew: readonly Sink[]): string {
  const again = `to keep all of them, score again when this run is published or discarded: ${command(params)} --new-run`;
  const added = scoredAnew.filter(({ planTarget }) => replacedBy(planTarget) === "nothing").map(({ target }) => target);
  return added.length === 0
    ? again
    : `${again} --allow-duplicates, which adds all rows again: first delete those of this run in ${added.join(" and in ")}`;
}

function baseOf({ spec, sha256 }: JobContext): RunId {
  return runIdOf(keptJob(spec.name), spec.params, sha256);
}

/**
 * Refuses a run of another job, which may have the name of these predictions, and predictions that are kept in another
 * table: `sink.find` knows runs by name and params alone.
 */
function requireKeptHere({ spec }: JobContext, sink: Sink, plan: Plan): void {
  const { runId, target } = plan;
  const change = "name another place in challenger.output, such as another control_schema";
  const name = keptJob(spec.name);
  if (!isMarkedKept(plan)) {
    throw new Error(`run ${runId} at this place is one of a job called ${name}, and is left as it is; ${change}`);
  }
  if (compareTargets(target, sink.planTarget).isElsewhere) {
    throw new Error(`run ${runId} keeps them in ${String(target["table"])}; name this table again, or ${change}`);
  }
}

/** Opens the run of the predictions. `mayCreate`: otherwise one that is not planned is undefined. */
async function openKept(context: JobContext, plan: Plan, sink: Sink, mayCreate: boolean): Promise<KeptRun | undefined> {
  const base = baseOf(context);
  const found = await sink.find(base);
  if (found !== undefined) {
    requireKeptHere(context, sink, found.plan);
  }
  const latest = found?.pruned === undefined ? found : undefined;
  if (latest !== undefined && isSame(keptPlan(context, plan, sink, latest.plan.runId), latest.plan)) {
    return { sink, stored: latest, run: await sink.open(latest) };
  }
  if (!mayCreate) {
    return undefined;
  }
  const last = found?.pruned?.tombstone ?? found?.plan.runId;
  const next = last === undefined ? base : numberedRunId(base, splitRunId(last).number + 1);
  const stored = await sink.create(keptPlan(context, plan, sink, next));
  if (!isSame(keptPlan(context, plan, sink, stored.plan.runId), stored.plan)) {
    throw new Error(`another run has begun to write to ${sink.target}`);
  }
  return { sink, stored, run: await sink.open(stored) };
}

/**
 * Opens the target of the challenger's predictions, which is committed span by span, before the published rows of the same
 * span. Nothing that goes wrong there ends the run. undefined: the predictions are not kept.
 */
export async function openKeeper(
  context: JobContext,
  plan: Plan,
  provider: string,
): Promise<(PredictionKeeper & AsyncDisposable) | undefined> {
  const { openChallengerSink, log } = context;
  if (openChallengerSink === undefined || plan.challenger === undefined) {
    return undefined;
  }
  let sink: Sink | undefined;
  try {
    sink = await openChallengerSink();
    const kept = await openKept(context, plan, sink, true);
    const writer = await kept?.run.begin(attemptFacts(context, provider));
    if (kept === undefined || writer === undefined) {
      throw new Error(`${sink.target} has no plan`);
    }
    const opened = sink;
    return {
      ...createKeeper(context, plan, writer),
      [Symbol.asyncDispose]: () => opened[Symbol.asyncDispose](),
    };
  } catch (error) {
    context.signal.throwIfAborted();
    log.warn(`the challenger's predictions are not kept in this attempt: ${messageOf(error)}`);
    await sink?.[Symbol.asyncDispose]();
    return undefined;
  }
}

/** What the pieces of a span add up to. */
interface OpenKept {
  readonly rows: number;
  readonly leftOut: number;
  readonly profile: SpanProfile;
}

function createKeeper(
  { log }: Pick<JobContext, "log">,
  { challenger }: Plan,
  writer: Awaited<ReturnType<RunSink["begin"]>>,
): PredictionKeeper {
  const predicted = (challenger?.contract.outputs ?? []).map(({ column: name }) => ({ name }));
  /** The pieces so far of spans that come in several. */
  const before = new Map<number, OpenKept>();
  let hasFailed = false;
  return {
    async keep(span, piece) {
      if (piece === undefined || hasFailed) {
        hasFailed = true; // a span without some of its rows would look complete
        return;
      }
      try {
        const all = sumOf(
          before.get(span.index),
          piece,
          profileRows(piece.rows, { predicted, carried: [], bins: binsFor(predicted.length) }),
        );
        if (!piece.isLast) {
          before.set(span.index, all);
          await writer.spill(span, piece.rows);
          return;
        }
        before.delete(span.index);
        requireWhole(span, all);
        const { leftOut: filtered, profile } = all;
        const output = { rows: piece.rows, rejects: [], filtered, batchSize: 0, profile: profileText(profile) };
        await writer.commit(span, output);
      } catch (error) {
        if (!hasFailed) {
          hasFailed = true; // other spans may be under way, and fail as well
          log.warn(`the challenger's predictions are not kept from here on: ${messageOf(error)}`);
        }
      }
    },
  };
}

function sumOf(before: OpenKept | undefined, { rows, leftOut }: KeptPiece, profile: SpanProfile): OpenKept {
  return {
    rows: (before?.rows ?? 0) + rows.rowCount,
    leftOut: (before?.leftOut ?? 0) + leftOut,
    profile: before === undefined ? profile : mergeProfiles(before.profile, profile),
  };
}

/** Each row of a span is kept, or is known not to be: a span is never committed without rows that were lost on the way. */
function requireWhole({ index, rowStart, rowEnd }: Span, { rows, leftOut }: OpenKept): void {
  if (rows + leftOut !== rowEnd - rowStart) {
    throw new Error(
      `writing span ${index}: ${rows} rows are kept and ${leftOut} left out of ${rowEnd - rowStart}, which is a defect of this program`,
    );
  }
}

/**
 * Finishes the run of the challenger's predictions if it has all spans; otherwise warns that they are incomplete. Called
 * before the run is finished, when all of its spans are committed. Returns where the predictions are; undefined: they are
 * incomplete, or not kept.
 */
export async function finishKept(context: JobContext, plan: Plan): Promise<string | undefined> {
  const { openChallengerSink, log, signal, record } = context;
  if (openChallengerSink === undefined || plan.challenger === undefined) {
    return undefined;
  }
  try {
    await using sink = await openChallengerSink();
    const kept = await openKept(context, plan, sink, false);
    const committed = kept?.run.spans.size ?? 0;
    if (kept === undefined || committed < spanCount(plan)) {
      // The new run continues the kept predictions, whose spans stay.
      const scoredAnew = kept === undefined ? [context.sink, sink] : [context.sink];
      log.warn(
        `the challenger's predictions in ${sink.target} are incomplete: ${committed} of ${count(spanCount(plan), "span")}; ${keepAllText(context, plan, scoredAnew)}`,
      );
      return undefined;
    }
    if (kept.run.state.kind !== "published") {
      const writer = await kept.run.begin(attemptFacts(context, "none"));
      await writer.finish(attemptJson(record));
    }
    log.info(`the challenger's predictions are in ${sink.target}`);
    return sink.target;
  } catch (error) {
    signal.throwIfAborted();
    log.warn(`the challenger's predictions are not finished: ${messageOf(error)}`);
    return undefined;
  }
}
