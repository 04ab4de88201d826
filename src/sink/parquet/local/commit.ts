import { dirname } from "node:path";
import type { Span } from "../../../plan/plan.js";
import { JobError } from "../../../util/errors.js";
import type { CommitOutcome } from "../../port.js";
import { adopt, encodePart, type PartToEncode, type SpilledPiece } from "../common/commit.js";
import type { Target } from "../common/committed-parts.js";
import { refuseStopped } from "../common/control-files.js";
import { type FileSystem, ifThere } from "../common/file-system.js";
import type { FinishedPart } from "../common/manifest.js";
import { findPart } from "../common/parts.js";
import { textOfRejects } from "../common/rejects.js";
import { publish } from "./durable.js";
import { writeRejects } from "./rejects.js";

/** A run at a Parquet target on a disk. */
export interface DiskTarget extends Target {
  readonly fs: FileSystem;
}

export interface PartCommit extends Omit<PartToEncode, "rejectsSha256"> {
  readonly target: DiskTarget;
}

/** Publishes a span's rejects, then its part. The part's appearance under its final name commits both. */
export async function commitPart(
  commit: PartCommit,
  temporary: string,
): Promise<{ outcome: CommitOutcome; part: FinishedPart }> {
  const { target, span, maker } = commit;
  const { fs, layout, check } = target;
  const { index } = span;
  if (!(await exist(fs, commit.spilled))) {
    return { outcome: "adopted", part: await adoptCleared(target, span) };
  }
  const rejects = textOfRejects(commit.output.rejects);
  const counts = await encodePart({ ...commit, rejectsSha256: rejects.sha256 }, temporary);
  // Not before the part is there: see `withFolders`.
  await refuseStopped(target);
  const rejectsFile = await writeRejects(fs, { layout, span: index, ...rejects, writer: maker.writer, check });
  if (rejectsFile !== undefined) {
    await fs.sync(dirname(rejectsFile)); // the attempt that gave the part its name there may have died before it flushed that
    await fs.unlink(temporary);
    return { outcome: "adopted", part: await adopt(target, span) };
  }
  const part = { file: layout.part(index), span: index, ...counts, ...(await fs.digest(temporary)) };
  if ((await publish(fs, temporary, layout.committedPart(index))) === "published") {
    return { outcome: "committed", part };
  }
  return { outcome: "adopted", part: await adopt(target, span) };
}

async function exist(fs: FileSystem, spilled: readonly SpilledPiece[]): Promise<boolean> {
  for (const { path } of spilled) {
    if ((await ifThere(fs.sizeOf(path))) === undefined) {
      return false;
    }
  }
  return true;
}

/**
 * Adopts a span whose pieces are gone. An attempt that finishes the run removes temporary files, and then every span is
 * committed.
 */
async function adoptCleared(target: DiskTarget, span: Span): Promise<FinishedPart> {
  const { fs, layout } = target;
  await refuseStopped(target);
  if ((await findPart(fs, layout, span.index)) === undefined) {
    throw new JobError("DISK", `writing span ${span.index}: its temporary files in ${layout.temporary} are gone`, {
      hint: "something else removes files there; run the same command again, which scores this span anew",
    });
  }
  return await adopt(target, span);
}
