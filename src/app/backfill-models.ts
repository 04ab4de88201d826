import { type DatedModel, modelsOfDates } from "../jobs/model-history.js";
import type { PlannedModel } from "../plan/plan.js";
import { everyRun } from "../publish/recorded-run.js";
import { recordedGroups } from "../run/history.js";
import type { LoadedSpec } from "../spec/load.js";
import { modelUri, type ModelSpec } from "../spec/model-spec.js";
import { isServedUri } from "../spec/model-uri.js";
import { JobError } from "../util/errors.js";
import type { BackfillJob, BackfillJobs, ScoredWith } from "./backfill-jobs.js";
import { openLoaded } from "./job-context.js";

/**
 * Has each job of a backfill score with the model that the job's history at its target names for its date. Reads the
 * history; no model is loaded.
 * @returns the jobs, and the model with which each goes on
 * @throws JobError USAGE for dates before all published ones: which model scored them is not known
 */
export async function withModelHistory(
  { range, jobs, first }: BackfillJobs,
  specPath: string,
): Promise<{ readonly jobs: readonly BackfillJob[]; readonly models: readonly DatedModel[] }> {
  await using job = await openLoaded(first, specPath);
  const groups = await recordedGroups(job, { last: everyRun, complete: true });
  const runs = groups.flatMap((group) => group.runs);
  const found = modelsOfDates(runs, jobs, range.param);
  const models = found.flatMap((one) => (one === undefined ? [] : [one.resumes ?? one.scores]));
  const unknown = jobs.filter((_, index) => found[index] === undefined).map(({ value }) => value);
  if (unknown.length > 0) {
    const [from, to] = [unknown[0] ?? "", unknown.at(-1) ?? ""];
    throw new JobError(
      "USAGE",
      `finding the models of ${from === to ? from : `${from} to ${to}`} in the history: no run of ${job.spec.name} was published for ${from === to ? "this date" : "these dates"}, nor for an earlier one`,
      {
        hint:
          models[0] === undefined
            ? "without --model history the present model scores them"
            : `begin the range at ${models[0].value}; without --model history the present model scores all of its dates`,
      },
    );
  }
  const chosen = jobs.map((one, index): BackfillJob => {
    const { scores, resumes } = found[index] ?? {};
    return { ...one, ...scoredWith(one, scores), resumed: resumes && scoredWith(one, resumes) };
  });
  return { jobs: chosen, models };
}

function scoredWith({ load }: BackfillJob, dated: DatedModel | undefined): ScoredWith {
  return dated === undefined ? { load } : { model: dated.model, load: () => withModel(load(), dated.model) };
}

/** The spec with the model that a run was planned with. */
function withModel(loaded: LoadedSpec, planned: PlannedModel): LoadedSpec {
  const { spec } = loaded;
  return { ...loaded, spec: { ...spec, model: { ...spec.model, ...placeOf(spec.model, planned) } } };
}

/** @throws JobError MODEL_CHANGED for a model of a server that the spec does not name */
function placeOf(
  model: ModelSpec,
  { uri, sha256, version }: PlannedModel,
): Pick<ModelSpec, "path" | "server" | "sha256"> {
  const { server } = model;
  if (!isServedUri(uri)) {
    return { path: uri, server: undefined, sha256 };
  }
  if (server === undefined || modelUri(model) !== uri) {
    throw new JobError("MODEL_CHANGED", `loading model ${uri}: the spec does not say which server has it`, {
      hint: "name its server in model.server; or without --model history the present model scores the run",
    });
  }
  return { path: undefined, server: { ...server, version }, sha256: undefined };
}
