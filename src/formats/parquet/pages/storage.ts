import { type ColumnType, layoutOfType, showType, type SourceColumn } from "../../../columns/types.js";
import { type ElementType, isElementType } from "../../../columns/values.js";
import type { Leaf, ListLevels } from "../footer.js";

/**
 * The layout of a column's values, or of its lists' elements, in pages that are read without DuckDB. `fixed`: values of
 * type `stored`, converted to `element`, which has at most as many bits; `bits`; `bytes`: each with its length.
 */
export type Storage =
  | { readonly kind: "fixed"; readonly stored: ElementType; readonly element: ElementType }
  | { readonly kind: "bits" }
  | { readonly kind: "bytes"; readonly isText: boolean };

/** A column of a row group, and where it is in the file. Plain JSON. */
export interface ChunkColumn {
  readonly name: string;
  readonly type: ColumnType;
  readonly storage: Storage;
  /** Whether its values have definition levels: it may have NULLs. */
  readonly isOptional: boolean;
  /** Set if the values are elements of lists. They have repetition and definition levels. */
  readonly list: ListLevels | undefined;
  readonly codec: number;
  /** The chunk's bytes [start, end) of the file. */
  readonly start: number;
  readonly end: number;
  /** The uncompressed size of all pages. */
  readonly unpackedBytes: number;
  readonly rows: number;
  /** The number of values in all pages: more than rows if rows are lists. */
  readonly values: number;
  readonly limits: PageLimits;
}

export interface PageLimits {
  /** The limit of a page or a dictionary, uncompressed. */
  readonly pageBytes: number;
  /** The limit of rows that are read at once if their values repeat entries of a dictionary. */
  readonly batchBytes: number;
}

/** Physical types of parquet.thrift. */
const physical = { boolean: 0, int32: 1, int64: 2, float: 4, double: 5, bytes: 6 };

interface PlainType {
  readonly type: ColumnType & string;
  /** DuckDB's name of the type. */
  readonly sourceType: string;
  readonly physical: number;
  /** What the schema says of its meaning. */
  readonly annotation: string;
}

const plainTypes: readonly PlainType[] = [
  { type: "bool", sourceType: "BOOLEAN", physical: physical.boolean, annotation: "" },
  { type: "int8", sourceType: "TINYINT", physical: physical.int32, annotation: "int8" },
  { type: "int16", sourceType: "SMALLINT", physical: physical.int32, annotation: "int16" },
  { type: "int32", sourceType: "INTEGER", physical: physical.int32, annotation: "" },
  { type: "int32", sourceType: "INTEGER", physical: physical.int32, annotation: "int32" },
  { type: "uint8", sourceType: "UTINYINT", physical: physical.int32, annotation: "uint8" },
  { type: "uint16", sourceType: "USMALLINT", physical: physical.int32, annotation: "uint16" },
  { type: "uint32", sourceType: "UINTEGER", physical: physical.int32, annotation: "uint32" },
  { type: "int64", sourceType: "BIGINT", physical: physical.int64, annotation: "" },
  { type: "int64", sourceType: "BIGINT", physical: physical.int64, annotation: "int64" },
  { type: "uint64", sourceType: "UBIGINT", physical: physical.int64, annotation: "uint64" },
  { type: "float32", sourceType: "FLOAT", physical: physical.float, annotation: "" },
  { type: "float64", sourceType: "DOUBLE", physical: physical.double, annotation: "" },
  { type: "date32", sourceType: "DATE", physical: physical.int32, annotation: "date" },
  { type: "timestamp[us]", sourceType: "TIMESTAMP", physical: physical.int64, annotation: "timestamp micros" },
  {
    type: "timestamp[us, UTC]",
    sourceType: "TIMESTAMP WITH TIME ZONE",
    physical: physical.int64,
    annotation: "timestamp micros UTC",
  },
  { type: "timestamp[ns]", sourceType: "TIMESTAMP_NS", physical: physical.int64, annotation: "timestamp nanos" },
  { type: "timestamp[ns]", sourceType: "TIMESTAMP_NS", physical: physical.int64, annotation: "timestamp nanos UTC" },
  { type: "utf8", sourceType: "VARCHAR", physical: physical.bytes, annotation: "text" },
  { type: "binary", sourceType: "BLOB", physical: physical.bytes, annotation: "" },
];

/** What DuckDB makes of a column; undefined: it is something else, or only DuckDB knows. */
interface ReadColumn extends Omit<SourceColumn, "name"> {
  readonly type: ColumnType;
  /** The type of its values, or of its lists' elements. */
  readonly plain: PlainType;
}

/** Columns of single values, and of lists of numbers. */
function readColumn({ path, type, annotation, repetition, definition, list }: Leaf): ReadColumn | undefined {
  const plain = plainTypes.find((one) => one.physical === type && one.annotation === annotation);
  if (plain === undefined) {
    return undefined;
  }
  const { sourceType } = plain;
  if (list !== undefined) {
    return isElementType(plain.type)
      ? { sourceType: `${sourceType}[]`, type: { kind: "list", element: plain.type }, plain }
      : undefined;
  }
  return path.length === 1 && repetition === 0 && definition <= 1 ? { sourceType, type: plain.type, plain } : undefined;
}

/** What DuckDB makes of the columns of a file; undefined: only it knows. */
export function plainColumns(leaves: readonly Leaf[]): SourceColumn[] | undefined {
  const columns: SourceColumn[] = [];
  for (const leaf of leaves) {
    const found = readColumn(leaf);
    const name = leaf.path[0] ?? "";
    if (found === undefined || !isPlainName(name)) {
      return undefined;
    }
    const isUtc = leaf.utcNanosAt === undefined ? {} : ({ isUtc: true } as const);
    columns.push({ name, sourceType: found.sourceType, type: found.type, ...isUtc });
  }
  return columns.length === 0 ? undefined : columns;
}

/** DuckDB renames a column without a name; NUL ends a name in its interface, and U+FFFD replaces invalid UTF-8. */
function isPlainName(name: string): boolean {
  return name !== "" && !/[\0\uFFFD]/.test(name);
}

/** How a column's values are stored; undefined: only DuckDB can read them. `type`: the column's type, by DuckDB. */
export function storageOf(type: ColumnType, leaf: Leaf): Storage | undefined {
  const found = readColumn(leaf);
  if (found === undefined || showType(found.type) !== showType(type)) {
    return undefined;
  }
  const { plain } = found;
  const layout = layoutOfType(plain.type);
  if (layout.kind === "bytes") {
    return { kind: "bytes", isText: plain.type === "utf8" };
  }
  if (layout.kind !== "fixed") {
    return undefined;
  }
  const { element } = layout;
  switch (plain.physical) {
    case physical.boolean:
      return { kind: "bits" };
    case physical.int32:
      return { kind: "fixed", stored: element === "uint32" ? element : "int32", element };
    default:
      return { kind: "fixed", stored: element, element };
  }
}
