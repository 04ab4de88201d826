import {
  mergeSpanProfiles,
  noRows,
  parseSpanProfile,
  type SpanProfile,
  withPrivatePart,
} from "../../checks/span-profile.js";
import type { RunProfile } from "../../checks/verdicts/run-profile.js";
import type { SpanOutput } from "../../columnar/types.js";
import type { RunId } from "../../plan/plan.js";
import { spanCount } from "../../plan/spans.js";
import { type CommittedProfile, parseRunProfile } from "../../publish/profile-text.js";
import {
  lostKey,
  lostKeyWarning,
  newProfileKey,
  NotSealedWithKey,
  openSealed,
  parseProfileKey,
  sealedProfile,
} from "../sealing.js";
import { type CommittedSpans, partProfiles, type RunFolder } from "./parts.js";
import { refuseStopped, sha256Of } from "./control-files.js";
import { damagedOutput } from "./damage.js";
import { type Fence, textAt } from "../../stores/store.js";
import { layoutOf } from "./layout.js";
import { checkFinished } from "./manifest.js";

/** The steps of sealing that disks and S3 do differently. */
export interface KeyStore {
  /** The fence of the key. */
  readonly fence: Fence;
  /** Tells the user that the run is published without features, once. */
  readonly warn: (message: string) => void;
}

/**
 * Seals the profiles of spans that this attempt commits. All attempts of a run share the key of the first one that
 * commits a profile with a part to seal.
 */
export function profileSealer(
  target: RunFolder,
  known: Pick<CommittedSpans, "parts">,
  keys: KeyStore,
): (span: number, output: SpanOutput) => Promise<SpanOutput> {
  const { runId } = target.layout;
  let key: Promise<Buffer> | undefined;
  return async (span, output) => {
    if (output.privateProfile === undefined) {
      return output;
    }
    key ??= keyOf(target, known, keys);
    const made = await key.catch((error: unknown) => {
      key = undefined; // the step is repeated
      throw error;
    });
    return { ...output, profile: sealedProfile(made, { runId, span }, output) };
  };
}

async function keyOf(target: RunFolder, known: Pick<CommittedSpans, "parts">, keys: KeyStore): Promise<Buffer> {
  const { profileKey, runId } = target.layout;
  await reportIfLost(target, known, keys);
  // Also if there is a key: the attempt that made it may have died before it flushed the name.
  await target.store.create(profileKey, `${newProfileKey()}\n`, keys.fence);
  const key = await readKey(target);
  if (key === undefined) {
    throw damagedOutput(`writing ${profileKey}: it is gone since it was written, or is not a key of this program`, {
      hint: "something else changes files here; remove it, and run the same command again",
      damage: { runId },
    });
  }
  return key;
}

/** Reports a lost key before another one is made: the spans that are left need not be scored to learn that it is lost. */
async function reportIfLost(
  target: RunFolder,
  { parts }: Pick<CommittedSpans, "parts">,
  { warn }: KeyStore,
): Promise<void> {
  // A part that was committed before the key is looked for: there was a key by then.
  const [committed] = parts.keys();
  if (committed === undefined || (await readKey(target)) !== undefined) {
    return;
  }
  const [text] = (await partProfiles(target, (span) => span === committed)).values();
  const isSealed = text !== undefined && parseSpanProfile(text).sealed !== undefined;
  if (isSealed && (await publishedProfile(target)) === undefined) {
    await reportLostKey(target, warn);
  }
}

async function readKey({ store, layout }: RunFolder): Promise<Buffer | undefined> {
  const text = await textAt(store, layout.profileKey);
  return text === undefined ? undefined : parseProfileKey(text);
}

/**
 * Merges the profiles of all spans. Without a key that opens them, a run that is not
 * published, and that checks can no longer hold, has a profile without features, of which `warn` tells.
 * @throws JobError OUTPUT_DAMAGED
 */
export async function committedProfile(
  target: RunFolder,
  known: CommittedSpans,
  { warn }: Pick<KeyStore, "warn">,
): Promise<CommittedProfile> {
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
  const profile = known.profile?.isSealed === true ? undefined : await openedProfile(target, known, texts);
  if (profile !== undefined) {
    return { profile };
  }
  const published = await publishedProfile(target);
  if (published === undefined) {
    await reportLostKey(target, warn);
  }
  return { profile: merged(known, storedProfiles(texts)), published };
}

/** What is stored of spans, one after the other: the profiles of thousands of them may not fit into memory at once. */
function* storedProfiles(texts: ReadonlyMap<number, string>): Generator<SpanProfile> {
  for (const text of texts.values()) {
    yield parseSpanProfile(text).profile;
  }
}

/** The profiles of spans with the parts that a key opens. @throws NotSealedWithKey */
function* openedProfiles(texts: ReadonlyMap<number, string>, { runId, key }: RunKey): Generator<SpanProfile> {
  for (const [span, text] of texts) {
    const { profile, sealed } = parseSpanProfile(text);
    yield sealed === undefined ? profile : withPrivatePart(profile, openSealed(key, { runId, span }, sealed));
  }
}

interface RunKey {
  readonly runId: RunId;
  readonly key: Buffer;
}

/** The merged profile with the parts that the run's key opens; undefined: there is no key that opens all of them. */
async function openedProfile(
  target: RunFolder,
  known: CommittedSpans,
  texts: ReadonlyMap<number, string>,
): Promise<SpanProfile | undefined> {
  const { runId } = target.layout;
  if (![...texts.values()].some((text) => parseSpanProfile(text).sealed !== undefined)) {
    return merged(known, storedProfiles(texts));
  }
  const key = await readKey(target);
  try {
    return key && merged(known, openedProfiles(texts, { runId, key }));
  } catch (error) {
    if (error instanceof NotSealedWithKey) {
      return undefined; // an attempt has made another key since
    }
    throw error;
  }
}

/**
 * Refuses a run that its checks may still hold: it must not be judged without its features. Any other is published without
 * them.
 * @throws JobError OUTPUT_DAMAGED, DISCARDED, PLAN_CHANGED
 */
async function reportLostKey(target: RunFolder, warn: KeyStore["warn"]): Promise<void> {
  const { runId, profileKey } = target.layout;
  const decision = await refuseStopped(target);
  if (target.stored.plan.staged && decision === undefined) {
    throw lostKey(runId, profileKey);
  }
  warn(lostKeyWarning(runId, `the key of its features, ${profileKey}, is gone or is another one`));
}

function merged({ profile }: CommittedSpans, others: Iterable<SpanProfile>): SpanProfile {
  let all: SpanProfile | undefined = profile;
  for (const other of others) {
    all = all === undefined ? other : mergeSpanProfiles(all, other);
  }
  return all ?? noRows;
}

/**
 * The stored profile of a run whose key is gone: the run is published, also where a person has removed `_SUCCESS` since. An
 * erasure that is not published yet takes the profile of the run whose rows it copies. undefined: the run is not published.
 * @throws JobError OUTPUT_DAMAGED if it is gone
 */
async function publishedProfile({ store, layout, stored }: RunFolder): Promise<RunProfile | undefined> {
  const manifest = await checkFinished(store, layout, stored);
  const own = (await textAt(store, layout.profile)) ?? "";
  const runId = manifest === undefined && own === "" ? (stored.plan.erasure?.of as RunId | undefined) : layout.runId;
  if (runId === undefined) {
    return undefined;
  }
  const path = layoutOf(layout.folder, runId).profile;
  const text = runId === layout.runId ? own : ((await textAt(store, path)) ?? "");
  const profile =
    manifest === undefined || manifest.profile.sha256 === sha256Of(text) ? parseRunProfile(text) : undefined;
  if (profile === undefined) {
    throw damagedOutput(`reading ${path}: the profile of run ${runId} is gone, or is another one`, {
      hint: "restore it",
      damage: { runId },
    });
  }
  return profile;
}
