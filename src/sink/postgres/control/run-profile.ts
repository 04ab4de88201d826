import { mergeProfiles, noRows, parseProfile, type SpanProfile } from "../../../checks/profile/profile.js";
import type { Plan } from "../../../plan/plan.js";
import { spanCount } from "../../../plan/spans.js";
import { damagedRun } from "../damage.js";
import type { RunTools } from "../run-tools.js";

/** The profiles of a span take up to about 200 KiB. */
const spansPerQuery = 64;

/**
 * Merges the profiles of a run's committed spans. Reads a bounded number at a time.
 * @throws JobError OUTPUT_DAMAGED
 */
export async function committedProfile(
  { connections, control }: Pick<RunTools, "connections" | "control">,
  plan: Plan,
): Promise<SpanProfile> {
  let merged = noRows;
  for (let from = 0; from < spanCount(plan); from += spansPerQuery) {
    const { rows } = await connections.use((session) =>
      session.query<{ span: number; profile: string }>({
        text: `SELECT span, profile FROM ${control.table("spans")} WHERE run_id = $1 AND span >= $2 AND span < $3 ORDER BY span`,
        values: [plan.runId, from, from + spansPerQuery],
      }),
    );
    for (const { span, profile: text } of rows) {
      merged = mergeProfiles(merged, parseOrThrow(text, `${control.schema}.spans: the profile of span ${span}`, plan));
    }
  }
  return merged;
}

function parseOrThrow(text: string, where: string, { runId }: Plan): SpanProfile {
  try {
    return parseProfile(text);
  } catch {
    throw damagedRun(`reading ${where} of run ${runId} is not one`, {
      hint: "the control tables were changed; restore them from a backup",
      runId,
    });
  }
}
