import { type Fence, flush } from "../../stores/store.js";
import { unlink } from "node:fs/promises";
import { basename, dirname, join } from "node:path";
import type { OutputRows, SpanOutput } from "../../columns/types.js";
import type { DuckDbAccess } from "../../duckdb/instance.js";
import { firstLine } from "../../duckdb/sql.js";
import type { Span } from "../../run/plan/plan.js";
import type { CommittedBy } from "../../run/lifecycle/span-record.js";
import type { Compression } from "../../job/jobfile/output-spec.js";
import { JobError, messageOf } from "../../base/errors.js";
import type { CommitOutcome, StoredPlan } from "../target.js";
import { refuseStopped } from "./ledger.js";
import { joinPieces } from "./join-pieces.js";
import { type CommittedPart, type FinishedPart, isWholeSpan } from "./manifest.js";
import type { PartToWrite } from "./part-file.js";
import { findPart, inspectParts, type RunFolder, type SpilledPiece, textOfRejects } from "./parts.js";
import { mayBeReplaced } from "./publish.js";

export interface SpanCommit {
  readonly compression: Compression;
  readonly maker: Omit<CommittedBy, "batchSize">;
  readonly span: Span;
  readonly output: SpanOutput;
  /** Rows of the span that were encoded before it was complete, in order. */
  readonly spilled: readonly SpilledPiece[];
}

/** Thrown where another attempt has committed the span: its part and the rows that it rejected count. */
class Committed extends Error {}

/**
 * Publishes a span's rejects, then its part, whose creation commits both; or adopts the part that another attempt has
 * committed.
 */
export async function commitSpan(
  run: RunFolder,
  commit: SpanCommit,
): Promise<{ outcome: CommitOutcome; part: FinishedPart }> {
  const { store, layout, stored, duckdb, columnIds } = run;
  const { span, output } = commit;
  const rejects = textOfRejects(output.rejects);
  const rejectsName = rejects.sha256 === null ? undefined : layout.rejectsOf(span.index, rejects.sha256);
  const fence = committing(run);
  const removeUnnamed = async (name: string, why: JobError): Promise<void> => {
    // Another attempt may have committed the same rejects with its part.
    if ((await fence.takesBack(why)) && (await findPart(store, layout, span.index)) === undefined) {
      await store.remove(layout.rejects, [name]);
    }
  };
  const requireFree = async (): Promise<void> => {
    await fence.check();
    if ((await findPart(store, layout, span.index)) !== undefined) {
      throw new Committed();
    }
  };

  let counts: Awaited<ReturnType<typeof encodePart>> | undefined;
  let hasRejects = false;
  try {
    const created = await store.create(
      layout.committedPart(span.index),
      async (path) => {
        counts = await encodePart({ duckdb, stored, columnIds, ...commit, rejectsSha256: rejects.sha256 }, path);
        await requireFree();
        if (rejectsName !== undefined) {
          // Where another attempt has committed the part, nothing is published: after the finish, nothing would remove it.
          const name = `${layout.rejects}/${rejectsName}`;
          hasRejects = true; // also where the creation fails: in a store of objects it may come too late, and is there
          await store.create(name, rejects.text, { ...fence, check: requireFree });
        }
      },
      fence,
    );
    const { outcome, sizeBytes, sha256 } = created;
    if (outcome === "created" && counts !== undefined) {
      return { outcome: "committed", part: { ...counts, sizeBytes, sha256 } };
    }
  } catch (error) {
    const isOver = error instanceof JobError && (error.code === "PLAN_CHANGED" || error.code === "DISCARDED");
    if (isOver && hasRejects && rejectsName !== undefined) {
      await removeUnnamed(rejectsName, error).catch(() => undefined); // the next command finds them; why this one ends says more
    }
    if (!(error instanceof Committed)) {
      throw error;
    }
  }

  const part = await adopt(run, span);
  if (hasRejects && rejectsName !== undefined && rejects.sha256 !== part.rejectsSha256) {
    await store.remove(layout.rejects, [rejectsName]);
  }
  return { outcome: "adopted", part };
}

/**
 * The fence of a span's part and rejects. What came too late after a later run was opened is taken back as what readers
 * see is: another attempt may have adopted it and published this run. A discarded run is never published.
 */
function committing(run: RunFolder): Fence {
  return {
    scope: run.layout.temporary,
    check: () => refuseStopped(run),
    takesBack: async ({ code }) => code !== "PLAN_CHANGED" || (await mayBeReplaced(run)),
  };
}

interface PartToEncode extends SpanCommit {
  readonly duckdb: DuckDbAccess;
  readonly stored: StoredPlan;
  readonly columnIds: RunFolder["columnIds"];
  /** Hex sha256 of the text of the span's rejects; null without rejects. */
  readonly rejectsSha256: string | null;
}

/** Encodes consecutive rows of a span into a file. @throws Error when rows are missing in it */
export async function encodePiece(
  { duckdb, compression, columnIds }: Pick<PartToEncode, "duckdb" | "compression" | "columnIds">,
  rows: OutputRows,
  path: string,
): Promise<SpilledPiece> {
  const written = await encode(duckdb, { path, rows, label: undefined, profile: undefined, compression, columnIds });
  if (written !== rows.rowCount) {
    throw new Error(`${written} rows were written of ${rows.rowCount}`);
  }
  return { path, rows: written };
}

async function encodePart(
  { duckdb, compression, columnIds, maker: by, stored, span, output, rejectsSha256, spilled }: PartToEncode,
  temporary: string,
): Promise<CommittedPart> {
  const { rows, rejects, filtered, erased, batchSize, provider = by.provider } = output;
  const maker = { ...by, batchSize, provider };
  const { index, rowStart, rowEnd } = span;
  const label = {
    runId: stored.plan.runId,
    planId: stored.planId,
    span: index,
    rowStart,
    rowEnd,
    rejected: rejects.length,
    rejectsSha256,
    filtered,
    erased,
    maker,
  };
  const due = spilled.reduce((sum, piece) => sum + piece.rows, rows.rowCount);
  const written = await encodeAll(
    duckdb,
    { path: temporary, rows, label, profile: output.profile, compression, columnIds },
    spilled,
  );
  if (written !== due || !isWholeSpan(span, { rows: written, ...label })) {
    throw new Error(
      `${written} rows were written, ${rejects.length} rejected and ${filtered} filtered out of ${rowEnd - rowStart}`,
    );
  }
  output.onEncoded?.();
  return { rows: written, rejected: rejects.length, rejectsSha256, filtered, erased, maker };
}

async function encodeAll(duckdb: DuckDbAccess, part: PartToWrite, spilled: readonly SpilledPiece[]): Promise<number> {
  if (spilled.length === 0) {
    return await encode(duckdb, part);
  }
  const path = lastPieceOf(part.path);
  try {
    const written = await encode(duckdb, { ...part, path });
    await joinPieces([...spilled.map((piece) => piece.path), path], part.path);
    return spilled.reduce((sum, piece) => sum + piece.rows, written);
  } finally {
    await unlink(path).catch(() => undefined);
  }
}

/** Names the file of the last piece, so that it is found to be the same attempt's leftover as the part. */
function lastPieceOf(path: string): string {
  return join(dirname(path), `last-${basename(path)}`);
}

/**
 * It must be this span of this plan; its bytes may differ. The part may move while it is read, when another attempt
 * finishes the run: each place is tried, the staged one first.
 */
async function adopt(run: RunFolder, span: Span): Promise<FinishedPart> {
  const { store, layout } = run;
  await flush(store, layout.parts); // the attempt that committed it may have died before it flushed the name
  for (const path of layout.pathsOf(span.index)) {
    try {
      const theirs = (await inspectParts(run, new Map([[span.index, path]]))).get(span.index);
      const digest = await (await store.stat(path))?.digest();
      if (theirs === undefined || digest === undefined) {
        throw new Error(`there is no part of span ${span.index} at ${path}`);
      }
      return { ...theirs, ...digest };
    } catch (error) {
      await refuseStopped(run);
      if ((await store.stat(path)) !== undefined) {
        throw error;
      }
    }
  }
  throw new JobError("DISK", `writing span ${span.index}: the part that another attempt has committed is gone`, {
    hint: "something else removes files here; run the same command again, which scores this span anew",
  });
}

/** DuckDB's messages hold the text of an errno, not its name. */
const errnoTexts: Readonly<Record<string, string>> = {
  ENOENT: "No such file or directory",
  ENOSPC: "No space left on device",
  EDQUOT: "Disk quota exceeded",
  EIO: "Input/output error",
  EROFS: "Read-only file system",
  EACCES: "Permission denied",
};

async function encode(duckdb: DuckDbAccess, part: PartToWrite): Promise<number> {
  const { writePart } = await import("./part-file.js"); // with it, DuckDB's library is loaded
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
