import { mergeProfiles, noRows, parseProfile, type SpanProfile } from "../../checks/profile/profile.js";
import { spanCount } from "../../plan/spans.js";
import { refuseStopped } from "./control-files.js";
import { damagedOutput } from "./damage.js";
import { type CommittedSpans, partProfiles, type RunFolder } from "./parts.js";

/** Merges the profiles of all spans. @throws JobError OUTPUT_DAMAGED, DISCARDED, PLAN_CHANGED */
export async function committedProfile(target: RunFolder, known: CommittedSpans): Promise<SpanProfile> {
  const spans = spanCount(target.stored.plan);
  const texts =
    known.profiled.size === spans
      ? new Map<number, string>()
      : await partProfiles(target, (span) => !known.profiled.has(span));
  if (known.profiled.size + texts.size < spans) {
    await refuseStopped(target);
    const { folder, runId } = target.layout;
    throw damagedOutput(`checking ${folder}: committed parts are gone, or have no profile`, {
      hint: "restore them",
      damage: { runId },
    });
  }
  let { profile } = known;
  for (const text of texts.values()) {
    const span = parseProfile(text);
    profile = profile === undefined ? span : mergeProfiles(profile, span);
  }
  return profile ?? noRows;
}
