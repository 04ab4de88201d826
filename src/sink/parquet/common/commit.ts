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
import { rowsLeft, wholeSpan } from "./parts.js";
import type { PartToWrite } from "./part-file.js";
import type { Maker, StoredPlan } from "../../port.js";

export interface PartToEncode {
  readonly duckdb: DuckDbAccess;
  readonly compression: Compression;
  readonly maker: Omit<Maker, "batchSize">;
  readonly stored: StoredPlan;
  readonly span: Span;
  readonly output: SpanOutput;
  /** Of the text of its rejects. */
  readonly rejectsSha256: string | null;
}

/** Begins to load what parts are encoded with. What is in the way, the first commit tells. */
export function loadEncoder(duckdb: DuckDbAccess): void {
  duckdb.load();
  import("./part-file.js").catch(() => undefined);
}

/** Writes a span's part into a temporary file. Returns what its label counts. @throws Error unless it is whole */
export async function encodePart(
  { duckdb, compression, maker: by, stored, span, output, rejectsSha256 }: PartToEncode,
  temporary: string,
): Promise<Pick<FinishedPart, "rows" | "rejected" | "rejectsSha256" | "filtered" | "maker">> {
  const { rows, rejects, filtered, batchSize } = output;
  const maker = { ...by, batchSize };
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
  const written = await encode(duckdb, { path: temporary, rows, label, compression });
  if (written !== rows.rowCount || !wholeSpan(span, { rows: written, ...label })) {
    throw new Error(
      `${written} rows were written, ${rejects.length} rejected and ${filtered} filtered out of ${rowEnd - rowStart}`,
    );
  }
  output.onEncoded?.();
  return { rows: written, rejected: rejects.length, rejectsSha256, filtered, maker };
}

/**
 * First writer wins. Theirs must be this span of this plan; bytes may differ. It is looked for where it comes from, then
 * where it stays: an attempt beside this one may finish the run meanwhile.
 */
export async function adopt({ fs, inspect, layout, check }: Target, span: Span): Promise<FinishedPart> {
  const file = layout.part(span.index);
  let gone: unknown;
  for (const path of layout.placesOf(span.index)) {
    try {
      const theirs = (await inspect(new Map([[span.index, path]]))).get(span.index);
      if (theirs === undefined) {
        throw new Error(`span ${span.index} was looked for and not told`);
      }
      const { sizeBytes, sha256 } = await fs.digest(path);
      return { file, span: span.index, rows: rowsLeft(span, theirs), ...theirs, sizeBytes, sha256 };
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

/** DuckDB gives the errno's text only. */
const errnoTexts: Readonly<Record<string, string>> = {
  ENOENT: "No such file or directory",
  ENOSPC: "No space left on device",
  EDQUOT: "Disk quota exceeded",
  EIO: "Input/output error",
  EROFS: "Read-only file system",
  EACCES: "Permission denied",
};

async function encode(duckdb: DuckDbAccess, part: PartToWrite): Promise<number> {
  const { writePart } = await import("./part-file.js"); // and DuckDB's library with it
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
