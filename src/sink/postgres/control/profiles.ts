import type { PinnedRun, RunId } from "../../../plan/plan.js";
import { earlierDateIn, type PublishedRun, type Series, whyLeftOut } from "../../../publish/published-run.js";
import { JobError } from "../../../util/errors.js";
import type { Session } from "../connections.js";
import { type Control, sha256Of } from "./control.js";

interface PublishedRow {
  readonly run_id: RunId;
  readonly params: Readonly<Record<string, string>>;
  readonly profile_sha256: string;
  readonly seconds: number | null;
  readonly model_sha256: string;
  /** Who decided on a run that later runs are not compared with; null: they are. */
  readonly left_out_by: string | null;
}

/**
 * Finds the published runs of a series with earlier dates whose profiles are stored: of each date the one that was
 * published last. Runs that were rolled back do not count, nor, unless every run is asked for, those that a person approved
 * with --not-normal, and those that were expected to differ.
 */
export async function publishedRuns(
  session: Session,
  control: Control,
  { target, series }: { readonly target: string; readonly series: Series },
): Promise<readonly PublishedRun[]> {
  const { rows } = await session.query<PublishedRow>({
    text: `SELECT r.run_id, r.params, f.profile_sha256, f.model_sha256, d.by AS left_out_by,
        CASE WHEN $4 THEN ${secondsSql(control, "r.run_id")} END AS seconds
      FROM ${control.table("finishes")} f JOIN ${control.table("runs")} r USING (run_id)
        LEFT JOIN ${control.table("decisions")} d ON d.run_id = r.run_id AND NOT d.as_baseline
      WHERE f.target = $1 AND r.job = $2 AND f.profile IS NOT NULL
        AND ($3 OR d.run_id IS NULL)
        AND NOT EXISTS (SELECT FROM ${control.table("swaps")} s WHERE s.run_id = r.run_id AND s.action = 'rollback')
      ORDER BY f.publication`,
    values: [target, series.job, series.everyRun === true || series.withLeftOut === true, series.withSeconds === true],
  });
  const byDate = new Map<string, PublishedRun>();
  for (const row of rows) {
    const { run_id: runId, params, profile_sha256: sha256, model_sha256: modelSha256, left_out_by: by } = row;
    const date = earlierDateIn(series, { job: series.job, params });
    if (date !== undefined) {
      const leftOut = series.withLeftOut === true && by !== null ? whyLeftOut(by) : undefined;
      const seconds = row.seconds ?? undefined;
      byDate.delete(`${date} ${leftOut ?? ""}`); // the order is that of the last run of each date
      byDate.set(`${date} ${leftOut ?? ""}`, { runId, date, sha256, modelSha256, place: "", leftOut, seconds });
    }
  }
  return [...byDate.values()];
}

/** How long a run was scored: from the start of its first attempt to its last commit. @param id SQL for the id of the run */
export function secondsSql({ table }: Control, id: string): string {
  return `extract(epoch FROM (SELECT max(s.committed_at) FROM ${table("spans")} s WHERE s.run_id = ${id})
    - (SELECT min(a.started_at) FROM ${table("attempts")} a WHERE a.run_id = ${id}))::float8`;
}

/** Returns how long a run was scored so far; undefined: nothing is committed. */
export async function scoredSeconds(session: Session, control: Control, runId: RunId): Promise<number | undefined> {
  const { rows } = await session.query<{ seconds: number | null }>({
    text: `SELECT ${secondsSql(control, "$1")} AS seconds`,
    values: [runId],
  });
  return rows[0]?.seconds ?? undefined;
}

/** Reads the profile of a published run. @throws JobError DATABASE when it is gone, or is another one */
export async function publishedProfile(
  session: Session,
  control: Control,
  { runId, sha256 }: PinnedRun,
): Promise<string> {
  const { rows } = await session.query<{ profile: string | null }>({
    text: `SELECT profile FROM ${control.table("finishes")} WHERE run_id = $1`,
    values: [runId],
  });
  const profile = rows[0]?.profile;
  if (typeof profile !== "string" || sha256Of(profile) !== sha256) {
    const found = typeof profile === "string" ? "is not the one that the plan names" : "is gone";
    throw new JobError("DATABASE", `reading ${control.schema}.finishes: the profile of run ${runId} ${found}`, {
      hint: "the control tables were changed; restore them from a backup, or start over with --new-run",
    });
  }
  return profile;
}
