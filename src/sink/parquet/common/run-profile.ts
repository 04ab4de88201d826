import { hasSealedPart, mergeSpanProfiles, parseSpanProfile, type SpanProfile } from "../../../checks/span-profile.js";
import type { RunProfile } from "../../../checks/verdicts/run-profile.js";
import type { SpanOutput } from "../../../columnar/types.js";
import type { RunId } from "../../../plan/plan.js";
import { spanCount } from "../../../plan/spans.js";
import { type CommittedProfile, parseRunProfile } from "../../../publish/profile-text.js";
import { requireApproved } from "../../../publish/require-approved.js";
import { JobError } from "../../../util/errors.js";
import { newProfileKey, NotSealedWithKey, openSealed, parseProfileKey, sealedProfile } from "../../sealing.js";
import { partProfiles, type Target } from "./committed-parts.js";
import type { CommittedSpans } from "./committed-spans.js";
import { readDecision, sha256Of } from "./control-files.js";
import { damagedOutput } from "./damage.js";
import { ifThere } from "./file-system.js";
import { layoutOf } from "./layout.js";
import { checkFinished } from "./manifest.js";

/**
 * Seals the profiles of spans that this attempt commits. All attempts of a run share the key of the first one that
 * commits a profile with a part to seal.
 */
export function profileSealer(
  target: Target,
  createOnce: (path: string, text: string) => Promise<void>,
): (span: number, output: SpanOutput) => Promise<SpanOutput> {
  const { runId, profileKey } = target.layout;
  let key: Promise<Buffer> | undefined;
  return async (span, output) => {
    if (output.privateProfile === undefined) {
      return output;
    }
    key ??= keyOf(target, () => createOnce(profileKey, `${newProfileKey()}\n`));
    const known = await key.catch((error: unknown) => {
      key = undefined; // the step is repeated
      throw error;
    });
    return { ...output, profile: sealedProfile(known, { runId, span }, output) };
  };
}

async function keyOf(target: Target, create: () => Promise<void>): Promise<Buffer> {
  const there = await readKey(target);
  if (there !== undefined) {
    return there;
  }
  await create();
  const created = await readKey(target);
  if (created === undefined) {
    const { profileKey, runId } = target.layout;
    throw damagedOutput(`writing ${profileKey}: it is gone since it was written, or is not a key of this program`, {
      hint: "something else changes files here; run the same command again",
      damage: { runId },
    });
  }
  return created;
}

async function readKey({ fs, layout }: Target): Promise<Buffer | undefined> {
  const text = await ifThere(fs.readText(layout.profileKey));
  return text === undefined ? undefined : parseProfileKey(text);
}

/** Merges the profiles of all spans; undefined where a span has none. @throws JobError OUTPUT_DAMAGED */
export async function committedProfile(target: Target, known: CommittedSpans): Promise<CommittedProfile | undefined> {
  if (known.isProfileUnknown) {
    return undefined;
  }
  const spans = spanCount(target.stored.plan);
  const others =
    known.profiled.size === spans ? new Map() : await partProfiles(target, (span) => !known.profiled.has(span));
  if (known.profiled.size + others.size < spans) {
    return undefined;
  }
  if (!known.isSealed && ![...others.values()].some(hasSealedPart)) {
    return { profile: merged(known, others) };
  }
  const profile = known.isSealed ? undefined : await openedProfile(target, known, others);
  if (profile !== undefined) {
    return { profile };
  }
  // Without the key, the run is published, or the erasure of one that is.
  const published = (await publishedProfile(target)) ?? (await refuseWithoutKey(target));
  return { profile: merged(known, others), published };
}

/** The profile with the parts that the run's key opens; undefined: there is no key that does. */
async function openedProfile(
  target: Target,
  known: CommittedSpans,
  others: ReadonlyMap<number, string>,
): Promise<SpanProfile | undefined> {
  const { runId } = target.layout;
  const key = await readKey(target);
  try {
    return key && merged(known, others, (span, sealed) => openSealed(key, { runId, span }, sealed));
  } catch (error) {
    if (error instanceof NotSealedWithKey) {
      return undefined; // a late attempt has made another one
    }
    throw error;
  }
}

async function refuseWithoutKey({ fs, layout, stored, check }: Target): Promise<never> {
  const { runId } = layout;
  await check(); // a later run may have removed the key
  const decision = stored.plan.staged ? await readDecision(fs, layout) : undefined;
  if (decision !== undefined) {
    requireApproved(decision, runId); // the command that discarded the run has removed the key
  }
  throw new JobError(
    "OUTPUT_DAMAGED",
    `reading the profiles of run ${runId}: the key of its features, ${layout.profileKey}, is gone or is another one`,
    { hint: "discard the run, and score again with --new-run", damage: { runId } },
  );
}

function merged(
  { profile }: CommittedSpans,
  others: ReadonlyMap<number, string>,
  open?: (span: number, sealed: string) => string,
): SpanProfile {
  const all = [...others].map(([span, text]) => parseSpanProfile(text, open && ((sealed) => open(span, sealed))));
  const first = profile ?? all.shift();
  return first === undefined ? noRows : all.reduce(mergeSpanProfiles, first);
}

/** The profile of a run without spans. */
const noRows: SpanProfile = { rows: 0, columns: new Map() };

/**
 * The stored profile of a run whose key is gone: the run is published, also where a person has removed `_SUCCESS` since. An
 * erasure has the features and slices of the run that its rows are of. undefined: the run is not published.
 * @throws JobError OUTPUT_DAMAGED if it is gone
 */
async function publishedProfile({ fs, layout, stored }: Target): Promise<RunProfile | undefined> {
  const manifest = await checkFinished(fs, layout, stored);
  const own = (await ifThere(fs.readText(layout.profile))) ?? "";
  const runId = manifest === undefined && own === "" ? (stored.plan.erasure?.of as RunId | undefined) : layout.runId;
  if (runId === undefined) {
    return undefined;
  }
  const path = layoutOf(layout.folder, runId).profile;
  const text = runId === layout.runId ? own : ((await ifThere(fs.readText(path))) ?? "");
  const profile =
    manifest === undefined || manifest.profile?.sha256 === sha256Of(text) ? parseRunProfile(text) : undefined;
  if (profile === undefined) {
    throw damagedOutput(`reading ${path}: the profile of run ${runId} is gone, or is another one`, {
      hint: "restore it",
      damage: { runId },
    });
  }
  return profile;
}
