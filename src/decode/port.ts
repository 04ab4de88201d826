import type { InputBinding } from "../batch/contract.js";
import type { ColumnType, RecordBatch, SourceColumn } from "../batch/types.js";

/** What to read of a shard: a column of the record batch each, in this order. */
export type Projection = readonly ProjectedColumn[];

export type ProjectedColumn =
  /** The column as it is. */
  | { readonly kind: "plain"; readonly column: string; readonly type: ColumnType }
  /** Columns cast and packed row-major; a value that the cast cannot hold becomes NULL. */
  | { readonly kind: "matrix"; readonly binding: InputBinding };

export interface ShardSchema {
  readonly columns: readonly SourceColumn[];
}

/** What a shard's footer says. */
export interface ShardFooter {
  readonly path: string;
  readonly rows: number;
  readonly rowGroups: number;
  readonly sizeBytes: number;
  /** The same object for all shards with the same columns, types and order. */
  readonly schema: ShardSchema;
}

export interface SliceRequest {
  readonly path: string;
  /** [rowStart, rowEnd) of the shard. */
  readonly rowStart: number;
  readonly rowEnd: number;
  readonly projection: Projection;
}

/** Turns shards into record batches. */
export interface Decoder extends AsyncDisposable {
  /**
   * Footers only, in the order given, at most some at a time.
   * @throws JobError SHARD_CORRUPT naming the file
   */
  footers(paths: readonly string[]): AsyncIterable<ShardFooter>;
  /**
   * The rows of a slice, in file order, in batches of irregular length. A batch's arrays are the decoder's
   * own memory: they hold until the next one is asked for.
   * Ends normally only when exactly the rows asked for came.
   * @throws JobError SHARD_CORRUPT
   */
  read(slice: SliceRequest): AsyncIterable<RecordBatch>;
  /** The values of one row as text, for a message about it; null for NULL. */
  describeRow(path: string, row: number, columns: readonly string[]): Promise<(string | null)[]>;
}
