import { hasSealedPart, mergeSpanProfiles, parseSpanProfile, type SpanProfile } from "../../../checks/span-profile.js";
import type { RunProfile } from "../../../checks/verdicts/run-profile.js";
import type { Plan } from "../../../plan/plan.js";
import { spanCount } from "../../../plan/spans.js";
import { type CommittedProfile, parseRunProfile } from "../../../publish/profile-text.js";
import { JobError } from "../../../util/errors.js";
import { NotSealedWithKey, openSealed } from "../../sealing.js";
import { damagedRun } from "../damage.js";
import { refuseStopped } from "../locks.js";
import { showTable } from "../names.js";
import type { RunTools } from "../run-tools.js";
import { transact } from "../transaction.js";
import { profileKeyTable, readProfileKey } from "./profile-key.js";

type Tools = Pick<RunTools, "connections" | "control" | "timeouts" | "warn">;

/** The profiles of a span take up to 192 KiB. */
const spansPerQuery = 64;

/**
 * Merges the profiles of a run's committed spans; undefined where a span has none. Reads a bounded number at a time.
 * @throws JobError OUTPUT_DAMAGED
 */
export async function committedProfile(tools: Tools, plan: Plan): Promise<CommittedProfile | undefined> {
  const { connections, control } = tools;
  let merged: SpanProfile | undefined;
  let sealed: Sealed | undefined;
  for (let from = 0; from < spanCount(plan); from += spansPerQuery) {
    const { rows } = await connections.use((session) =>
      session.query<{ span: number; profile: string | null }>({
        text: `SELECT span, profile FROM ${control.table("spans")} WHERE run_id = $1 AND span >= $2 AND span < $3 ORDER BY span`,
        values: [plan.runId, from, from + spansPerQuery],
      }),
    );
    for (const { span, profile } of rows) {
      if (profile === null) {
        return undefined;
      }
      if (hasSealedPart(profile)) {
        sealed ??= await sealedOf(tools, plan);
      }
      const parsed = parsedProfile(tools, plan, { span, profile, sealed });
      merged = merged === undefined ? parsed : mergeSpanProfiles(merged, parsed);
    }
  }
  return merged && { profile: merged, published: sealed?.published };
}

/** What tells the features and slices of a run: a key that opens those of its spans, or the profile of the published run. */
type Sealed =
  | { readonly key: Buffer; readonly published?: undefined }
  | { readonly published: RunProfile; readonly key?: undefined };

/** The key of a published run is dropped after the run is published. */
async function sealedOf(tools: Tools, plan: Plan): Promise<Sealed> {
  const name = profileKeyTable(tools.control.schema, plan.runId);
  const key = await readProfileKey(tools.connections, name);
  if (key !== undefined) {
    return { key };
  }
  const published = await publishedProfile(tools, plan);
  if (published !== undefined) {
    return { published };
  }
  await transact(tools, (session) => refuseStopped(session, tools.control, plan)); // what stopped it has dropped the key
  throw new JobError(
    "OUTPUT_DAMAGED",
    `reading the profiles of run ${plan.runId}: the key of its features, ${showTable(name)}, is gone`,
    { hint: "discard the run, and score again with --new-run", damage: { runId: plan.runId } },
  );
}

/** @throws JobError OUTPUT_DAMAGED if the run was published, and its profile is gone */
async function publishedProfile({ connections, control }: Tools, { runId }: Plan): Promise<RunProfile | undefined> {
  const { rows } = await connections.use((session) =>
    session.query<{ profile: string | null }>({
      text: `SELECT profile FROM ${control.table("finishes")} WHERE run_id = $1`,
      values: [runId],
    }),
  );
  const [row] = rows;
  if (row === undefined) {
    return undefined;
  }
  const profile = parseRunProfile(row.profile ?? "");
  if (profile === undefined) {
    throw damagedRun(`reading ${control.schema}.finishes: the profile of run ${runId} is gone, or is not one`, {
      hint: "the control tables were changed; restore them from a backup",
      runId,
    });
  }
  return profile;
}

interface StoredProfile {
  readonly span: number;
  readonly profile: string;
  readonly sealed: Sealed | undefined;
}

function parsedProfile({ control }: Tools, { runId }: Plan, { span, profile, sealed }: StoredProfile): SpanProfile {
  const key = sealed?.key;
  try {
    return parseSpanProfile(profile, key && ((text) => openSealed(key, { runId, span }, text)));
  } catch (error) {
    const found = error instanceof NotSealedWithKey ? "was sealed with another key" : "is not one";
    throw damagedRun(`reading ${control.schema}.spans: the profile of span ${span} of run ${runId} ${found}`, {
      hint: "the control tables were changed; restore them from a backup",
      runId,
    });
  }
}
