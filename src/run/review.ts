import { judge } from "../checks/verdicts/judge.js";
import type { RunProfile } from "../checks/verdicts/run-profile.js";
import type { PinnedRun } from "../plan/plan.js";
import { checkOptionsOf } from "../publish/check-options.js";
import { parseRunProfile, runProfileOf } from "../publish/profile-text.js";
import { logicalDateOf } from "../publish/published-run.js";
import type { RunVerdict } from "../publish/run-verdict.js";
import type { JobContext } from "../scoring/context.js";
import type { RunSink, StoredPlan } from "../sink/port.js";
import { JobError } from "../util/errors.js";

/**
 * Returns the verdict on a run whose spans are all committed; undefined for a run without checks. If the target has
 * none, this attempt makes one; the stored verdict counts.
 */
export async function verdictOn(
  context: JobContext,
  { stored: { plan }, run }: { readonly stored: StoredPlan; readonly run: RunSink },
): Promise<RunVerdict | undefined> {
  const { checks } = context.spec;
  if (plan.checks === null || checks === undefined) {
    return undefined;
  }
  const known = await run.verdict();
  if (known !== undefined) {
    return known;
  }
  const profile = await run.profile();
  if (profile === undefined) {
    throw new JobError("OUTPUT_DAMAGED", `checking run ${plan.runId}: a committed span has no profile`, {
      hint: "discard the run, and score again with --new-run",
    });
  }
  const { baseline, first } = plan.checks;
  const judged = {
    run: runProfileOf(plan, { profile, rejected: run.rejectedRows }),
    baseline: await readAll(context, baseline),
    first: first === null ? undefined : await readPinned(context, first),
  };
  if (checks.on_fail === "hold" && !plan.staged) {
    context.log.warn("the checks cannot hold this run: it was planned with on_fail: warn");
  }
  return await run.judge({
    verdict: judge(judged, checkOptionsOf(checks, plan, logicalDateOf(plan) ?? "")),
    dates: Object.fromEntries(
      [...baseline, ...(first === null ? [] : [first])].map(({ runId, date }) => [runId, date]),
    ),
    thresholds: { ...checks },
    writer: context.writer,
    at: new Date(context.dateMs()).toISOString(),
  });
}

/** Profiles that are read at once. */
const readsAtOnce = 8;

/** Reads the profiles of pinned runs. @throws JobError (75) when one cannot be read */
export async function readAll(context: Pick<JobContext, "sink">, pinned: readonly PinnedRun[]): Promise<RunProfile[]> {
  const profiles: RunProfile[] = [];
  for (let start = 0; start < pinned.length; start += readsAtOnce) {
    const group = pinned.slice(start, start + readsAtOnce);
    profiles.push(...(await Promise.all(group.map((run) => readPinned(context, run)))));
  }
  return profiles;
}

async function readPinned({ sink }: Pick<JobContext, "sink">, pinned: PinnedRun): Promise<RunProfile> {
  const profile = parseRunProfile((await sink.readProfile?.(pinned)) ?? "");
  if (profile === undefined) {
    throw new JobError("DISK", `reading the profile of run ${pinned.runId}: it is not one of this program`, {
      hint: "the checks compare this run with it; use the version of infer-batch that wrote it",
    });
  }
  return profile;
}
