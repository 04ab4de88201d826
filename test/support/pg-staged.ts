import { type SpanProfile, profileRows, spanProfileText } from "#src/checks/span-profile.js";
import type { Plan, PlanTarget } from "#src/plan/plan.js";
import { spanAt } from "#src/plan/spans.js";
import type { Decision } from "#src/publish/decision.js";
import type { RunVerdict } from "#src/publish/run-verdict.js";
import type { Sink, StoredPlan } from "#src/sink/port.js";
import type { Database } from "./pg-database.js";
import type { BegunRun } from "./sink-drive.js";
import { begun, idsOf, outputOf, planFor, whole } from "./sinks.js";

interface PlanOptions {
  readonly rows?: number;
  readonly commitRows?: number;
  readonly runId?: string;
  readonly params?: Readonly<Record<string, string>>;
}

/** A plan whose rows are published together, after a decision. Param `ds` is the logical date. */
export function stagedPlan(target: PlanTarget, { params = {}, ...options }: PlanOptions = {}): Plan {
  const dateParam = "ds" in params ? "ds" : null;
  return { ...planFor(target, options), params, dateParam, staged: true, checks: { baseline: [], first: null } };
}

export function verdictOf(outcome: "publish" | "hold", writer = "host.1.abc"): RunVerdict {
  return {
    verdict: { outcome, runId: "job-000000000000", date: "", baseline: [], modelChanged: false, results: [] },
    dates: {},
    thresholds: { on_fail: "hold" },
    writer,
    at: "2026-11-23T04:05:06.789Z",
  };
}

export function decisionOf(kind: Decision["kind"], by = "ana"): Decision {
  const decision = { kind, by, at: "2026-11-23T08:00:00.120Z", reason: "she has seen the numbers", asBaseline: true };
  return kind === "superseded" ? { ...decision, successor: "job-000000000000-r2" as Plan["runId"] } : decision;
}

/** Commits all spans with their profiles. `scoreOf`: the prediction of a row by its number in the run. */
export async function commitProfiled(
  run: BegunRun,
  { plan }: StoredPlan,
  scoreOf?: (id: number) => number,
): Promise<void> {
  for (const [index, committed] of run.committed.entries()) {
    if (committed === 0) {
      const span = spanAt(plan, index);
      const rows = outputOf(idsOf(span), scoreOf);
      const profile = spanProfileText(profileRows(rows, [{ name: "score" }]));
      await run.commit(span, { ...whole(rows), profile });
    }
  }
}

/** The profile of all rows of a run at once. */
export function wholeProfile(rows: number, scoreOf?: (id: number) => number): SpanProfile {
  const ids = Array.from({ length: rows }, (_, id) => id);
  return profileRows(outputOf(ids, scoreOf), [{ name: "score" }]);
}

/** Carries a staged run to its publication. */
export async function publishStaged(sink: Sink, plan: Plan, scoreOf?: (id: number) => number): Promise<void> {
  const { stored, run } = await begun(sink, plan);
  await commitProfiled(run, stored, scoreOf);
  await run.judge(verdictOf("publish"));
  await run.decide(decisionOf("approved", "checks"));
  await run.finish();
}

/** Commits all spans of a staged run, which its verdict holds. */
export async function holdStaged(
  sink: Sink,
  plan: Plan,
  scoreOf?: (id: number) => number,
): Promise<{ stored: StoredPlan; run: BegunRun }> {
  const begunRun = await begun(sink, plan);
  await commitProfiled(begunRun.run, begunRun.stored, scoreOf);
  await begunRun.run.judge(verdictOf("hold"));
  return begunRun;
}

/** The state of each run, as people see it. */
export async function statesIn(database: Database): Promise<unknown[]> {
  const rows = await database.query("SELECT state FROM infer_batch.progress ORDER BY run_id");
  return rows.map(({ state }) => state);
}
