import { closeSync, openSync, readSync } from "node:fs";
import { open, unlink } from "node:fs/promises";
import { dirname } from "node:path";
import { errnoOf, JobError } from "../../../util/errors.js";
import type { Span } from "../../../plan/plan.js";

/** A folder for files of spilled rows; disposing removes it. */
export interface RowSpool extends AsyncDisposable {
  /** Creates the folder on the first call. */
  prepare(): Promise<void>;
  /** Returns an unused path in the folder. */
  newPath(): string;
}

/** Rows of incomplete spans, encoded for COPY, in one file a span. */
export interface SpilledCopy {
  /** Appends rows to those of the span that were added before. `chunks`: as `encodeRows` yields them. */
  add(span: Span, rows: { readonly rowCount: number; readonly chunks: Iterable<Uint8Array> }): Promise<void>;
  /** Returns how many rows of the span were added. */
  rowsOf(span: Span): number;
  /** Returns the span's encoded rows. They can be iterated more than once, until `drop`. */
  chunksOf(span: Span): Iterable<Uint8Array>;
  /** Removes the span's file. */
  drop(span: Span): Promise<void>;
}

const readBytes = 1024 * 1024;

/** Keeps the rows of incomplete spans in files of a spool. */
export function openSpilledCopy(spool: RowSpool): SpilledCopy {
  const files = new Map<number, { readonly path: string; rows: number }>();
  return {
    async add(span, { rowCount, chunks }) {
      await spool.prepare();
      const file = files.get(span.index) ?? { path: spool.newPath(), rows: 0 };
      files.set(span.index, file);
      await append(file.path, chunks);
      file.rows += rowCount;
    },
    rowsOf: ({ index }) => files.get(index)?.rows ?? 0,
    chunksOf: ({ index }) => chunksIn(files.get(index)?.path),
    async drop({ index }) {
      const file = files.get(index);
      files.delete(index);
      await (file && unlink(file.path).catch(() => undefined)); // the spool's folder is removed when the sink closes
    },
  };
}

function chunksIn(path: string | undefined): Iterable<Uint8Array> {
  return {
    *[Symbol.iterator]() {
      if (path === undefined) {
        return;
      }
      const file = openSync(path, "r");
      try {
        for (;;) {
          const chunk = Buffer.allocUnsafe(readBytes); // a new one: the chunk before it may not be sent yet
          const length = readSync(file, chunk);
          if (length === 0) {
            return;
          }
          yield chunk.subarray(0, length);
        }
      } finally {
        closeSync(file);
      }
    },
  };
}

async function append(path: string, chunks: Iterable<Uint8Array>): Promise<void> {
  try {
    await using handle = await open(path, "a", 0o600);
    for (const chunk of chunks) {
      await handle.appendFile(chunk);
    }
  } catch (error) {
    const errno = errnoOf(error);
    if (errno === undefined) {
      throw error;
    }
    throw new JobError("DISK", `spilling rows to ${dirname(path)}: ${errno}`, {
      hint: "free some space there, or name another folder in TMPDIR; a smaller commit_rows, or a larger engine.memory, spills less",
      cause: error,
    });
  }
}
