import { profileRows, profileText, type SpanProfile } from "#src/checks/profile/profile.js";
import type { Plan } from "#src/run/plan/plan.js";
import { spanAt, spanCount } from "#src/run/plan/spans.js";
import type { Sink, StoredPlan } from "#src/targets/target.js";
import type { Database } from "./pg-database.js";
import type { BegunRun } from "./sink-drive.js";
import { begun, idsOf, outputOf, pgSink, type PgSinkOptions, whole } from "./sinks.js";
import { decisionOf, verdictOf } from "./staged-plans.js";
import { decisionDocument, verdictDocument } from "#src/stores/ledger.js";

/** Commits all spans with their profiles. `scoreOf`: the prediction of a row by its number in the run. */
export async function commitProfiled(
  run: BegunRun,
  { plan }: StoredPlan,
  scoreOf?: (id: number) => number,
): Promise<void> {
  for (let index = 0; index < spanCount(plan); index += 1) {
    if (!run.spans.has(index)) {
      const span = spanAt(plan, index);
      const rows = outputOf(idsOf(span), scoreOf);
      const profile = profileText(profileRows(rows, { predicted: [{ name: "score" }], carried: [], bins: 100 }));
      await run.commit(span, { ...whole(rows), profile });
    }
  }
}

export function wholeProfile(rows: number, scoreOf?: (id: number) => number): SpanProfile {
  const ids = Array.from({ length: rows }, (_, id) => id);
  return profileRows(outputOf(ids, scoreOf), { predicted: [{ name: "score" }], carried: [], bins: 100 });
}

export async function publishStaged(sink: Sink, plan: Plan, scoreOf?: (id: number) => number): Promise<void> {
  const { stored, run } = await begun(sink, plan);
  await commitProfiled(run, stored, scoreOf);
  await run.create(verdictDocument, verdictOf("publish"));
  await run.create(decisionDocument, decisionOf("approved", "checks"));
  await run.finish();
}

export async function holdStaged(
  sink: Sink,
  plan: Plan,
  scoreOf?: (id: number) => number,
): Promise<{ stored: StoredPlan; run: BegunRun }> {
  const begunRun = await begun(sink, plan);
  await commitProfiled(begunRun.run, begunRun.stored, scoreOf);
  await begunRun.run.create(verdictDocument, verdictOf("hold"));
  return begunRun;
}

/** Opens a sink of the database, which retries for 20 s. */
export function stagedSink(
  { url }: Database,
  spec: PgSinkOptions["postgres"],
  more: Partial<PgSinkOptions> = {},
): ReturnType<typeof pgSink> {
  return pgSink({ url, postgres: spec ?? {}, retrySeconds: 20, ...more });
}

export async function statesIn(database: Database): Promise<unknown[]> {
  const rows = await database.query("SELECT state FROM infer_batch.progress ORDER BY run_id");
  return rows.map(({ state }) => state);
}

export const moments = ["held", "approved"] as const;
export type Moment = (typeof moments)[number];

/** Changes a table while a run is held, or when it is approved. */
export async function changeAt(
  moment: Moment,
  { run }: { readonly run: BegunRun },
  change: () => Promise<unknown>,
): Promise<void> {
  const steps = [change, () => run.create(decisionDocument, decisionOf("approved"))];
  for (const step of moment === "held" ? steps : steps.toReversed()) {
    await step();
  }
}

/** SQL that stores that a person has approved a run, and publishes nothing. */
export function approvalSql(runId: string, by = "ann"): string {
  const decision = { kind: "approved", by, at: "2026-11-21T06:00:00.000Z", reason: null, asBaseline: false };
  return `INSERT INTO infer_batch.documents (run_id, name, version, document, writer)
    VALUES ('${runId}', 'decision', 1, '${JSON.stringify(decision)}', 'w')`;
}
