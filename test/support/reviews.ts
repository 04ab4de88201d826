import { defaultLimits } from "#src/checks/check.js";
import { earlierThan, judge } from "#src/checks/checks.js";
import type { ColumnProfile } from "#src/checks/profile/column.js";
import { countsText, resultLines, toCorrect, warningsText } from "#src/run/lifecycle/verdict-text.js";
import type { AttemptRecord, RunReview } from "#src/report/attempt-record.js";
import type { Outcome } from "#src/report/report.js";
import { JobError } from "#src/base/errors.js";
import { type Names, partly, recordOf } from "./records.js";
import { nightsBefore, normals, numbersProfile, runProfile, textsProfile } from "./run-profiles.js";

/** A run after its checks: what its page and metrics are made from. */
export interface ReviewedRun {
  readonly record: AttemptRecord;
  readonly outcome: Outcome;
  readonly review: RunReview;
}

const commands = {
  approve: "infer-batch approve job.yaml --param ds=2026-11-23 --run daily-0123456789ab",
  discard: "infer-batch discard job.yaml --param ds=2026-11-23 --run daily-0123456789ab",
  newRun: "infer-batch run job.yaml --param ds=2026-11-23 --new-run",
  joinsBaseline: true,
};

const plan = { params: { ds: "2026-11-23" }, dateParam: "ds" };
const readers = { run: { runId: "daily-22", params: { ds: "2026-11-22" } } };

/** A column of 400 normally distributed numbers, `shift` apart from those of other nights. */
export function scores(shift: number, seed = 1): ColumnProfile {
  return numbersProfile(normals(400, { mean: shift, seed }));
}

/** A run with nine nights before it, judged by the default checks: held where `shift` moves its score. */
export function reviewedRun(
  shift: number,
  {
    outputs = {},
    rows = 400,
    ...names
  }: Names & { readonly outputs?: Readonly<Record<string, ColumnProfile>>; readonly rows?: number } = {},
): ReviewedRun {
  const earlier = nightsBefore(9, (ago) => ({
    rows: 400,
    outputs: { score: scores(0, ago), label: textsProfile({ yes: 100, no: 300 }), ...outputs },
    features: { age: scores(40, ago) },
  }));
  const profile = runProfile({
    rows,
    outputs: { score: scores(shift, 20), label: textsProfile({ yes: 101, no: 299 }), ...outputs },
    features: { age: scores(40, 20) },
  });
  const verdict = {
    verdict: judge({ run: profile, earlier: earlierThan(profile.date, earlier), limits: defaultLimits }),
    dates: Object.fromEntries(earlier.map(({ runId, date }) => [runId, date])),
    thresholds: {},
    writer: "test",
    at: "2026-11-23T04:00:00.000Z",
  };
  const review = { profile, earlier, verdict, plan, readers, seconds: new Map([[profile.runId, 1]]) };
  const record = recordOf(names);
  record.setReview(review);
  return { record, review, outcome: outcomeOf(review, verdict.verdict.outcome === "hold") };
}

function outcomeOf({ verdict }: RunReview, isHeld: boolean): Outcome {
  if (partly.kind !== "done" || verdict === undefined) {
    throw new Error("a run that is judged has a report");
  }
  const { outcome } = verdict.verdict;
  return {
    kind: "done",
    report: {
      ...partly.report,
      status: isHeld ? "held" : "complete",
      verdict: {
        outcome,
        failed: resultLines(verdict, "hold"),
        warnings: resultLines(verdict, "warn"),
        warned: warningsText(verdict),
        counts: countsText(verdict.verdict),
        toCorrect: toCorrect(verdict.verdict),
        comparedWith: verdict.verdict.baseline,
        notes: [],
      },
      ...(isHeld ? { decided: { error: new JobError("HELD", "held"), isOwnVerdict: true, commands } } : {}),
    },
  };
}
