import { unlink } from "node:fs/promises";
import type { OutputRows } from "../../../columnar/types.js";
import { JobError } from "../../../util/errors.js";
import type { Span } from "../../../plan/plan.js";
import { creationIdOf } from "../../../s3/store.js";
import { withSpoolErrors } from "../../../util/spool.js";
import { ifThere, nodeFileSystem } from "../common/file-system.js";
import type { FinishedPart } from "../common/manifest.js";
import { adopt, encodePart, encodePiece, type SpilledPiece } from "../common/commit.js";
import type { Target } from "../common/committed-parts.js";
import { refuseStopped } from "../common/control-files.js";
import { type RejectsText, textOfRejects } from "../common/rejects.js";
import type { SpanCommit } from "../common/run-sink.js";
import type { CommitOutcome } from "../../port.js";
import type { S3Uri } from "../../../spec/s3/s3-uri.js";
import { retractIfSuperseded } from "./retract-superseded.js";
import { digestKey, objectAt } from "./target-state.js";
import type { S3Tools } from "./tools.js";

/** The largest object that stores take by one PUT. */
const partLimitBytes = 5 * 1024 ** 3;

export interface S3Commit extends SpanCommit {
  readonly tools: S3Tools;
  readonly target: Target;
}

/** Encodes consecutive rows of a span into a file of the spool. */
export async function spoolPiece(tools: S3Tools, rows: OutputRows, path: string): Promise<SpilledPiece> {
  const { spool } = tools;
  await spool.prepare();
  return await withSpoolErrors(spool, () => encodePiece(tools, rows, path));
}

/** Publishes a span's rejects, then its part. The creation of the part commits both. */
export async function commitToS3(commit: S3Commit): Promise<{ outcome: CommitOutcome; part: FinishedPart }> {
  const { tools, target, span } = commit;
  await tools.spool.prepare();
  const path = tools.spool.newPath();
  const rejects = textOfRejects(commit.output.rejects);
  try {
    const part = await withSpoolErrors(tools.spool, () => encode(commit, { path, rejectsSha256: rejects.sha256 }));
    await refuseStopped(target);
    if (await isThere(target, span)) {
      return { outcome: "adopted", part: await adopt(target, span) };
    }
    if ((await publish(commit, { part, path, rejects })) === "committed") {
      return { outcome: "committed", part };
    }
    const theirs = await adopt(target, span);
    if (rejects.sha256 !== null && rejects.sha256 !== theirs.rejectsSha256) {
      await tools.store.remove(rejectsAt(target, span.index, rejects.sha256)); // no part names it
    }
    return { outcome: "adopted", part: theirs };
  } finally {
    await unlink(path).catch(() => undefined); // the folder of the spool goes when the attempt ends
  }
}

function rejectsAt({ layout }: Target, span: number, sha256: string): S3Uri {
  return objectAt(`${layout.rejects}/${layout.rejectsOf(span, sha256)}`);
}

async function encode(
  { tools, target, maker, span, output, spilled }: S3Commit,
  { path, rejectsSha256 }: { path: string; rejectsSha256: string | null },
): Promise<FinishedPart> {
  const { duckdb, compression } = tools;
  const { stored } = target;
  const counts = await encodePart({ duckdb, compression, maker, stored, span, output, rejectsSha256, spilled }, path);
  const facts = await nodeFileSystem.digest(path);
  if (facts.sizeBytes > partLimitBytes) {
    throw new JobError("USAGE", `writing ${target.layout.committedPart(span.index)}: it has ${facts.sizeBytes} bytes`, {
      hint: "a store takes 5 GiB at once: score with a smaller commit_rows, in another folder or by --new-run",
    });
  }
  return { file: target.layout.part(span.index), span: span.index, ...counts, ...facts };
}

/** Whether the part exists, also where the finish of a later run has copied it. */
async function isThere({ fs, layout }: Target, span: Span): Promise<boolean> {
  for (const uri of layout.pathsOf(span.index)) {
    if ((await ifThere(fs.sizeOf(uri))) !== undefined) {
      return true;
    }
  }
  return false;
}

async function publish(
  { tools, target }: S3Commit,
  { part, path, rejects }: { part: FinishedPart; path: string; rejects: RejectsText },
): Promise<CommitOutcome> {
  const { store } = tools;
  const { layout, stored, check } = target;
  const final = objectAt(layout.committedPart(part.span));
  if (rejects.sha256 !== null) {
    await store.put(rejectsAt(target, part.span, rejects.sha256), rejects.text);
  }
  const creation = await store.create(final, {
    body: { path, sizeBytes: part.sizeBytes, sha256: part.sha256 },
    metadata: metadataOf(stored, part),
    conditional: await tools.isExclusive(),
  });
  if (creation.kind === "exists") {
    return "adopted";
  }
  await retractIfSuperseded(check, async () => {
    const found = await store.head(final);
    if (found !== undefined && creationIdOf(found) === creation.id) {
      await store.remove(final, found.etag);
      if (rejects.sha256 !== null) {
        await store.remove(rejectsAt(target, part.span, rejects.sha256));
      }
    }
  });
  return "committed";
}

/** Metadata of a part: for people, and for attempts that adopt the part. */
function metadataOf({ plan, planId }: Target["stored"], part: FinishedPart): Record<string, string> {
  return {
    "infer-batch-run": plan.runId,
    "infer-batch-plan": planId,
    "infer-batch-span": String(part.span),
    "infer-batch-rows": String(part.rows),
    "infer-batch-rejected": String(part.rejected),
    "infer-batch-filtered": String(part.filtered),
    [digestKey]: part.sha256,
  };
}
