import { unlink } from "node:fs/promises";
import { basename, dirname, join } from "node:path";
import type { OutputRows, SpanOutput } from "../../../columnar/types.js";
import type { DuckDbAccess } from "../../../duckdb/instance.js";
import { firstLine } from "../../../duckdb/sql.js";
import { JobError, messageOf } from "../../../util/errors.js";
import type { Span } from "../../../plan/plan.js";
import type { Compression } from "../../../spec/parquet-spec.js";
import { ifThere } from "./file-system.js";
import { joinPieces } from "./join-pieces.js";
import type { FinishedPart } from "./manifest.js";
import type { Target } from "./committed-parts.js";
import { partRows, isWholeSpan } from "./parts.js";
import type { PartToWrite } from "./part-file.js";
import type { StoredPlan } from "../../port.js";
import type { CommittedBy } from "../../../publish/committed-by.js";
import { awaitedLater } from "../../../util/promises.js";

export interface PartToEncode {
  readonly duckdb: DuckDbAccess;
  readonly compression: Compression;
  readonly maker: Omit<CommittedBy, "batchSize">;
  readonly stored: StoredPlan;
  readonly span: Span;
  readonly output: SpanOutput;
  /** Hex sha256 of the text of the span's rejects; null without rejects. */
  readonly rejectsSha256: string | null;
  /** Rows of the span that were encoded before it was complete, in order. */
  readonly spilled: readonly SpilledPiece[];
}

/** Consecutive rows of a span, in a Parquet file without a label. */
export interface SpilledPiece {
  readonly path: string;
  readonly rows: number;
}

/** Encodes consecutive rows of a span into a file. @throws Error when rows are missing in it */
export async function encodePiece(
  { duckdb, compression }: Pick<PartToEncode, "duckdb" | "compression">,
  rows: OutputRows,
  path: string,
): Promise<SpilledPiece> {
  const written = await encode(duckdb, { path, rows, label: undefined, profile: undefined, compression });
  if (written !== rows.rowCount) {
    throw new Error(`${written} rows were written of ${rows.rowCount}`);
  }
  return { path, rows: written };
}

/** Starts loading what encodes parts. If that fails, the first commit reports it. */
export function loadEncoder(duckdb: DuckDbAccess): void {
  duckdb.load();
  void awaitedLater(import("./part-file.js"));
}

/**
 * Writes a span's part into a temporary file. Returns the counts of its label. @throws Error when rows of the span are
 * missing
 */
export async function encodePart(
  { duckdb, compression, maker: by, stored, span, output, rejectsSha256, spilled }: PartToEncode,
  temporary: string,
): Promise<Pick<FinishedPart, "rows" | "rejected" | "rejectsSha256" | "filtered" | "erased" | "maker">> {
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
    { path: temporary, rows, label, profile: output.profile, compression },
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

/** Writes the spilled pieces and the rows that follow them into one file. Returns the number of rows. */
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
 * Adopts the part that another attempt has committed: the first writer wins. It must be this span of this plan; its
 * bytes may differ. The part may move while it is read, when another attempt finishes the run: each place is tried, the
 * staged one first.
 */
export async function adopt({ fs, inspect, layout, check }: Target, span: Span): Promise<FinishedPart> {
  const file = layout.part(span.index);
  let gone: unknown;
  for (const path of layout.pathsOf(span.index)) {
    try {
      const theirs = (await inspect(new Map([[span.index, path]]))).get(span.index);
      if (theirs === undefined) {
        throw new Error(`span ${span.index} was inspected without a result`);
      }
      const { sizeBytes, sha256 } = await fs.digest(path);
      return { file, span: span.index, rows: partRows(span, theirs), ...theirs, sizeBytes, sha256 };
    } catch (error) {
      await check();
      if ((await ifThere(fs.sizeOf(path))) !== undefined) {
        throw error;
      }
      gone ??= error;
    }
  }
  throw gone;
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
