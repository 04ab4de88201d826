import type { CheckResult, Level } from "../../checks/verdicts/verdict.js";
import type { Outcome } from "../outcome.js";
import type { RunReview } from "../run-review.js";

/** A gauge in Prometheus' text format; samples without a value are left out. */
export interface Gauge {
  readonly name: string;
  readonly help: string;
  readonly samples: readonly { readonly labels?: Labels; readonly value: number | undefined }[];
}

export type Labels = Readonly<Record<string, string>>;

/** Checks of columns that have gauges; of more, those with the worst results. */
const mostChecks = 300;

/** Higher is worse; the values of `infer_batch_check_result`. */
const severity: Readonly<Record<Level, number>> = { pass: 0, warn: 1, hold: 2 };

/** Gauges of each check of the run and its columns; none for a run that is not judged. */
export function checkGauges(review: RunReview | undefined): Gauge[] {
  const results = worstByColumn(review?.verdict?.verdict.results ?? []);
  const gauge = (name: string, help: string, of: (result: CheckResult) => number | string): Gauge => ({
    name: `infer_batch_check_${name}`,
    help,
    samples: results.map((result) => {
      const value = of(result);
      const labels = { check: result.check, column: result.column ?? "" };
      return { labels, value: typeof value === "number" && Number.isFinite(value) ? value : undefined };
    }),
  });
  return [
    gauge(
      "value",
      "What a check measured, by column; without a column it is about the run",
      (result) => result.measured,
    ),
    gauge("limit", "The limit that the value is compared with", (result) => result.limit),
    gauge("result", "0: the check passed, 1: it warns, 2: it fails and holds the run", ({ level }) => severity[level]),
  ];
}

/** One result for each check and column, the worst, since labels name no more than these. */
function worstByColumn(results: readonly CheckResult[]): CheckResult[] {
  const worst = new Map<string, CheckResult>();
  for (const result of results) {
    const key = JSON.stringify([result.check, result.column]);
    const known = worst.get(key);
    if (known === undefined || severity[result.level] > severity[known.level]) {
      worst.set(key, result);
    }
  }
  const sorted = [...worst.values()].toSorted((one, other) => severity[other.level] - severity[one.level]);
  return sorted.slice(0, mostChecks);
}

const stateMetric = "infer_batch_run_state";
const states = ["unfinished", "held", "published", "discarded"] as const;
type State = (typeof states)[number];

/** A sample for each state, 1 for that of the run when the attempt ended. */
export function stateGauge(outcome: Outcome | undefined): Gauge {
  const state = stateAfter(outcome);
  return {
    name: stateMetric,
    help: "1 for the state of the run after the attempt",
    samples: states.map((each) => ({
      labels: { state: each },
      value: state === undefined ? undefined : Number(each === state),
    })),
  };
}

/** undefined: the attempt is running, or it failed before it knew. */
function stateAfter(outcome: Outcome | undefined): State | undefined {
  if (outcome?.kind !== "done") {
    return undefined;
  }
  const { status } = outcome.report;
  return status === "held" || status === "discarded" ? status : status === "partial" ? "unfinished" : "published";
}

/** Metrics of a run on which a person decided since; the text as it is if they are of another run. */
export function decidedMetrics(text: string, { runId, state }: { runId: string; state: State }): string {
  if (!text.includes(`run_id="${runId}"`)) {
    return text;
  }
  return text.replaceAll(
    new RegExp(`^(${stateMetric}\\{.*state="(\\w+)"\\}) [01]$`, "gm"),
    (_, sample: string, each: string) => `${sample} ${Number(each === state)}`,
  );
}
