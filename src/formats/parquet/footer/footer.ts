import type { Leaf } from "./leaves.js";

/** What a footer says of where its rows lie; names are those of parquet.thrift where it has one. */
export interface Footer {
  readonly sizeBytes: number;
  readonly rows: number;
  readonly rowGroups: readonly RowGroup[];
  /** In the order of each row group's chunks. */
  readonly leaves: readonly Leaf[];
  /** Offset of the footer: all pages lie before it. */
  readonly pagesEnd: number;
  /** Whether a part of the file is encrypted, or signed. */
  readonly encrypted: boolean;
}

export interface RowGroup {
  readonly rows: number;
  readonly chunks: readonly ColumnChunk[];
}

export interface ColumnChunk {
  /** Names from the table's column down to the leaf. */
  readonly path: readonly string[];
  /** Of its first page. */
  readonly start: number;
  readonly compressedBytes: number;
  readonly uncompressedBytes: number;
  readonly values: number;
  /** Of texts or bytes, all values together, each as often as it occurs; undefined: its writer does not tell. */
  readonly unencodedBytes: number | undefined;
  /** Numbers of the physical type and of the codec, 0 being none. */
  readonly type: number;
  readonly codec: number;
  /** How many levels its histograms count; 0 where it has none. */
  readonly levels: { readonly repetition: number; readonly definition: number };
  readonly encrypted: boolean;
  /** Whether it has texts that share their beginning with the one before. */
  readonly hasPrefixes: boolean;
  /** Whether DuckDB may look for its pages elsewhere: in another file, or where a dictionary is said to be. */
  readonly isElsewhere: boolean;
}

/** Returns the rows of all row groups together. */
export function rowsIn({ rowGroups }: Footer): number {
  return rowGroups.reduce((total, group) => total + group.rows, 0);
}

/** Returns the place of a chunk as messages name it: "row group 3, column `user.age`". */
export function placeOf(group: number, { path }: Pick<ColumnChunk, "path">): string {
  return `row group ${group}, column \`${path.join(".")}\``;
}
