import { dirname } from "node:path";
import type { CommitOutcome } from "../../port.js";
import { adopt, encodePart, type PartToEncode } from "../common/commit.js";
import type { Target } from "../common/committed-parts.js";
import type { FileSystem } from "../common/file-system.js";
import type { FinishedPart } from "../common/manifest.js";
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
  const rejects = textOfRejects(commit.output.rejects);
  const counts = await encodePart({ ...commit, rejectsSha256: rejects.sha256 }, temporary);
  // Not before the part is there: see `withFolders`.
  await check();
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
