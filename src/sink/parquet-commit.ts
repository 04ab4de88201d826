import { basename, join } from "node:path";
import type { SpanOutput } from "../batch/types.js";
import { type DuckDb, firstLine } from "../duckdb/instance.js";
import { JobError, messageOf } from "../errors.js";
import type { Span } from "../plan/plan.js";
import type { Compression } from "../spec/job-spec.js";
import { sizeIfThere } from "./claim.js";
import { publish } from "./durable.js";
import type { FileSystem } from "./file-system.js";
import type { Layout } from "./layout.js";
import type { FinishedPart } from "./parquet-finish.js";
import { inspectParts, rowsLeft, wholeSpan } from "./parquet-parts.js";
import { textOfRejects, writeRejects } from "./parquet-rejects.js";
import { writePart } from "./part-file.js";
import type { CommitOutcome, Maker, StoredPlan } from "./port.js";

export interface PartCommit {
  readonly fs: FileSystem;
  readonly duckdb: DuckDb;
  readonly compression: Compression;
  readonly maker: Omit<Maker, "batchSize">;
  readonly layout: Layout;
  readonly stored: StoredPlan;
  readonly span: Span;
  readonly output: SpanOutput;
  /** Throws when another plan stands at the target. */
  readonly check: () => Promise<void>;
}

/** The rejects first, then the part, whose appearance commits both. */
export async function commitPart(
  commit: PartCommit,
  temporary: string,
): Promise<{ outcome: CommitOutcome; part: FinishedPart }> {
  const { fs, duckdb, layout, stored, span } = commit;
  const { rows, rejects, filtered, batchSize } = commit.output;
  const maker = { ...commit.maker, batchSize };
  const { index, rowStart, rowEnd } = span;
  const rejectsText = textOfRejects(rejects);
  const file = layout.part(index);
  const final = join(layout.parts, file);
  const label = {
    runId: stored.plan.runId,
    planId: stored.planId,
    span: index,
    rowStart,
    rowEnd,
    rejected: rejects.length,
    rejectsSha256: rejectsText.sha256,
    filtered,
    maker,
  };
  const written = await encode(duckdb, { path: temporary, rows, label, compression: commit.compression });
  if (written !== rows.rowCount || !wholeSpan(span, { rows: written, ...label })) {
    throw new Error(
      `${written} rows were written, ${rejects.length} rejected and ${filtered} filtered out of ${rowEnd - rowStart}`,
    );
  }
  // Not before the part is there: see `inTemporary`.
  await commit.check();
  const standing = await writeRejects(fs, {
    layout,
    span: index,
    ...rejectsText,
    writer: maker.writer,
    check: commit.check,
  });
  if (standing !== undefined) {
    await fs.sync(standing); // whoever gave the part its name there may have died before this
    await fs.unlink(temporary);
    return { outcome: "adopted", part: await adopt(commit) };
  }
  const { rejected, rejectsSha256 } = label;
  const counts = { rows: written, rejected, rejectsSha256, filtered, maker };
  const part = { file, span: index, ...counts, ...(await fs.digest(temporary)) };
  if ((await publish(fs, temporary, final)) === "published") {
    return { outcome: "committed", part };
  }
  return { outcome: "adopted", part: await adopt(commit) };
}

/**
 * First writer wins. Theirs must be this span of this plan; bytes may differ. It is looked for where it comes from, then
 * where it stays: an attempt beside this one may finish the run meanwhile.
 */
async function adopt({ fs, duckdb, layout, stored, span, check }: PartCommit): Promise<FinishedPart> {
  const file = layout.part(span.index);
  let gone: unknown;
  for (const folder of new Set([layout.parts, layout.folder])) {
    const path = join(folder, file);
    try {
      const theirs = (await inspectParts(duckdb, stored, new Map([[span.index, path]]))).get(span.index);
      if (theirs === undefined) {
        throw new Error(`span ${span.index} was looked for and not told`);
      }
      const { sizeBytes, sha256 } = await fs.digest(path);
      return { file, span: span.index, rows: rowsLeft(span, theirs), ...theirs, sizeBytes, sha256 };
    } catch (error) {
      await check();
      if ((await sizeIfThere(fs, path)) !== undefined) {
        throw error;
      }
      gone ??= error;
    }
  }
  throw gone;
}

/** DuckDB gives the errno's text only. */
const errnoTexts: Readonly<Record<string, string>> = {
  ENOENT: "No such file or directory",
  ENOSPC: "No space left on device",
  EDQUOT: "Disk quota exceeded",
  EIO: "Input/output error",
  EROFS: "Read-only file system",
  EACCES: "Permission denied",
};

async function encode(duckdb: DuckDb, part: Parameters<typeof writePart>[1]): Promise<number> {
  try {
    return await writePart(duckdb, part);
  } catch (error) {
    const message = firstLine(messageOf(error));
    const code = Object.keys(errnoTexts).find((errno) => message.includes(errnoTexts[errno] ?? ""));
    if (code !== undefined) {
      throw Object.assign(new Error(message, { cause: error }), { code, path: part.path });
    }
    throw new JobError(
      message.startsWith("Out of Memory Error") ? "MEMORY" : "DISK",
      `writing ${basename(part.path)}: ${message}`,
      {
        hint: "run the same command again; committed spans are kept",
        cause: error,
      },
    );
  }
}
