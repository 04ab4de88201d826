import { type Finding, type Level, roleOf } from "../../checks/check.js";
import type { Outcome } from "../outcome.js";
import type { RunReview } from "../run-review.js";

/** A gauge in Prometheus' text format; samples without a value are left out. */
export interface Gauge {
  readonly name: string;
  readonly help: string;
  readonly samples: readonly { readonly labels?: Labels; readonly value: number | undefined }[];
}

export type Labels = Readonly<Record<string, string>>;

const checkMetric = "infer_batch_check";
/** The gauge that each check of a run has. */
export const checkResultMetric = `${checkMetric}_result`;

/** The limit of results that have gauges. The worst results come first. */
const mostChecks = 300;

/** The values of `infer_batch_check_result`. Higher is worse. */
const severity: Readonly<Record<Level, number>> = { pass: 0, warn: 1, hold: 2 };

/** Makes gauges of each check of the run and its columns; none for a run without a verdict. */
export function checkGauges(review: RunReview | undefined): Gauge[] {
  const results = worstByColumn(review?.verdict?.verdict.results ?? []);
  const gauge = (name: string, help: string, of: (result: Finding) => number | string): Gauge => ({
    name: `${checkMetric}_${name}`,
    help,
    samples: results.map((result) => {
      const value = of(result);
      const labels = { check: result.check, column: result.column ?? "", role: roleOf(result) };
      return { labels, value: typeof value === "number" && Number.isFinite(value) ? value : undefined };
    }),
  });
  return [
    gauge(
      "value",
      "The value that a check measured, by column; without a column, it is about the run",
      (result) => result.measured,
    ),
    gauge("limit", "The limit that the value is compared with", (result) => result.limit),
    gauge("result", "0: the check passed, 1: it warns, 2: it fails and holds the run", ({ level }) => severity[level]),
  ];
}

/** Returns the worst result for each check and column, since the labels name no more. */
function worstByColumn(results: readonly Finding[]): Finding[] {
  const worst = new Map<string, Finding>();
  for (const result of results) {
    const key = JSON.stringify([result.check, result.column, roleOf(result)]);
    const known = worst.get(key);
    if (known === undefined || severity[result.level] > severity[known.level]) {
      worst.set(key, result);
    }
  }
  const sorted = [...worst.values()].toSorted((one, other) => severity[other.level] - severity[one.level]);
  return sorted.slice(0, mostChecks);
}

/** The gauge with the state of a run. */
export const stateMetric = "infer_batch_run_state";
const states = ["unfinished", "held", "published", "discarded"] as const;
/** The state of a run in its metrics. */
export type MetricsRunState = (typeof states)[number];

/** Makes a gauge with a sample for each state: 1 for the state of the run when the attempt ended, 0 for the others. */
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

/** Returns the state of the run after an attempt; undefined: the attempt is running, or it failed. */
function stateAfter(outcome: Outcome | undefined): MetricsRunState | undefined {
  if (outcome?.kind !== "done") {
    return undefined;
  }
  const { status } = outcome.report;
  return status === "held" || status === "discarded" ? status : status === "partial" ? "unfinished" : "published";
}
