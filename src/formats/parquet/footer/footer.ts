import type { SchemaLeaves } from "./leaves.js";

/** The parts of a footer that say where rows are. Names are those of parquet.thrift if it has one. */
export interface Footer extends SchemaLeaves {
  readonly sizeBytes: number;
  readonly rows: number;
  readonly rowGroups: readonly RowGroup[];
  /** Offset of the footer: all pages are before it. */
  readonly pagesEnd: number;
  /** What the writer says of the file, of those keys that change its meaning. */
  readonly metadata: ReadonlyMap<string, string>;
  /** Whether a part of the file is encrypted or signed. */
  readonly encrypted: boolean;
}

export interface RowGroup {
  readonly rows: number;
  readonly chunks: readonly ColumnChunk[];
}

export interface ColumnChunk {
  /** Names from the table's column down to the leaf. */
  readonly path: readonly string[];
  /** The offset of the chunk's first page. */
  readonly start: number;
  readonly compressedBytes: number;
  readonly uncompressedBytes: number;
  readonly values: number;
  /** The size of all texts or bytes, each counted as often as it occurs; undefined: the writer does not record it. */
  readonly unencodedBytes: number | undefined;
  /** The size of a page, uncompressed, where it was looked up; the footer does not say it. */
  readonly pageBytes?: number | undefined;
  /** The NULLs that the chunk's statistics state, where it has some. */
  readonly nulls: number | undefined;
  /** Numbers of the physical type and of the codec, 0 being none. */
  readonly type: number;
  readonly codec: number;
  /** The number of levels that the chunk's histograms count; 0 without histograms. */
  readonly levels: { readonly repetition: number; readonly definition: number };
  readonly encrypted: boolean;
  /** Whether texts of the chunk share a prefix with the text before (DELTA_BYTE_ARRAY). */
  readonly hasPrefixes: boolean;
  /** Whether the footer names an encoding other than those of plain values, of dictionaries, and of levels. */
  readonly hasOtherEncodings: boolean;
  /** Whether DuckDB may read pages from another place: another file, or the stated offset of a dictionary. */
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

/** Completes the chunks of a footer for which something was found. */
export function withChunks<T>(
  footer: Footer,
  found: ReadonlyMap<ColumnChunk, T>,
  complete: (chunk: ColumnChunk, found: T) => ColumnChunk,
): Footer {
  const completed = (chunk: ColumnChunk): ColumnChunk => {
    const value = found.get(chunk);
    return value === undefined ? chunk : complete(chunk, value);
  };
  return found.size === 0
    ? footer
    : { ...footer, rowGroups: footer.rowGroups.map((group) => ({ ...group, chunks: group.chunks.map(completed) })) };
}
