import { isSameShard } from "../../plan/compare.js";
import type { Plan, RunId } from "../../plan/plan.js";
import { takeOverDifferences } from "../../plan/take-over.js";
import type { JobContext } from "../../scoring/context.js";
import type { StoredPlan } from "../../sink/port.js";
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

/** The run whose rejected rows are to be planned, and these. */
export interface PlannableRejects {
  readonly stored: StoredPlan;
  readonly rejected: RejectedRows;
}

/**
 * Finds the rows that a run of rejects would score. undefined: a run of all rows is to be planned, or the run that the
 * target has is not published, so that it goes on
 * @throws JobError USAGE if there is no run
 */
export async function findRejects(context: JobContext, base: RunId): Promise<PlannableRejects | undefined> {
  const { sink, onlyRejects } = context;
  if (onlyRejects !== true) {
    return undefined;
  }
  const stored = await sink.find(base);
  requireRun(context, stored);
  if (stored === undefined || stored.pruned !== undefined) {
    return undefined;
  }
  const run = await sink.open(stored);
  return isPublished(run)
    ? { stored, rejected: await readRejected(stored.plan, run.rejects(), () => true) }
    : undefined;
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
      hint: `the rows that it has scored would be others; restore what was planned, or ${instead}`,
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
