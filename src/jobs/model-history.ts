import { splitRunId } from "../plan/identity.js";
import type { PlannedModel, RunId } from "../plan/plan.js";
import { sameSeries } from "../plan/series.js";
import type { RecordedRun, RunStatus } from "../publish/recorded-run.js";

type Params = Readonly<Record<string, string>>;

/** The run of a date that is to be scored. */
export interface DatedJob {
  /** The text of the date in reports. */
  readonly value: string;
  /** The id of the first run with its params. */
  readonly runId: RunId;
  readonly params: Params;
}

/** The models of a date. */
export interface DatedModels {
  /** The model that scores the run of the date, or a new run that takes its place. */
  readonly scores: DatedModel;
  /** The model that an unfinished run of the date is resumed with; absent: there is no such run, or its model is `scores`. */
  readonly resumes?: DatedModel | undefined;
}

/** A model of a date. */
export interface DatedModel {
  readonly value: string;
  readonly model: PlannedModel;
  /** Where it comes from: a `published` run of this date, one of a date `before`, or an unfinished (`open`) run of this date. */
  readonly kind: "published" | "before" | "open";
  /** The date of the run whose model it is. */
  readonly of: string;
}

/**
 * Finds the model with which each date was published: of a date that was never published, that of the last published
 * date before it, which would have scored it then; never a later one. A run that an attempt can resume continues with
 * the model that it is planned with, but the run that replaces one does not: its checks may have held that model.
 * @param param the param whose values are the dates, which sort as texts
 * @returns undefined for a date before all published ones
 */
export function modelsOfDates(
  runs: readonly RecordedRun[],
  jobs: readonly DatedJob[],
  param: string,
): (DatedModels | undefined)[] {
  const byBase = new Map<string, Planned[]>();
  for (const { runId, status, plan, rolledBack } of runs) {
    if (plan !== undefined) {
      const { base, number } = splitRunId(runId);
      byBase.set(base, [
        ...(byBase.get(base) ?? []),
        { number, status, rolledBack, params: plan.params, model: plan.model },
      ]);
    }
  }
  const groups = [...byBase].map(([base, all]) => ({
    base,
    all: all.toSorted((one, other) => other.number - one.number),
  }));
  const published = groups.flatMap(({ all }) => all.find(wasPublished) ?? []);
  return jobs.map(({ value, runId, params }) => {
    const own = groups.find(({ base }) => base === runId)?.all ?? [];
    const known = publishedModel(own, value) ?? modelBefore(published, { value, params, param });
    const [latest] = own;
    if (latest === undefined || !openStatuses.has(latest.status)) {
      return known && { scores: known };
    }
    const planned: DatedModel = { value, model: latest.model, kind: "open", of: value };
    if (known === undefined) {
      return { scores: planned };
    }
    const resumes = latest.status !== "held" && !isSameModel(known.model, latest.model);
    return { scores: known, resumes: resumes ? planned : undefined };
  });
}

interface Planned extends Pick<RecordedRun, "status" | "rolledBack"> {
  readonly number: number;
  readonly params: Params;
  readonly model: PlannedModel;
}

/** Statuses of a run that is neither published nor over. */
const openStatuses: ReadonlySet<RunStatus> = new Set(["unfinished", "failed", "held"]);

/**
 * Whether readers got a run, and no person took it back. An approved run is published by the next attempt, before that
 * attempt does anything else.
 */
function wasPublished({ status, rolledBack = false }: Planned): boolean {
  return !rolledBack && (status === "published" || status === "pruned" || status === "approved");
}

function isSameModel(one: PlannedModel, other: PlannedModel): boolean {
  return pinsOf(one) === pinsOf(other);
}

function pinsOf({ uri, version, sha256, tokenizers }: PlannedModel): string {
  return JSON.stringify([uri, version, sha256, tokenizers]);
}

function publishedModel(own: readonly Planned[], value: string): DatedModel | undefined {
  const same = own.find(wasPublished);
  return same && { value, model: same.model, kind: "published", of: value };
}

/** The model of the published run of the series with the latest date before that of `params`. */
function modelBefore(
  published: readonly Planned[],
  { value, params, param }: Pick<DatedJob, "value" | "params"> & { readonly param: string },
): DatedModel | undefined {
  const date = params[param] ?? "";
  const dateOf = (run: Planned): string => run.params[param] ?? "";
  const before = published
    .filter((run) => dateOf(run) < date && sameSeries(run.params, params))
    .reduce<Planned | undefined>(
      (last, run) => (last === undefined || dateOf(run) > dateOf(last) ? run : last),
      undefined,
    );
  return before && { value, model: before.model, kind: "before", of: dateOf(before) };
}
