import type { PinnedRun, RunId } from "../../../../plan/plan.js";
import { type ErrorCode, JobError } from "../../../../util/errors.js";
import { ifThere, type TargetState } from "../file-system.js";
import { layoutOf } from "../layout.js";
import { publishedManifest } from "../manifest.js";

/** The folder of a published run, and the paths of its parts. */
export interface PublishedParts {
  readonly folder: string;
  readonly parts: readonly string[];
  readonly rows: number;
}

/**
 * Finds the parts of a published run whose profile has this path. @throws JobError `code` when the run is not there any
 * more, or another one is, or a part is missing or has another size
 */
export async function findPublishedParts(
  fs: TargetState,
  { runId }: PinnedRun,
  { profile, code }: { readonly profile: string; readonly code: ErrorCode },
): Promise<PublishedParts> {
  const suffix = layoutOf("", runId as RunId).profile;
  const folder = profile.slice(0, -suffix.length);
  const gone = (found: string): JobError =>
    new JobError(code, `reading the predictions of run ${runId} in ${folder}: ${found}`);
  const { manifest: path, success } = layoutOf(folder, runId as RunId);
  const isPublished = (await ifThere(fs.readText(success))) !== undefined;
  const manifest = publishedManifest(await ifThere(fs.readText(path)));
  if (!profile.endsWith(suffix) || !isPublished || manifest === undefined || manifest.run_id !== runId) {
    throw gone(
      manifest === undefined || !isPublished ? "they are gone" : `they are those of run ${manifest.run_id} now`,
    );
  }
  const parts: string[] = [];
  let rowCount = 0;
  const sizes = await fs.sizesIn?.(folder);
  for (const { file, rows, size_bytes: sizeBytes } of manifest.parts) {
    const part = `${folder}/${file}`;
    const size = sizes === undefined ? await ifThere(fs.sizeOf(part)) : sizes.get(file);
    if (size !== sizeBytes) {
      throw gone(size === undefined ? `${file} is gone` : `${file} was changed`);
    }
    rowCount += rows;
    if (rows > 0) {
      parts.push(part);
    }
  }
  return { folder, parts, rows: rowCount };
}
