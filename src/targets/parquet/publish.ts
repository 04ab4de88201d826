import { spanCount } from "../../run/plan/spans.js";
import { splitRunId } from "../../run/plan/identity.js";
import { type Fence, namesIn, type Store, takeBackIfLate } from "../../stores/store.js";
import { JobError } from "../../base/errors.js";
import { sha256Of } from "../../base/sha256.js";
import { mapBounded } from "../../base/promises.js";
import type { AttemptJson } from "../target.js";
import { hidden, lostPart, never, readPlan, runIdIn, runIdsIn, successText } from "./plan-file.js";
import { isEarlier, isLater, type Layout, layoutOf, runOfPart } from "./layout.js";
import { describeSameRun, type ManifestPart, manifestText } from "./manifest.js";
import { type CommittedSpans, findPart, type RunFolder, staleRejects } from "./parts.js";

/** A run whose spans are all committed, as the attempt that finishes it knows it. */
export interface FinishedRun {
  /** Parts that this attempt committed or adopted, with their digests. */
  readonly parts: CommittedSpans["own"];
  /** All committed parts, as their labels describe them. */
  readonly committed: CommittedSpans["parts"];
  readonly profile: string;
  /** Whether later runs are compared with it. */
  readonly baseline: boolean;
  readonly attempt: AttemptJson | undefined;
}

type PublishedFolder = Pick<RunFolder, "store" | "layout" | "check">;

const atOnce = 24;

/**
 * Publishes a run: links or copies staged parts to their names, writes the profile, then the manifest, then `_SUCCESS`, then removes the
 * working files. Each step may be repeated, and done by several attempts at once.
 */
export async function publishRun(run: RunFolder, known: FinishedRun): Promise<void> {
  const { store, layout, stored } = run;
  const spans = Array.from({ length: spanCount(stored.plan) }, (_, span) => span);
  const parts = await mapBounded(spans, atOnce, (span) => manifestPart(run, known, span));

  if (layout.staged) {
    await swapIn(run, spans);
  }
  await run.publish(run, parts);
  // First what is staged: a late attempt that has staged rejects either finds the part of its span, or loses them here, or
  // they are found below.
  await store.remove(layout.temporary);
  await store.remove(layout.rejects, await staleRejects(store, layout, known.committed));

  // Texts that readers see: in place of those of an earlier run or an earlier finish of this run; never of a later run's.
  const fence = visible(run);
  await store.update(layout.profile, () => known.profile, fence);
  const file = layout.profile.slice(layout.folder === "/" ? 1 : layout.folder.length + 1);
  const profile = { file, sha256: sha256Of(known.profile), baseline: known.baseline };
  const manifest = manifestText(stored, parts, { profile, attempt: known.attempt });
  await store.update(layout.manifest, (there) => (describeSameRun(there, manifest) ? there : manifest), fence);
  await store.update(layout.success, () => successText(stored), fence);

  await clearRun(store, layout);
  await clearEarlierRuns(run, true);
}

/**
 * Readers find no `_SUCCESS` during the swap. Nothing depends on the names of parts before this run's `_SUCCESS`
 * exists: until then all of them are still where they were staged, and the manifest makes them durable.
 */
async function swapIn(run: RunFolder, spans: readonly number[]): Promise<void> {
  const { store, layout, stored, check } = run;
  // Computing digests takes time. A run that was superseded meanwhile must not remove an earlier run's rows.
  await check();
  await clearEarlierRuns(run, false);
  await withdraw(run, layout.success);

  const copied = await mapBounded(spans, atOnce, async (span) => {
    const [from = "", to = from] = layout.pathsOf(span);
    return { from, outcome: await store.copy(from, to) };
  });
  const takeBack = (): Promise<void> =>
    store.remove(
      layout.folder,
      spans.map((span) => layout.part(span)),
    );
  const gone = copied.find(({ outcome }) => outcome === "missing")?.from;
  if (gone !== undefined) {
    // Without that part, no attempt can publish this run.
    await takeBackIfLate({ ...hidden(run), check }, takeBack);
    throw lostPart(
      stored.plan,
      `finishing ${layout.folder}: ${gone} is gone since it was committed`,
      "something else removes files here; run the same command again, which scores that span anew",
    );
  }
  await takeBackIfLate(visible(run), takeBack);

  // Again: a late attempt of an earlier run may have published that run before it could see these copies, which are durable
  // from here on.
  await withdraw(run, layout.success);
  // From here on, an attempt that has read an earlier run's `_SUCCESS` cannot remove this run's.
  await store.remove(layout.withdrawn);
  await removeEarlier(store, layout);
}

async function manifestPart(
  { store, layout, stored }: RunFolder,
  { parts, committed }: FinishedRun,
  span: number,
): Promise<ManifestPart> {
  const file = layout.part(span);
  const found = await findPart(store, layout, span);
  const known = parts.get(span);
  const label = known ?? committed.get(span);
  const digest = known ?? (await found?.digest());
  if (found === undefined || label === undefined || digest === undefined) {
    throw lostPart(
      stored.plan,
      `finishing ${layout.folder}: ${file} is gone since it was committed`,
      "something else removes files here; run the same command again, which scores that span anew",
    );
  }
  if (known !== undefined && known.sizeBytes !== found.sizeBytes) {
    throw lostPart(
      stored.plan,
      `finishing ${layout.folder}: ${file} has ${found.sizeBytes} bytes since it was committed`,
      "something else writes here; delete that file and run the same command again: its span is then scored anew",
    );
  }
  const { rows, rejected, rejectsSha256, filtered, erased, maker } = label;
  const { sizeBytes, sha256 } = digest;
  const counts = { rows, rejected, rejects_sha256: rejectsSha256, filtered, erased };
  return { file, span, ...counts, maker, size_bytes: sizeBytes, sha256 };
}

/** Removes an earlier run's `_SUCCESS` or manifest, before any of its parts is removed. */
export async function withdraw({ store, layout, check }: PublishedFolder, name: string): Promise<void> {
  const fence = { scope: layout.withdrawn, check, takesBack: never };
  await store.update(name, (there) => (runIdIn(there) === layout.runId ? there : undefined), fence);
}

/** Removes the working files of a run that is over. Costs one listing where there are none. */
export async function clearRun(store: Store, layout: Layout): Promise<void> {
  const { control, temporary, withdrawn, staging, answers } = layout;
  const there = new Set((await namesIn(store, control)).map((name) => `${control}/${name}`));
  for (const folder of [temporary, withdrawn, staging, answers]) {
    if (there.has(folder)) {
      await store.remove(folder);
    }
  }
}

/**
 * Removes the working files of all earlier runs, which closes their fences: this run's plan must be stored. Once this run
 * is published, removes what their attempts have published too late, too; before that, readers may read it.
 */
export async function clearEarlierRuns(
  { store, layout }: Pick<RunFolder, "store" | "layout">,
  isPublished: boolean,
): Promise<void> {
  if (splitRunId(layout.runId).number === 1) {
    return;
  }
  for (const name of await runIdsIn(store, layout)) {
    if (isEarlier(name, layout)) {
      await clearRun(store, layoutOf(layout.folder, name));
    }
  }
  if (isPublished) {
    await removeEarlier(store, layout);
  }
}

async function removeEarlier(store: Store, layout: Layout): Promise<void> {
  for (const folder of [layout.folder, layout.rejects]) {
    const names = (await namesIn(store, folder)).filter((name) => isEarlier(runOfPart(name), layout));
    await store.remove(folder, names);
  }
}

/**
 * The fence of what readers see. What came too late is taken back if a later run may have begun to replace it. Otherwise
 * that run still finds it, and until then readers need it: another attempt may have published this run, and the later run
 * may be an erasure that copies its rows.
 */
function visible(run: PublishedFolder): Fence {
  return { scope: run.layout.temporary, check: run.check, takesBack: () => mayBeReplaced(run) };
}

/**
 * Whether a later run may have begun its swap. It copies its parts into the folder, looks for `_SUCCESS` again, and only
 * then looks for parts of earlier runs: so none of its parts is there if it still finds what this attempt has published.
 * Of a run without rows there is no part to see.
 */
export async function mayBeReplaced({ store, layout }: PublishedFolder): Promise<boolean> {
  const isPartOfLater = (name: string): boolean => {
    const run = runOfPart(name);
    return run !== undefined && isLater(run, layout);
  };
  if ((await namesIn(store, layout.folder)).some(isPartOfLater)) {
    return true;
  }
  for (const name of (await runIdsIn(store, layout)).filter((run) => isLater(run, layout))) {
    if (await mayHaveNoParts(store, layoutOf(layout.folder, name))) {
      return true;
    }
  }
  return false;
}

async function mayHaveNoParts(store: Store, layout: Layout): Promise<boolean> {
  try {
    const stored = await readPlan(store, layout);
    return stored !== undefined && (stored.pruned !== undefined || spanCount(stored.plan) === 0);
  } catch (error) {
    if (error instanceof JobError && error.code === "OUTPUT_DAMAGED") {
      return true; // its plan is lost
    }
    throw error;
  }
}
