import { basename } from "node:path";
import type { SpanOutput } from "../../../columnar/types.js";
import type { DuckDbAccess } from "../../../duckdb/instance.js";
import { firstLine } from "../../../duckdb/sql.js";
import { JobError, messageOf } from "../../../util/errors.js";
import type { Span } from "../../../plan/plan.js";
import type { Compression } from "../../../spec/parquet-spec.js";
import { ifThere } from "./file-system.js";
import type { FinishedPart } from "./manifest.js";
import type { Target } from "./committed-parts.js";
import { partRows, isWholeSpan } from "./parts.js";
import type { PartToWrite } from "./part-file.js";
import type { CommittedBy, StoredPlan } from "../../port.js";
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
  { duckdb, compression, maker: by, stored, span, output, rejectsSha256 }: PartToEncode,
  temporary: string,
): Promise<Pick<FinishedPart, "rows" | "rejected" | "rejectsSha256" | "filtered" | "maker">> {
  const { rows, rejects, filtered, batchSize, provider = by.provider } = output;
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
    maker,
  };
  const written = await encode(duckdb, { path: temporary, rows, label, profile: output.profile, compression });
  if (written !== rows.rowCount || !isWholeSpan(span, { rows: written, ...label })) {
    throw new Error(
      `${written} rows were written, ${rejects.length} rejected and ${filtered} filtered out of ${rowEnd - rowStart}`,
    );
  }
  output.onEncoded?.();
  return { rows: written, rejected: rejects.length, rejectsSha256, filtered, maker };
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
