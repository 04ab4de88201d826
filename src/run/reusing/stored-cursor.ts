import type { Contract } from "../../binding/contract.js";
import { createColumnBuilder } from "../../columnar/column-builder.js";
import { hashWords } from "../../columnar/row-hash.js";
import type { ComparedRows, StoredRows } from "../../packing/row-reuse.js";
import type { SoughtRows } from "../../scoring/reuse.js";

/** Stored rows that come in the order of the run's rows. */
export interface StoredCursor {
  /** Those for rows [rowStart, rowEnd) of the run. Calls are in the order of the rows. */
  readonly find: (this: void, rows: Pick<SoughtRows, "rowStart" | "rowEnd">) => Promise<StoredRows>;
  close(): Promise<void>;
}

/** @param onFailure called once if no more rows can be read; none are found from then on. Throws to end the run */
export function openStoredCursor(
  outputs: Contract["outputs"],
  found: AsyncGenerator<ComparedRows>,
  onFailure: (error: unknown) => void,
): StoredCursor {
  let pieces: ComparedRows[] = [];
  /** Reads the next piece; undefined: there is none. */
  const next = async (): Promise<ComparedRows | undefined> => {
    try {
      const result = await found.next();
      return result.done === true ? undefined : result.value;
    } catch (error) {
      onFailure(error);
      return undefined;
    }
  };
  return {
    async find({ rowStart, rowEnd }) {
      while ((pieces.at(-1)?.rows.at(-1) ?? -1) < rowEnd) {
        const piece = await next();
        if (piece === undefined) {
          break;
        }
        pieces.push(piece);
      }
      const rows = takeRows(outputs, pieces, { rowStart, rowEnd });
      pieces = pieces.filter((piece) => (piece.rows.at(-1) ?? -1) >= rowEnd);
      return rows;
    },
    async close() {
      await found.return(undefined);
    },
  };
}

/** The rows of the pieces that belong to rows [rowStart, rowEnd) of the run, together. */
function takeRows(
  outputs: Contract["outputs"],
  pieces: readonly ComparedRows[],
  { rowStart, rowEnd }: { readonly rowStart: number; readonly rowEnd: number },
): StoredRows {
  const taken = pieces.map((piece) => ({
    piece,
    from: firstAtLeast(piece.rows, rowStart),
    to: firstAtLeast(piece.rows, rowEnd),
  }));
  const count = taken.reduce((sum, { from, to }) => sum + to - from, 0);
  const rows = new Float64Array(count);
  const hashes = new Int32Array(count * hashWords);
  const predictions = outputs.map(({ type }) => createColumnBuilder(type, count));
  let at = 0;
  for (const { piece, from, to } of taken) {
    rows.set(piece.rows.subarray(from, to), at);
    hashes.set(piece.hashes.subarray(from * hashWords, to * hashWords), at * hashWords);
    for (const [index, builder] of predictions.entries()) {
      const column = piece.predictions[index];
      if (column !== undefined && to > from) {
        builder.append(column, from, to);
      }
    }
    at += to - from;
  }
  return { rows, hashes, predictions: predictions.map((builder) => builder.finish()) };
}

/** Index of the first value that is `limit` or more; `sorted` is ascending. */
function firstAtLeast(sorted: Float64Array, limit: number): number {
  let low = 0;
  let high = sorted.length;
  while (low < high) {
    const middle = (low + high) >>> 1;
    if ((sorted[middle] as number) < limit) {
      low = middle + 1;
    } else {
      high = middle;
    }
  }
  return low;
}
