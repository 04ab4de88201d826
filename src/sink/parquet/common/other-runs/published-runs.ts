import type { PinnedRun } from "../../../../plan/plan.js";
import { parseJson } from "../../../../plan/parse-plan.js";
import { parseDecision } from "../../../../publish/decision.js";
import type { ReadersView } from "../../../../publish/readers-view.js";
import { earlierDateIn, type PublishedRun, type Series, whyLeftOut } from "../../../../publish/published-run.js";
import { type ErrorCode, JobError } from "../../../../util/errors.js";
import { sha256Of } from "../control-files.js";
import { ifReadable, ifThere, type TargetState } from "../file-system.js";
import { type Layout, layoutOf } from "../layout.js";
import { type Manifest, publishedManifest, secondsOf } from "../manifest.js";
import { runIdIn } from "../named-run.js";
import { type OtherFolders, searchFolders } from "./other-folders.js";
import type { RunId } from "../../../../plan/plan.js";

/**
 * Finds published runs of a series in the folders of the job's other runs: those with a profile and an earlier logical
 * date; without `dateParam`, the run of the same params, which is in `folder`. `placeOf` names a profile's path as plans
 * pin it.
 */
export async function findPublished(
  fs: TargetState,
  { folder: own, folders }: { readonly folder: string; readonly folders: OtherFolders },
  { series, placeOf }: { readonly series: Series; readonly placeOf: (path: string) => string },
): Promise<PublishedRun[]> {
  if (series.dateParam === undefined) {
    const found = await publishedIn(fs, own, { series, placeOf });
    return found === undefined ? [] : [found];
  }
  return await searchFolders(fs, folders, (folder) => publishedIn(fs, folder, { series, placeOf }));
}

/** Finds the run whose parts readers find in a folder. */
export async function readersAt(fs: TargetState, folder: string): Promise<ReadersView> {
  const found = await publishedManifestIn(fs, folder);
  return {
    run: found === undefined ? undefined : { runId: found.run_id, params: found.params, isEmpty: found.rows === 0 },
  };
}

async function publishedManifestIn(fs: TargetState, folder: string): Promise<Manifest | undefined> {
  const { success, manifest: path } = layoutOf(folder, "" as RunId);
  const run = runIdIn(await ifReadable(fs.readText(success)));
  const manifest = run === undefined ? undefined : publishedManifest(await ifReadable(fs.readText(path)));
  return manifest?.run_id === run ? manifest : undefined;
}

/**
 * Returns the published run in a folder that later runs are compared with; undefined for a folder without one, or one
 * that this user may not read. Fails if the disk or the store does: a shorter baseline would let more runs pass.
 */
async function publishedIn(
  fs: TargetState,
  folder: string,
  { series, placeOf }: { readonly series: Series; readonly placeOf: (path: string) => string },
): Promise<PublishedRun | undefined> {
  const manifest = await publishedManifestIn(fs, folder);
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
        place: placeOf(`${folder === "/" ? "" : folder}/${profile.file}`),
        ...(isLeftOut ? { leftOut: whyLeftOut(await decidedBy(fs, layoutOf(folder, manifest.run_id as RunId))) } : {}),
        ...(series.withSeconds === true ? { seconds: secondsOf(manifest) ?? undefined } : {}),
      };
}

/** Who decided on a run; undefined: it is not known, and nothing depends on it. */
async function decidedBy(fs: TargetState, { decision }: Layout): Promise<string | undefined> {
  return parseDecision(parseJson((await ifReadable(fs.readText(decision))) ?? ""))?.by;
}

/** Reads a pinned profile. @throws JobError `code` when it is gone, or another one than was pinned */
export async function readPinned(
  fs: TargetState,
  { runId, sha256 }: PinnedRun,
  { path, code }: { readonly path: string; readonly code: ErrorCode },
): Promise<string> {
  const text = await ifThere(fs.readText(path));
  if (text === undefined || sha256Of(text) !== sha256) {
    const found = text === undefined ? "it is gone" : "it is not the one that was pinned when this run was planned";
    throw new JobError(code, `reading the profile of run ${runId}, which the checks compare with, ${path}: ${found}`, {
      hint: "restore it; or discard this run, and score again with --new-run",
    });
  }
  return text;
}
