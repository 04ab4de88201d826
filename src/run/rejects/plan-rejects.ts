import { isSameShard } from "../../plan/compare.js";
import type { Plan, PlannedRejects, RunId } from "../../plan/plan.js";
import { takeOverDifferences } from "../../plan/take-over.js";
import type { JobContext } from "../../scoring/context.js";
import type { RunSink, StoredPlan } from "../../sink/port.js";
import type { Listing } from "../../storage/port.js";
import { JobError } from "../../util/errors.js";
import { isPublished } from "../resume.js";
import { readRejected, type RejectedRows } from "./rejected-rows.js";

const instead = "score all rows with --new-run";

/** @throws JobError USAGE if the rejects of a run are to be scored, and there is none */
export function requireRun({ spec, onlyRejects }: JobContext, stored: StoredPlan | undefined): void {
  if (onlyRejects === true && stored === undefined) {
    throw new JobError(
      "USAGE",
      `looking for a run of ${spec.name} whose rejected rows are to be scored: there is none`,
      {
        hint: "leave out --only-rejects, or name the run with --param; infer-batch history lists the runs",
      },
    );
  }
}

/** The run whose rejected rows a plan scores; undefined: it scores all rows. @throws `why` if that run is gone */
export async function rejectsOfPlan(
  { sink }: Pick<JobContext, "sink">,
  plan: Plan,
  why: unknown,
): Promise<StoredPlan | undefined> {
  const { rejectsOf } = plan;
  const stored = rejectsOf && (await sink.stored?.(rejectsOf.runId as RunId));
  if (rejectsOf !== undefined && stored === undefined) {
    throw why;
  }
  return stored;
}

/** A run, and those of its rejected rows that another run scores. */
export interface PlannableRejects {
  readonly stored: StoredPlan;
  readonly rejected: RejectedRows;
}

/**
 * Finds the rejected rows that `run` would score alone, with the run that has rejected them. undefined: it would score
 * all rows
 * @param stored the run that the target has
 * @param next what `run` does with that run, as `StoredRunCheck` has it
 * @throws JobError OUTPUT_DAMAGED if the run with the rejects is gone
 */
export async function findRejects(
  context: JobContext,
  stored: StoredPlan,
  next: "plan" | "resume" | "finish" | "end",
): Promise<PlannableRejects | undefined> {
  const { sink, onlyRejects } = context;
  const { plan, pruned } = stored;
  if (pruned !== undefined || (onlyRejects !== true && plan.rejectsOf === undefined)) {
    return undefined;
  }
  const run = await sink.open(stored);
  if (isPublished(run)) {
    return onlyRejects === true ? { stored, rejected: await readRejected(plan, run.rejects(), () => true) } : undefined;
  }
  const isCorrected = next === "plan" && run.state.kind === "unfinished"; // the run after it scores the same rejects
  const goesOn = next === "resume" || next === "finish";
  if (plan.rejectsOf === undefined || !(isCorrected || goesOn)) {
    return undefined;
  }
  const earlier = await openEarlier(context, plan.rejectsOf);
  const isLeft = (span: number): boolean => isCorrected || run.committed[span] === 0;
  return { stored: earlier.stored, rejected: await readRejected(earlier.stored.plan, earlier.run.rejects(), isLeft) };
}

/**
 * Opens the run whose rejected rows a planned run scores.
 * @throws JobError OUTPUT_DAMAGED if the run is not the planned one, or not published
 */
export async function openEarlier(
  { sink }: Pick<JobContext, "sink">,
  { runId, planId }: PlannedRejects,
): Promise<{ readonly stored: StoredPlan; readonly run: RunSink }> {
  const stored = await sink.stored?.(runId as RunId);
  const run = stored?.planId === planId && stored.pruned === undefined ? await sink.open(stored) : undefined;
  if (stored === undefined || run === undefined || !isPublished(run)) {
    throw new JobError("OUTPUT_DAMAGED", `opening run ${runId}, whose rejected rows are scored: it is gone`, {
      hint: instead,
    });
  }
  return { stored, run };
}

/** @throws JobError PLAN_CHANGED if another attempt has planned the run for other rows meanwhile */
export function requireRejectsOf({ runId, rejectsOf }: Plan, wanted: StoredPlan | undefined): void {
  if (rejectsOf?.planId !== wanted?.planId) {
    throw new JobError(
      "PLAN_CHANGED",
      `planning run ${runId}: another attempt has planned it, ${rejectsOf === undefined ? "for all rows" : "for rejected rows only"}`,
      {
        hint: "run the same command again, which continues that run",
      },
    );
  }
}

/** The shards of an earlier run, in its order, as they are listed now. @throws JobError INPUT_CHANGED if one is gone or another one */
export function shardsOfRun(listing: Listing, { plan: { runId, input } }: StoredPlan): Listing {
  const listed = new Map(listing.shards.map((shard) => [shard.uri, shard]));
  const shards = input.shards.map((planned) => {
    const found = listed.get(planned.uri);
    if (found === undefined || !isSameShard(found, planned)) {
      throw new JobError(
        "INPUT_CHANGED",
        `scoring the rejected rows of run ${runId}: ${planned.uri} is ${found === undefined ? "missing" : "another file than it has scored"}`,
        { hint: `restore it, or ${instead}` },
      );
    }
    return found;
  });
  return { ...listing, shards };
}

/**
 * Turns a plan into one that keeps the predictions of an earlier run and scores its rejected rows.
 * @throws JobError USAGE if the target, the model or the earlier run does not allow it; PLAN_CHANGED if the spec has changed so that kept rows would be others
 */
export function planRejects({ sink, spec }: Pick<JobContext, "sink" | "spec">, plan: Plan, earlier: StoredPlan): Plan {
  const { runId } = earlier.plan;
  const refused = whyNot(plan, earlier.plan, spec.model.server !== undefined);
  if (refused !== undefined || sink.keptRows === undefined) {
    throw new JobError("USAGE", `scoring the rejected rows of run ${runId}: ${refused ?? "the target keeps no rows"}`, {
      hint: instead,
    });
  }
  const { commitRows, input } = earlier.plan;
  const next = { ...plan, commitRows, rejectsOf: { runId, planId: earlier.planId, kept: sink.keptRows(plan) } };
  const differences = takeOverDifferences(next, earlier.plan);
  if (input.rows !== plan.input.rows) {
    throw new JobError(
      "INPUT_CHANGED",
      `scoring the rejected rows of run ${runId}: it has ${input.rows} rows, and the input has ${plan.input.rows}`,
      {
        hint: instead,
      },
    );
  }
  if (differences.length > 0) {
    throw new JobError("PLAN_CHANGED", `scoring the rejected rows of run ${runId}: ${differences.join("; ")}`, {
      hint: `these changes would score different rows; restore the planned values, or ${instead}`,
    });
  }
  return next;
}

function whyNot({ model, challenger, request }: Plan, earlier: Plan, isServed: boolean): string | undefined {
  if (challenger !== undefined) {
    return "a challenger scores all rows";
  }
  if (earlier.erasure !== undefined) {
    return "rows of it were erased";
  }
  const isNamed = model.version !== undefined && model.version !== "*";
  return isServed && request.prompt === undefined && !isNamed
    ? "the server names no version of the model, so that another model could not be told from it"
    : undefined;
}
