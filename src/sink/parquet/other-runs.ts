import { parseJson } from "../../plan/parse-plan.js";
import type { PinnedRun, RunId } from "../../plan/plan.js";
import { parseDecision } from "../../publish/decision.js";
import { earlierDateIn, type PublishedRun, type Series, whyLeftOut } from "../../publish/published-run.js";
import type { ReadersView } from "../../publish/readers-view.js";
import { ifReadable, namesIn, type ReadableStore } from "../../stores/store.js";
import { type ErrorCode, JobError } from "../../util/errors.js";
import { mapBounded } from "../../util/promises.js";
import type { UnfinishedRun } from "../port.js";
import { readState } from "./ledger.js";
import { type Layout, layoutOf } from "./layout.js";
import { type Manifest, publishedManifest, secondsOf, sizesIn } from "./manifest.js";
import { latestRun, readPlan, runIdIn } from "./plan-file.js";
import { sha256Of } from "../../util/sha256.js";

/** Where the job's runs with other params are: below `root`, a `RegExp` matches a segment that contains a param. */
export interface OtherFolders {
  readonly root: string;
  readonly pattern: readonly (string | RegExp)[];
}

/** Folders that are searched at each level of a path: the last by name, which are the latest where names are dates. */
export const foldersLimit = 400;
/** Folders that are read at once. In S3, each takes some requests. */
export const foldersAtOnce = 24;

/** Runs `read` for each folder that may hold a run of the job, and collects what it finds. */
async function searchFolders<T>(
  store: ReadableStore,
  folders: OtherFolders,
  read: (folder: string) => Promise<T | undefined>,
): Promise<T[]> {
  const runs = await mapBounded(await expand(store, folders), foldersAtOnce, read);
  return runs.filter((run) => run !== undefined);
}

/**
 * Lists the folders that may hold a run of the job, sorted by name: of more than `most`, the last.
 * @param read takes the result of a call: a folder for which it is undefined counts as empty. Default: one that this user
 * may not list, where this user could not finish a run
 */
export async function expand(
  store: ReadableStore,
  { root, pattern }: OtherFolders,
  { most = foldersLimit, read = ifReadable }: { readonly most?: number; readonly read?: typeof ifReadable } = {},
): Promise<string[]> {
  if (!pattern.some((segment) => segment instanceof RegExp)) {
    return [];
  }
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
    folders = next.toSorted().slice(-most);
  }
  return folders;
}

/**
 * Finds published runs of a series in the folders of the job's other runs: those with a profile and an earlier logical
 * date; without `dateParam`, the run of the same params, which is in `folder`.
 */
export async function findPublished(
  store: ReadableStore,
  { folder: own, folders }: { readonly folder: string; readonly folders: OtherFolders },
  series: Series,
): Promise<PublishedRun[]> {
  if (series.dateParam === undefined) {
    const found = await publishedIn(store, own, { own, series });
    return found === undefined ? [] : [found];
  }
  return await searchFolders(store, folders, (folder) => publishedIn(store, folder, { own, series }));
}

/** Finds the run whose parts readers find in a folder. */
export async function readersAt(store: ReadableStore, folder: string): Promise<ReadersView> {
  const found = await publishedManifestIn(store, folder);
  return {
    run: found === undefined ? undefined : { runId: found.run_id, params: found.params, isEmpty: found.rows === 0 },
  };
}

/** The manifest of the published run in a folder. @param read takes the result of a call, as in `expand` */
export async function publishedManifestIn(
  store: ReadableStore,
  folder: string,
  read = ifReadable,
): Promise<Manifest | undefined> {
  const { success, manifest: path } = layoutOf(folder, "" as RunId);
  const run = runIdIn(await read(store.readText(success)));
  const manifest = run === undefined ? undefined : publishedManifest(await read(store.readText(path)));
  return manifest?.run_id === run ? manifest : undefined;
}

/**
 * Returns the published run in a folder that later runs are compared with; undefined for a folder without one, or one
 * that this user may not read. Fails if the disk or the store does: a shorter baseline would let more runs pass.
 */
async function publishedIn(
  store: ReadableStore,
  folder: string,
  { own, series }: { readonly own: string; readonly series: Series },
): Promise<PublishedRun | undefined> {
  const manifest = await publishedManifestIn(store, folder);
  if (manifest === undefined) {
    return undefined;
  }
  const { profile } = manifest;
  if (!profile.baseline && series.everyRun !== true && series.withLeftOut !== true) {
    return undefined;
  }
  const { job, params } = manifest;
  const date = earlierDateIn(series, { job, params });
  const isLeftOut = !profile.baseline && series.withLeftOut === true;
  return date === undefined
    ? undefined
    : {
        runId: manifest.run_id,
        date,
        modelSha256: manifest.model_sha256,
        sha256: profile.sha256,
        place: relativeName(own, `${folder === "/" ? "" : folder}/${profile.file}`),
        ...(isLeftOut
          ? { leftOut: whyLeftOut(await decidedBy(store, layoutOf(folder, manifest.run_id as RunId))) }
          : {}),
        ...(series.withSeconds === true ? { seconds: secondsOf(manifest) ?? undefined } : {}),
      };
}

/** Who decided on a run; undefined: it is not known, and nothing depends on it. */
async function decidedBy(store: ReadableStore, { document }: Layout): Promise<string | undefined> {
  return parseDecision(parseJson((await ifReadable(store.readText(document("decision")))) ?? ""))?.by;
}

/** Reads a pinned profile. @throws JobError `failure` when it is gone, or another one than was pinned */
export async function readPinned(
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

/** A name relative to a folder, as plans pin it: a checkout, a volume or a bucket may move between attempts. */
function relativeName(folder: string, name: string): string {
  const from = folder.split("/");
  const to = name.split("/");
  let shared = 0;
  while (shared < from.length && from[shared] === to[shared]) {
    shared += 1;
  }
  return [...from.slice(shared).map(() => ".."), ...to.slice(shared)].join("/");
}

/** The name that `relativeName` has made relative. */
function nameAt(folder: string, place: string): string {
  const up = place.split("/").filter((segment) => segment === "..").length;
  const base = folder.split("/");
  return [...base.slice(0, base.length - up), ...place.split("/").slice(up)].join("/");
}

/**
 * Finds the parts of a published run, and its folder. @throws JobError `failure` when the run is not there any
 * more, or another one is, or a part is missing or has another size
 */
export async function findPublishedParts(
  store: ReadableStore,
  own: string,
  { runId, place: pinned, failure }: PinnedRun & { readonly failure: ErrorCode },
): Promise<{ readonly place: string; readonly parts: readonly string[]; readonly rows: number }> {
  const profile = nameAt(own, pinned);
  const suffix = layoutOf("", runId as RunId).profile;
  const folder = profile.slice(0, -suffix.length);
  const gone = (found: string): JobError =>
    new JobError(failure, `reading the predictions of run ${runId} in ${folder}: ${found}`);
  const { manifest: path, success } = layoutOf(folder, runId as RunId);
  const isPublished = (await store.readText(success)) !== undefined;
  const manifest = publishedManifest(await store.readText(path));
  if (!profile.endsWith(suffix) || !isPublished || manifest === undefined || manifest.run_id !== runId) {
    throw gone(
      manifest === undefined || !isPublished ? "they are gone" : `they are those of run ${manifest.run_id} now`,
    );
  }
  const parts: string[] = [];
  let rowCount = 0;
  const sizes = await sizesIn(store, folder);
  for (const { file, rows, size_bytes: sizeBytes } of manifest.parts) {
    const part = `${folder}/${file}`;
    const size = await sizes(file);
    if (size !== sizeBytes) {
      throw gone(size === undefined ? `${file} is gone` : `${file} was changed`);
    }
    rowCount += rows;
    if (rows > 0) {
      parts.push(part);
    }
  }
  return { place: folder, parts, rows: rowCount };
}

/** Finds unfinished runs of a job in sibling folders: those of other params. */
export async function findUnfinished(
  store: ReadableStore,
  folders: OtherFolders,
  { job, base }: { job: string; base: RunId },
): Promise<UnfinishedRun[]> {
  // Only warnings depend on this. If the disk or the store fails, the run itself reports it.
  return await searchFolders(store, folders, (folder) => unfinishedIn(store, folder, { job, base })).catch(() => []);
}

async function unfinishedIn(
  store: ReadableStore,
  folder: string,
  { job, base }: { job: string; base: RunId },
): Promise<UnfinishedRun | undefined> {
  try {
    const claim = layoutOf(folder, base).claim;
    const owner = runIdIn(await store.readText(claim));
    if (owner === undefined || owner === base || !owner.startsWith(`${job}-`)) {
      return undefined;
    }
    const layout = layoutOf(folder, await latestRun(store, folder, owner));
    const finished = runIdIn(await store.readText(layout.success));
    const stored = finished === layout.runId ? undefined : await readPlan(store, layout);
    if (stored === undefined || stored.pruned !== undefined || stored.plan.job !== job) {
      return undefined;
    }
    const state = await readState(store, layout, { plan: stored.plan, published: false });
    return state.kind === "discarded" ? undefined : { plan: stored.plan, target: folder, held: state.kind === "held" };
  } catch {
    return undefined; // damage of another run is no error of this one
  }
}
