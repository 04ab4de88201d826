import { DatabaseError } from "pg";
import {
  mergeSpanProfiles,
  noRows,
  parseSpanProfile,
  type SpanProfile,
  type StoredProfile,
  withPrivatePart,
} from "../../../checks/span-profile.js";
import type { RunProfile } from "../../../checks/verdicts/run-profile.js";
import type { Plan } from "../../../plan/plan.js";
import { spanCount } from "../../../plan/spans.js";
import { type CommittedProfile, parseRunProfile } from "../../../publish/profile-text.js";
import type { JobError } from "../../../util/errors.js";
import { lostKey, lostKeyWarning, NotSealedWithKey, openSealed } from "../../sealing.js";
import { damagedRun } from "../damage.js";
import { refuseStopped } from "../locks.js";
import { showTable } from "../names.js";
import type { RunTools } from "../run-tools.js";
import { transact } from "../transaction.js";
import { readDecision } from "./decisions.js";
import { goneText, profileKeyTable, readProfileKey } from "./profile-key.js";

type Tools = Pick<RunTools, "connections" | "control" | "timeouts" | "warn" | "warnOnce">;

/** The profiles of a span take up to about 200 KiB. */
const spansPerQuery = 64;

/**
 * Merges the profiles of a run's committed spans. Reads a bounded number at a time.
 * @throws JobError OUTPUT_DAMAGED
 */
export async function committedProfile(tools: Tools, plan: Plan): Promise<CommittedProfile> {
  const { connections, control } = tools;
  let merged: SpanProfile | undefined;
  let sealed: FeatureSource | undefined;
  for (let from = 0; from < spanCount(plan); from += spansPerQuery) {
    const { rows } = await connections.use((session) =>
      session.query<{ span: number; profile: string }>({
        text: `SELECT span, profile FROM ${control.table("spans")} WHERE run_id = $1 AND span >= $2 AND span < $3 ORDER BY span`,
        values: [plan.runId, from, from + spansPerQuery],
      }),
    );
    for (const { span, profile } of rows) {
      const stored = parsedProfile(tools, plan, { span, profile });
      sealed ??= stored.sealed === undefined ? undefined : await featureSourceOf(tools, plan);
      const opened = await openedProfile(tools, plan, { span, stored, key: sealed?.key });
      merged = merged === undefined ? opened : mergeSpanProfiles(merged, opened);
    }
  }
  return { profile: merged ?? noRows, published: sealed?.published };
}

/**
 * What tells the features and slices of a run: a key that opens those of its spans, or the profile of the published run. With
 * neither of them, the run has no profiles of features and slices.
 */
interface FeatureSource {
  readonly key?: Buffer | undefined;
  readonly published?: RunProfile;
}

/**
 * A published run needs no key: its key is dropped after it is published, and may be there for longer. So whether it is
 * published is read before the key, and once more where there is no key.
 * @throws JobError OUTPUT_DAMAGED; errors of the server for a key that this role may not read
 */
async function featureSourceOf(tools: Tools, plan: Plan): Promise<FeatureSource> {
  const before = await publishedProfile(tools, plan);
  if (before !== undefined) {
    return { published: before };
  }
  const name = profileKeyTable(tools.control.schema, plan.runId);
  const { key, denied } = await readProfileKey(tools.connections, name).then(
    (found) => ({ key: found, denied: undefined }),
    (error: unknown) => ({ key: undefined, denied: deniedBy(error) }),
  );
  if (key !== undefined) {
    return { key };
  }
  const published = await publishedProfile(tools, plan);
  if (published !== undefined) {
    return { published };
  }
  await transact(tools, (session) => refuseStopped(session, tools.control, plan)); // the decision that stopped the run has dropped its key
  if (plan.staged && denied !== undefined) {
    throw denied; // a role that may read the key publishes the run with its features
  }
  if (await mayBeHeld(tools, plan)) {
    throw lostKey(plan.runId, showTable(name));
  }
  tools.warnOnce(lostKeyWarning(plan.runId, denied?.message ?? goneText(name)));
  return {};
}

/** Whether checks may hold a run: not one that is approved, nor one whose rows are published as they come. */
async function mayBeHeld(tools: Tools, { runId, staged }: Plan): Promise<boolean> {
  return (
    staged && (await transact(tools, (session) => readDecision(session, tools.control, runId)))?.kind !== "approved"
  );
}

const insufficientPrivilege = "42501";

/** Returns an error of a missing privilege. @throws any other error */
function deniedBy(error: unknown): DatabaseError {
  if (error instanceof DatabaseError && error.code === insufficientPrivilege) {
    return error;
  }
  throw error;
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

/** @throws JobError OUTPUT_DAMAGED */
function parsedProfile(
  tools: Tools,
  plan: Plan,
  { span, profile }: { readonly span: number; readonly profile: string },
): StoredProfile {
  try {
    return parseSpanProfile(profile);
  } catch {
    throw damagedProfile(tools, plan, { span, found: notOne });
  }
}

interface OpenedSpan {
  readonly span: number;
  readonly stored: StoredProfile;
  readonly key: Buffer | undefined;
}

const notOne = "is not one";
const sealedOtherwise = "was sealed with another key";

/** @throws JobError OUTPUT_DAMAGED if the run may be held: its features must be known */
async function openedProfile(tools: Tools, plan: Plan, { span, stored, key }: OpenedSpan): Promise<SpanProfile> {
  const { profile, sealed } = stored;
  if (sealed === undefined || key === undefined) {
    return profile;
  }
  try {
    return withPrivatePart(profile, openSealed(key, { runId: plan.runId, span }, sealed));
  } catch (error) {
    const isSealed = error instanceof NotSealedWithKey;
    if (!isSealed || (await mayBeHeld(tools, plan))) {
      throw damagedProfile(tools, plan, { span, found: isSealed ? sealedOtherwise : notOne });
    }
    tools.warnOnce(lostKeyWarning(plan.runId, `that of a span ${sealedOtherwise}`));
    return profile;
  }
}

function damagedProfile(
  { control }: Tools,
  { runId }: Plan,
  { span, found }: { readonly span: number; readonly found: string },
): JobError {
  return damagedRun(`reading ${control.schema}.spans: the profile of span ${span} of run ${runId} ${found}`, {
    hint: "the control tables were changed; restore them from a backup",
    runId,
  });
}
