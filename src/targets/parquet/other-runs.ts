import { parseJson } from "../../run/plan/parse-plan.js";
import type { PinnedRun, RunId } from "../../run/plan/plan.js";
import { parseDecision } from "../../run/lifecycle/lifecycle.js";
import type { PublishedRun } from "../../run/lifecycle/published-run.js";
import { type ReadableStore, type Store, ifReadable, namesIn } from "../../stores/store.js";
import { type ErrorCode, JobError } from "../../base/errors.js";
import { mapBounded } from "../../base/promises.js";
import {
  type Layout,
  isEarlier,
  isLater,
  isSameJob,
  layoutOf,
  nextLayout,
  plannedLayout,
  runOfPart,
} from "./layout.js";
import { type Manifest, publishedManifest, secondsOf, sizesIn } from "./manifest.js";
import { lasting, latestRunId, readPlan, refuseForeign, runIdIn, runIdsIn, superseded } from "./plan-file.js";
import { sha256Of } from "../../base/sha256.js";
import { jobOf, splitRunId } from "../../run/plan/identity.js";
import { parseRunProfile } from "../../run/lifecycle/profile-text.js";
import {
  type PruneOutcome,
  type PruneRequest,
  type Pruning,
  type Removed,
  nothingRemoved,
  tombstoneText,
} from "../../run/lifecycle/pruned-run.js";
import {
  type HistoryRequest,
  type RecordedRun,
  asPruned,
  countsOf,
  isUnfinished,
  recordedRun,
  recordedSpending,
} from "../../run/lifecycle/recorded-run.js";
import type { StoredPlan } from "../target.js";
import { openLedger, readDocument } from "./ledger.js";
import { decisionDocument, errorsDocument, spendingDocument, stripRows, verdictDocument } from "../../stores/ledger.js";
import { clearEarlierRuns, clearRun, withdraw } from "./publish.js";

/** Where the job's runs with other params are: below `root`, a `RegExp` matches a segment that contains a param. */
export interface OtherFolders {
  readonly root: string;
  /** Of runs with any params. */
  readonly job: FolderPattern;
  /** Of runs whose params differ in dates only. */
  readonly series: FolderPattern;
}

type FolderPattern = readonly (string | RegExp)[];

/** Folders that are searched at each level of a path: the last by name, which are the latest where names are dates. */
const foldersLimit = 400;
/** Folders that are read at once. In S3, each takes some requests. */
const foldersAtOnce = 24;

/**
 * Sorted by name: of more than `most` folders, the last up to `own`, and the last after it, since a run for an older
 * date is compared with what came before. `read` takes the result of a call: a folder for which it is undefined counts
 * as empty. Default: one that this user may not list, where this user could not finish a run.
 */
async function expand(
  store: ReadableStore,
  { root, pattern, own }: { readonly root: string; readonly pattern: FolderPattern; readonly own: string },
  { most = foldersLimit, read = ifReadable }: { readonly most?: number; readonly read?: typeof ifReadable } = {},
): Promise<string[]> {
  let folders = [root];
  for (const segment of pattern) {
    const next: string[] = [];
    for (const folder of folders) {
      if (typeof segment === "string") {
        next.push(`${folder}/${segment}`);
      } else {
        const names = (await read(namesIn(store, folder === "" ? "/" : folder))) ?? [];
        next.push(...names.filter((name) => segment.test(name)).map((name) => `${folder}/${name}`));
      }
    }
    const sorted = next.toSorted();
    const here = own.split("/").slice(0, sorted[0]?.split("/").length).join("/");
    const after = sorted.findIndex((folder) => folder > here);
    const upTo = after === -1 ? sorted.length : after;
    folders = [...sorted.slice(Math.max(0, upTo - most), upTo), ...sorted.slice(upTo).slice(-most)];
  }
  return folders;
}

/** Finds the published run of a folder, or of all folders of the series. */
export async function findPublished(
  store: ReadableStore,
  { folder: own, folders }: { readonly folder: string; readonly folders: OtherFolders },
  where: "here" | "everywhere",
): Promise<readonly PublishedRun[]> {
  const searched = where === "here" ? [own] : await expand(store, { root: folders.root, pattern: folders.series, own });
  const runs = await mapBounded(searched, foldersAtOnce, (folder) => publishedIn(store, folder, own));
  return runs.filter((run) => run !== undefined);
}

/**
 * undefined for a folder without one, or one that this user may not read. Fails if the disk or the store does: a
 * shorter baseline would let more runs pass. `own`: the folder that places are relative to.
 */
async function publishedIn(store: ReadableStore, folder: string, own: string): Promise<PublishedRun | undefined> {
  const { success, manifest: path } = layoutOf(folder, "" as RunId);
  const finished = runIdIn(await ifReadable(store.readText(success)));
  const manifest = finished === undefined ? undefined : publishedManifest(await ifReadable(store.readText(path)));
  if (manifest === undefined || manifest.run_id !== finished) {
    return undefined;
  }
  const { run_id: runId, job, params, rows, model_sha256: modelSha256, profile } = manifest;
  const { document } = layoutOf(folder, runId as RunId);
  return {
    runId,
    job,
    params,
    isEmpty: rows === 0,
    modelSha256,
    profile: {
      sha256: profile.sha256,
      place: relativeName(own, `${folder === "/" ? "" : folder}/${profile.file}`),
    },
    isNormal: profile.baseline,
    decidedBy: async () => parseDecision(parseJson((await ifReadable(store.readText(document("decision")))) ?? ""))?.by,
    seconds: () => Promise.resolve(secondsOf(manifest)),
  };
}

/** Reads a pinned profile. @throws JobError `failure` when it is gone, or another one than was pinned */
export async function readPinnedRun(
  store: ReadableStore,
  folder: string,
  { runId, sha256, place, failure }: PinnedRun & { readonly failure: ErrorCode },
): Promise<string> {
  const path = nameAt(folder, place);
  const text = await store.readText(path);
  if (text === undefined || sha256Of(text) !== sha256) {
    const found = text === undefined ? "it is gone" : "it is not the one that was pinned when this run was planned";
    throw new JobError(
      failure,
      `reading the profile of run ${runId}, which the checks compare with, ${path}: ${found}`,
      { hint: "restore it; or discard this run, and score again with --new-run" },
    );
  }
  return text;
}

/** As plans pin it: a checkout, a volume or a bucket may move between attempts. */
function relativeName(folder: string, name: string): string {
  const from = folder.split("/");
  const to = name.split("/");
  let shared = 0;
  while (shared < from.length && from[shared] === to[shared]) {
    shared += 1;
  }
  return [...from.slice(shared).map(() => ".."), ...to.slice(shared)].join("/");
}

function nameAt(folder: string, place: string): string {
  const up = place.split("/").filter((segment) => segment === "..").length;
  const base = folder.split("/");
  return [...base.slice(0, base.length - up), ...place.split("/").slice(up)].join("/");
}

/**
 * Finds the parts of a published run, or of the one that has replaced it, and its folder: of the same params, whose rows
 * their hashes prove. @throws JobError `failure` while it is away, or is being replaced; OUTPUT_DAMAGED when it was pruned, or a part is gone
 */
export async function findPublishedParts(
  store: ReadableStore,
  own: string,
  { runId, place: pinned, failure }: PinnedRun & { readonly failure: ErrorCode },
): Promise<{ readonly place: string; readonly parts: readonly string[]; readonly rows: number }> {
  const profile = nameAt(own, pinned);
  const suffix = layoutOf("", runId as RunId).profile;
  const folder = profile.slice(0, -suffix.length);
  const { base } = splitRunId(runId as RunId);
  const reading = `reading the predictions of run ${runId} in ${folder}`;
  const gone = (found: string): JobError => new JobError("OUTPUT_DAMAGED", `${reading}: ${found}`);
  const taken = "another run is taking its place";
  const away = (found: string): JobError =>
    new JobError(failure, `${reading}: ${found}`, {
      hint: "bring that folder back, or finish the run that is replacing it, and run the same command again; or remove `reuse` from the spec, and score all rows with --new-run",
    });
  const { manifest: path, success } = layoutOf(folder, runId as RunId);
  const published = runIdIn(await store.readText(success));
  const manifest = publishedManifest(await store.readText(path));
  if (!profile.endsWith(suffix) || published === undefined || manifest?.run_id !== published) {
    const latest = await readPlan(store, layoutOf(folder, await latestRunId(store, folder, base)));
    throw latest?.pruned !== undefined
      ? gone("they were pruned")
      : away(latest === undefined ? "they are gone" : taken);
  }
  if (splitRunId(published).base !== base) {
    throw gone(`they are those of run ${published} now`);
  }
  const parts: string[] = [];
  let rowCount = 0;
  const sizes = await sizesIn(store, folder);
  for (const { file, rows, size_bytes: sizeBytes } of manifest.parts) {
    const part = `${folder}/${file}`;
    const size = await sizes(file);
    if (size !== sizeBytes) {
      if (runIdIn(await store.readText(success)) !== published) {
        throw away(taken);
      }
      throw gone(size === undefined ? `${file} is gone` : `${file} was changed`);
    }
    rowCount += rows;
    if (rows > 0) {
      parts.push(part);
    }
  }
  return { place: folder, parts, rows: rowCount };
}

/** Finds the latest runs of a job in the folder of this run and the folders of its other runs. */
export async function findHistory(
  store: ReadableStore,
  { folder, folders }: { readonly folder: string; readonly folders: OtherFolders },
  request: HistoryRequest,
): Promise<RecordedRun[]> {
  const { last, complete, runId, unfinishedBut } = request;
  const read = complete === true ? ifPermitted : ifReadable;
  // Only warnings depend on unfinished runs of other folders: a disk or a store that fails, the run itself reports.
  const orNone = <T>(found: Promise<T[]>): Promise<T[]> =>
    unfinishedBut === undefined ? found : found.catch(() => []);
  const place = { root: folders.root, pattern: folders.job, own: folder };
  const others =
    runId === undefined ? await orNone(expand(store, place, { most: Math.max(foldersLimit, last), read })) : [];
  const all = [...new Set(unfinishedBut === undefined ? [...others, folder] : others)];
  const byDate = all.toSorted((one, other) => (datesIn(one) < datesIn(other) ? 1 : -1));
  const found: RecordedRun[] = [];
  for (let start = 0; start < byDate.length && found.length < last; start += foldersAtOnce) {
    const group = byDate.slice(start, start + foldersAtOnce);
    const runs = await Promise.all(group.map((one) => orNone(runsIn(store, one, { ...request, read }))));
    found.push(...runs.flat());
  }
  return found;
}

function datesIn(path: string): string {
  return path.match(/\d{4}-?\d{2}-?\d{2}/g)?.join() ?? path;
}

async function runsIn(
  store: ReadableStore,
  folder: string,
  { job, runId: only, last, read, others, unfinishedBut }: HistoryRequest & { readonly read: typeof ifReadable },
): Promise<RecordedRun[]> {
  const layout = layoutOf(folder, "" as RunId);
  const base = runIdIn(await read(store.readText(layout.claim)));
  if (base === undefined) {
    return [];
  }
  if (jobOf(base) !== job) {
    others?.jobs.add(jobOf(base));
    return [];
  }
  if (base === unfinishedBut) {
    return [];
  }
  const ids = ((await read(runIdsIn(store, layout))) ?? []).filter((name) => splitRunId(name).base === base);
  const newestFirst = ids.toSorted((one, other) => splitRunId(other).number - splitRunId(one).number);
  const latest = only === undefined ? newestFirst.slice(0, last + 1) : newestFirst;
  const finished = runIdIn(await read(store.readText(layout.success)));
  const isShown = finished !== undefined && unfinishedBut === undefined;
  const manifest = isShown ? publishedManifest(await read(store.readText(layout.manifest))) : undefined;
  const found: RecordedRun[] = [];
  let before: Pruning | undefined;
  let isOver = false; // a later run whose folder has notes only was never opened
  for (const runId of latest) {
    if (unfinishedBut !== undefined && (isOver || finished === runId)) {
      break; // of the runs before it none can be finished
    }
    const published = finished === runId && manifest?.run_id === runId ? manifest : undefined;
    const run = await runAt(store, layoutOf(folder, runId), { published, isOver });
    isOver ||= run !== undefined;
    const isTombstone = run?.pruned !== undefined;
    before = isTombstone ? run.pruned : before;
    if (run !== undefined && !isTombstone && (run.plan === undefined || run.plan.job === job)) {
      found.push(before === undefined ? run : prunedRun(run, before));
    }
  }
  return unfinishedBut === undefined
    ? found.filter((run) => (only ?? run.runId) === run.runId).slice(0, last)
    : found.slice(0, 1).filter(isUnfinished);
}

/** Its manifest is gone: the tombstone has the counts of the run whose place it takes. */
function prunedRun(run: RecordedRun, pruned: Pruning): RecordedRun {
  const counts =
    run.runId === pruned.plan.runId ? { plan: pruned.plan, rows: pruned.rows, rejected: pruned.rejected } : {};
  return asPruned({ ...run, ...counts, spansCommitted: null }, pruned);
}

interface Place {
  readonly published: Manifest | undefined;
  readonly isOver: boolean;
}

async function runAt(store: ReadableStore, layout: Layout, place: Place): Promise<RecordedRun | undefined> {
  try {
    const stored = await readPlan(store, layout);
    if (stored?.pruned !== undefined) {
      const { runId, folder } = layout;
      return { ...unknownRun, runId, place: folder, status: "pruned", pruned: stored.pruned };
    }
    return stored === undefined ? undefined : await plannedRun(store, stored, { ...place, layout });
  } catch (error) {
    // A damaged run must not hide the others.
    if (error instanceof JobError && error.damage !== undefined) {
      return { ...unknownRun, runId: layout.runId, place: layout.folder, status: "damaged" };
    }
    throw error;
  }
}

const unknownRun = {
  plan: undefined,
  rows: null,
  rejected: null,
  spansCommitted: null,
  at: null,
  seconds: null,
  verdict: undefined,
  decision: undefined,
  failure: undefined,
};

async function plannedRun(
  store: ReadableStore,
  { plan }: StoredPlan,
  { published, isOver, layout: unstaged }: Place & { readonly layout: Layout },
): Promise<RecordedRun> {
  const { runId, staged, checks } = plan;
  const layout = plannedLayout(unstaged.folder, plan);
  const verdict = checks === null ? undefined : await readDocument(store, layout, verdictDocument);
  const decision = staged ? await readDocument(store, layout, decisionDocument) : undefined;
  const paid =
    plan.request.prompt === undefined ? undefined : await ifReadable(readDocument(store, layout, spendingDocument));
  const known = { runId, place: layout.folder, plan, verdict, decision, isOver, failure: undefined };
  if (published !== undefined) {
    const { rows, rows_rejected: rejected } = published;
    return recordedRun({
      ...known,
      rows,
      rejected,
      publishedAt: decision?.at ?? startedAt(published),
      spansCommitted: null,
      seconds: secondsOf(published),
      spending: recordedSpending(published.attempt) ?? paid,
    });
  }
  const common = { ...known, spending: paid, seconds: verdict?.seconds ?? null };
  const before = isOver && decision?.kind !== "discarded" ? await profileOf(store, layout) : undefined;
  if (before !== undefined) {
    // A profile is written when a run is published, so this run was published before a later run replaced it.
    const { rows, rejected } = before;
    return recordedRun({ ...common, rows, rejected, publishedAt: decision?.at ?? null, spansCommitted: null });
  }
  const spansCommitted = isOver ? null : await countCommitted(store, layout);
  const failure = (await readDocument(store, layout, errorsDocument))?.errors.at(-1);
  return recordedRun({ ...common, ...countsOf(verdict), spansCommitted, failure });
}

async function profileOf(
  store: ReadableStore,
  { profile }: Layout,
): Promise<{ rows: number; rejected: number } | undefined> {
  const text = await ifReadable(store.readText(profile));
  return text === undefined ? undefined : parseRunProfile(text);
}

async function countCommitted(store: ReadableStore, layout: Layout): Promise<number> {
  const names = await namesIn(store, layout.parts);
  return new Set(names.map((name) => layout.committedSpanOf(name)).filter((span) => span !== undefined)).size;
}

function startedAt({ attempt }: Manifest): string | null {
  const at = attempt?.["started_at"];
  return typeof at === "string" ? at : null;
}

/** `ifReadable` where nothing may be overlooked. */
async function ifPermitted<T>(call: Promise<T>): Promise<T | undefined> {
  try {
    return await call;
  } catch (error) {
    if (error instanceof JobError && error.code === "PERMISSION") {
      throw new JobError("PERMISSION", `looking for the runs of the job: ${error.message}`, {
        hint: "run the command as a user who may read all folders that may have runs of the job",
        cause: error,
      });
    }
    return await ifReadable(call);
  }
}

/** Removes the output of all runs in a folder, and leaves a tombstone. */
export async function pruneFolder(
  store: Store,
  { place: folder, latest, pruning, dryRun }: PruneRequest,
): Promise<PruneOutcome> {
  const layout = layoutOf(folder, pruning.tombstone);
  const { base } = splitRunId(latest);
  const now = await latestRunId(store, folder, base);
  if (isLater(now, layout) || (now !== latest && now !== layout.runId)) {
    return plannedMeanwhile(now);
  }
  const found = await earlierFiles(store, layout);
  const isDone = found.files === 0 && (await readPlan(store, layout))?.pruned !== undefined;
  if (dryRun) {
    return { kind: "removed", ...found };
  }
  if (isDone) {
    await stripRows(openLedger(store, folder), latest);
    return { kind: "removed", ...found };
  }
  const next = nextLayout(layout);
  /** A run may be planned after the tombstone, which takes part in the races of runs as a run without rows does. */
  const check = async (): Promise<void> => {
    if ((await store.stat(next.plan)) !== undefined) {
      throw superseded(layout, next.runId);
    }
  };
  try {
    await refuseForeign(store, layout);
    await store.create(layout.plan, tombstoneText(pruning), lasting({ layout, check }));
    if ((await readPlan(store, layout))?.pruned === undefined) {
      return plannedMeanwhile(layout.runId); // before the tombstone was stored
    }
    await takeDown(store, layout, check);
  } catch (error) {
    if (error instanceof JobError && error.code === "PLAN_CHANGED") {
      return plannedMeanwhile(next.runId);
    }
    throw error;
  }
  await stripRows(openLedger(store, folder), latest);
  return { kind: "removed", ...found };
}

function plannedMeanwhile(runId: RunId): PruneOutcome {
  return { kind: "retained", why: `run ${runId} was planned meanwhile` };
}

/** Each step may be repeated. @throws JobError PLAN_CHANGED where a run was planned after the tombstone */
async function takeDown(store: Store, layout: Layout, check: () => Promise<void>): Promise<void> {
  await check();
  await clearEarlierRuns({ store, layout }, false);
  await withdraw({ store, layout, check }, layout.success);
  await withdraw({ store, layout, check }, layout.manifest);
  await clearEarlierRuns({ store, layout }, true);
  await clearRun(store, layout);
}

/** Plans and profiles are not among them. */
async function earlierFiles(store: Store, layout: Layout): Promise<Removed> {
  const sizes: number[] = [];
  const add = async (folder: string, isOurs: (name: string) => boolean): Promise<void> => {
    const sizeOf = await sizesIn(store, folder);
    for (const name of (await namesIn(store, folder)).filter(isOurs)) {
      sizes.push((await sizeOf(name)) ?? 0);
    }
  };
  const ofEarlier = (name: string): boolean => isEarlier(runOfPart(name), layout);
  await add(layout.folder, ofEarlier);
  await add(layout.rejects, ofEarlier);
  for (const path of [layout.success, layout.manifest]) {
    if (isEarlier(runIdIn(await store.readText(path)), layout)) {
      sizes.push((await store.stat(path))?.sizeBytes ?? 0);
    }
  }
  for (const name of await runIdsIn(store, layout)) {
    if (isSameJob(name, layout) && !isLater(name, layout)) {
      const { staging, temporary, withdrawn, answers } = layoutOf(layout.folder, name);
      for (const folder of [staging, temporary, withdrawn, answers]) {
        await add(folder, () => true);
      }
    }
  }
  return { ...nothingRemoved, files: sizes.length, bytes: sizes.reduce((sum, size) => sum + size, 0) };
}
