import { runIdOf } from "../plan/identity.js";
import type { RunId } from "../plan/plan.js";
import { type DateRange, findRange, type RangeStep, rangeValues, stepOf } from "../jobs/backfill.js";
import type { LoadedSpec } from "../spec/load.js";
import { JobError } from "../util/errors.js";
import { type JobOptions, type LoadWith, readSpecOnce } from "./reading/read-spec.js";
import { sha256Of } from "../util/sha256.js";

/** The job with one value of the range. */
export interface BackfillJob {
  /** The text of the value in reports. */
  readonly value: string;
  readonly runId: RunId;
  /** Loads the spec with the value of the job, which is already checked. */
  readonly load: () => LoadedSpec;
}

export interface BackfillJobs {
  readonly range: DateRange;
  /** The jobs, in the order of their values. */
  readonly jobs: readonly BackfillJob[];
  /** The spec with the first value. */
  readonly first: LoadedSpec;
}

/**
 * Reads a spec, and checks it with each value of the range that `--param name=A..B` gives.
 * @throws JobError USAGE, SPEC_INVALID
 */
export async function readBackfill(
  specPath: string,
  { param, step: asked }: JobOptions & { readonly step?: RangeStep | undefined },
): Promise<BackfillJobs> {
  const { range, others } = findRange(param);
  const step = stepOf(range, asked);
  const load = await readSpecOnce(specPath, { param: others });
  const hourParam = step === "hour" ? hourParamOf(load, range) : undefined;
  const values = rangeValues(range, step, hourParam);
  const loadFirst = (index: number): LoadedSpec => forBackfill(load(values[index]?.params ?? {}));
  const first = loadFirst(0);
  const second = values.length > 1 ? loadFirst(1) : undefined;
  refuseClock(range, first);
  if (second !== undefined) {
    refuseSameRows(specPath, range, [first, second]);
  }
  const sharesPage = second !== undefined && first.spec.report.html === second.spec.report.html;
  const prepare = sharesPage ? withoutPage : (loaded: LoadedSpec): LoadedSpec => loaded;
  const jobs = values.map(({ text, params }) => {
    const { name, params: all } = load(params).spec;
    return {
      value: text,
      runId: runIdOf(name, all, sha256Of),
      load: () => prepare(forBackfill(load(params))),
    };
  });
  return { range, jobs, first };
}

/**
 * Finds the param that has the hour; undefined: the param with the range has date and hour, or the spec has no hour.
 */
function hourParamOf(load: LoadWith, { param, first }: DateRange): string | undefined {
  const { hourParam } = load({ [param]: first.slice(0, "2026-01-01".length) });
  return hourParam === param ? undefined : hourParam;
}

/**
 * Returns the spec as a backfill carries it out. A backfill does not wait for input, because input of past dates does
 * not arrive later. It writes no metrics, calls no URLs and has no deadline, because these report on the scheduled run
 * of the job. Lineage events are sent, because each run makes a version of the dataset.
 */
function forBackfill(loaded: LoadedSpec): LoadedSpec {
  const { spec } = loaded;
  const { html, openlineage, method, timeout } = spec.report;
  const silent = { on_success: "", on_failure: "", on_held: "", on_late: "", method, timeout };
  const report = { ...silent, html, openlineage };
  return { ...loaded, spec: { ...spec, input: { ...spec.input, wait: 0 }, report } };
}

/** Refuses params from the clock: the same command would plan different runs tomorrow. */
function refuseClock({ param }: DateRange, { clock: [key] }: LoadedSpec): void {
  if (key === undefined) {
    return;
  }
  const name = key.startsWith("params.") ? key.slice("params.".length) : undefined;
  throw new JobError(
    "USAGE",
    `reading the spec: ${key} comes from the clock, so the same backfill would plan different runs tomorrow`,
    {
      hint:
        name === undefined
          ? `declare the value under params, computed from \${${param}}`
          : `set it: --param ${name}=…, or compute it from \${${param}}`,
    },
  );
}

/** Rejects a range of a param that the rest of the spec does not use. */
function refuseSameRows(specPath: string, { param }: DateRange, loaded: readonly LoadedSpec[]): void {
  const [one, other] = loaded.map(({ spec }) => JSON.stringify({ ...spec, params: {} }));
  if (one === other) {
    throw new JobError(
      "USAGE",
      `reading ${specPath}: no key uses \${${param}}, so all runs would score the same rows`,
      {
        hint: `write \${${param}} into input.path or input.where, and into output.parquet.path`,
      },
    );
  }
}

function withoutPage(loaded: LoadedSpec): LoadedSpec {
  const { html: _, ...report } = loaded.spec.report;
  return { ...loaded, spec: { ...loaded.spec, report } };
}
