import type { OutputRows } from "../../../columnar/types.js";
import type { Span } from "../../../plan/plan.js";
import type { SpilledPiece } from "./commit.js";

/** Pieces of incomplete spans. */
export interface SpilledPieces {
  /** Encodes rows that follow those of the span that were added before. */
  add(span: Span, rows: OutputRows): Promise<void>;
  /** Returns the pieces of a span, in order. */
  of(span: Span): readonly SpilledPiece[];
  /** Removes the pieces of a span that this or another attempt has committed. */
  drop(span: Span): Promise<void>;
}

/** Where pieces are written. */
export interface SpillTarget {
  /** @param piece number of the span's piece, from 0 */
  readonly pathOf: (span: Span, piece: number) => string;
  readonly encode: (rows: OutputRows, path: string) => Promise<SpilledPiece>;
  readonly remove: (path: string) => Promise<void>;
}

/** Keeps the pieces of incomplete spans. */
export function createSpilledPieces({ pathOf, encode, remove }: SpillTarget): SpilledPieces {
  const spilled = new Map<number, readonly SpilledPiece[]>();
  const of = ({ index }: Span): readonly SpilledPiece[] => spilled.get(index) ?? [];
  return {
    of,
    async add(span, rows) {
      const pieces = of(span);
      const piece = await encode(rows, pathOf(span, pieces.length));
      spilled.set(span.index, [...pieces, piece]);
    },
    async drop(span) {
      const pieces = of(span);
      spilled.delete(span.index);
      for (const { path } of pieces) {
        await remove(path).catch(() => undefined); // finishing the run removes what stays
      }
    },
  };
}
