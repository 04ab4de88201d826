import type { Column } from "./types.js";

/** Neighbouring rows of a shard, and the columns that were asked for. */
export interface Piece {
  /** [rowStart, rowEnd) of the shard. */
  readonly rowStart: number;
  readonly rowEnd: number;
  readonly columns: ReadonlyMap<string, Column>;
}
