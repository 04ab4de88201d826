import { parseJson } from "../../plan/parse-plan.js";
import type { PinnedRun, RunId } from "../../plan/plan.js";
import { parseDecision } from "../../publish/decision.js";
import type { PublishedRun } from "../../publish/published-run.js";
import { ifReadable, namesIn, type ReadableStore } from "../../stores/store.js";
import { type ErrorCode, JobError } from "../../util/errors.js";
import { mapBounded } from "../../util/promises.js";
import { layoutOf } from "./layout.js";
import { publishedManifest, secondsOf, sizesIn } from "./manifest.js";
import { runIdIn } from "./plan-file.js";
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

/** Finds the published run of a folder, or of all folders of the job's runs. */
export async function findPublished(
  store: ReadableStore,
  { folder: own, folders }: { readonly folder: string; readonly folders: OtherFolders },
  where: "here" | "everywhere",
): Promise<readonly PublishedRun[]> {
  if (where === "everywhere") {
    return await searchFolders(store, folders, (folder) => publishedIn(store, folder, own));
  }
  const run = await publishedIn(store, own, own);
  return run === undefined ? [] : [run];
}

/**
 * Returns the published run in a folder; undefined for a folder without one, or one that this user may not read. Fails if
 * the disk or the store does: a shorter baseline would let more runs pass.
 * @param own the folder that places are relative to
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
