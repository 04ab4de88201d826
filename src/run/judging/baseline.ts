import type { RunProfile } from "../../checks/profile/run-profile.js";
import type { PinnedFile, PinnedRun, PlannedChecks } from "../../plan/plan.js";
import { isRunProfile, parseRunProfile, parseWholeProfile } from "../../publish/profile-text.js";
import type { JobContext } from "../../scoring/context.js";
import { JobError } from "../../util/errors.js";
import { mapBounded } from "../../util/promises.js";

const baselineKey = ["checks", "baseline"];

/** The value of `checks.baseline` for published runs. */
const published = "published";

/** Reads what a run is compared with: the profiles of pinned runs, or the file of `checks.baseline`. */
export async function readBaseline(
  context: Pick<JobContext, "sink" | "readGiven" | "sha256" | "where">,
  { baseline, profile: planned }: Pick<PlannedChecks, "baseline" | "profile">,
): Promise<RunProfile[]> {
  if (planned === undefined) {
    return await mapBounded(baseline, readsAtOnce, (run) => readPinned(context, run));
  }
  const { pin, profile } = await readFile(context, planned.uri);
  if (pin.sha256 !== planned.sha256) {
    throw new JobError(
      "INPUT_CHANGED",
      `comparing ${planned.uri} with the plan of this unfinished run: its sha256 is ${pin.sha256}, planned ${planned.sha256}`,
      { hint: "restore the planned profile and run again; or abandon this run with --new-run" },
    );
  }
  return [profile];
}

/** Pins the file of `checks.baseline`; undefined: a run is compared with published runs. @throws JobError SPEC_INVALID */
export async function pinProfile(
  context: Pick<JobContext, "readGiven" | "sha256" | "where" | "spec">,
): Promise<PinnedFile | undefined> {
  const { baseline = published } = context.spec.checks ?? {};
  return baseline === published ? undefined : (await readFile(context, baseline)).pin;
}

async function readFile(
  { readGiven, sha256, where }: Pick<JobContext, "readGiven" | "sha256" | "where">,
  uri: string,
): Promise<{ readonly pin: PinnedFile; readonly profile: RunProfile }> {
  const text = await readGiven(uri, baselineKey);
  const profile = parseWholeProfile(text);
  if (profile === undefined) {
    throw new JobError("SPEC_INVALID", `reading ${where(baselineKey)}: ${uri} is not the profile of a run`, {
      hint: "name a copy of _infer-batch/<run id>/profile.json of a finished run, or write published",
    });
  }
  return { pin: { uri, sha256: sha256(text) }, profile };
}

/** Checks that the profiles of pinned runs can be read. @throws JobError (75) when one cannot */
export async function requireProfiles({ sink }: Pick<JobContext, "sink">, pinned: readonly PinnedRun[]): Promise<void> {
  await mapBounded(pinned, readsAtOnce, async (run) => {
    if (!isRunProfile(await sink.readProfile(run))) {
      throw noProfile(run);
    }
  });
}

/** Reads the profile of a pinned run. @throws JobError (75) when it cannot be read */
export async function readPinned({ sink }: Pick<JobContext, "sink">, pinned: PinnedRun): Promise<RunProfile> {
  const profile = parseRunProfile(await sink.readProfile(pinned));
  if (profile === undefined) {
    throw noProfile(pinned);
  }
  return profile;
}

function noProfile({ runId }: PinnedRun): JobError {
  return new JobError("DISK", `reading the profile of run ${runId}: it is not one of this program`, {
    hint: "the checks compare this run with it; use the version of infer-batch that wrote it",
  });
}

/** Profiles that are read at once. */
export const readsAtOnce = 8;
