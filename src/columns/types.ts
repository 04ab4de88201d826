import { assertNever } from "../base/errors.js";
import { bytesPerElement, type ElementType, elementTypes, isElementType, type Values } from "./values.js";

/** Types without parameters, by their Arrow names where Arrow has one. */
export type ScalarType =
  | ElementType
  | "bool"
  | "utf8"
  | "binary"
  | "uuid"
  | "date32"
  | "time64[us]"
  | "time64[ns]"
  | "time64[us, zone]"
  | "timestamp[us]"
  | "timestamp[ns]"
  | "timestamp[us, UTC]"
  | "interval";

/** The type of a column that is carried through or predicted. Plain JSON: it is part of the plan. */
export type ColumnType =
  | ScalarType
  | { readonly kind: "decimal"; readonly precision: number; readonly scale: number }
  | { readonly kind: "list"; readonly element: ColumnType }
  | { readonly kind: "struct"; readonly fields: readonly StructField[] };

export interface StructField {
  readonly name: string;
  readonly type: ColumnType;
}

/** How the values of a type are stored in memory. `elementsPerValue`: elements a value (two 64-bit words for 128-bit types). */
type Layout =
  | { readonly kind: "fixed"; readonly element: ElementType; readonly elementsPerValue: 1 | 2 }
  | { readonly kind: "bytes" }
  | { readonly kind: "list"; readonly element: ColumnType }
  | { readonly kind: "struct"; readonly fields: readonly StructField[] };

/**
 * A column of equal-length values. `valid`: one byte a row, 0 = NULL; undefined when there is none. The value that is
 * stored under a NULL is undefined.
 */
export type Column = FixedColumn | BytesColumn | ListColumn | StructColumn;

export interface FixedColumn {
  readonly kind: "fixed";
  readonly elementsPerValue: 1 | 2;
  /** [rows * elementsPerValue] */
  readonly data: Values;
  readonly valid: Uint8Array | undefined;
}

/** UTF-8 text or bytes: value i is `bytes[offsets[i], offsets[i + 1])`. */
export interface BytesColumn {
  readonly kind: "bytes";
  readonly offsets: Uint32Array;
  readonly bytes: Uint8Array;
  readonly valid: Uint8Array | undefined;
  /** Where the values come from, if they repeat those of a dictionary: none is NULL then. */
  readonly codes?: Codes | undefined;
}

/** Value i is entry `indices[i]`. */
export interface Codes {
  readonly entries: Pick<BytesColumn, "offsets" | "bytes">;
  readonly indices: Uint32Array;
}

/** Value i is rows [offsets[i], offsets[i + 1]) of `child`. */
export interface ListColumn {
  readonly kind: "list";
  readonly offsets: Uint32Array;
  readonly child: Column;
  readonly valid: Uint8Array | undefined;
}

interface StructColumn {
  readonly kind: "struct";
  readonly rowCount: number;
  readonly children: readonly Column[];
  readonly valid: Uint8Array | undefined;
}

/** Feature values, row-major [rows, width]. `valid`: one byte an element. */
export interface Matrix {
  readonly kind: "matrix";
  readonly width: number;
  readonly data: Values;
  readonly valid: Uint8Array | undefined;
  /** Whether all values but NULLs, and the NaN in their places, are known to be finite; undefined: not checked yet. */
  readonly isFinite?: true | undefined;
}

/**
 * What an input of the model is filled from: texts, numbers side by side, or lists of any length, whose elements are
 * the tensor's (float16: float64).
 */
export type DecodedInput = Matrix | BytesColumn | ListColumn;

/** Rows [rowStart, rowEnd), numbered from the first row of a run, or of a shard. */
export interface RowRange {
  readonly rowStart: number;
  readonly rowEnd: number;
}

/** Rows as they are decoded: a column for each model input but masks, then those that are carried through. */
export interface RecordBatch {
  readonly rowCount: number;
  readonly inputs: readonly DecodedInput[];
  readonly carried: readonly Column[];
  /** What expressions made of the rows that were read; undefined: all are here. */
  readonly selection?: Selection | undefined;
}

/** Which of the rows that were read are left, and which of these are bad already. */
interface Selection {
  readonly readCount: number;
  /** For each row of the batch, its index among the rows that were read, ascending. */
  readonly indices: Uint32Array;
  readonly failed: readonly FailedRow[];
}

/** A row that cannot be read, or for which an expression cannot be computed. */
interface FailedRow {
  /** Row of the batch. */
  readonly row: number;
  /** Index into the contract's expressions, or what is wrong with the row. */
  readonly cause: number | string;
}

export interface TypedColumn {
  readonly name: string;
  readonly type: ColumnType;
}

export interface NamedColumn extends TypedColumn {
  readonly column: Column;
}

/** A row that could not be scored, described so that its owner can find and correct it. Plain JSON. */
export interface RejectedRow {
  /** URI of the shard, and the row's number in it. */
  readonly shard: string;
  readonly row: number;
  /** The carried columns, as text; null for NULL. */
  readonly columns: Readonly<Record<string, string | null>>;
  /** The column at fault; null where the row as a whole is. */
  readonly column: string | null;
  readonly reason: RejectReason;
  /** What was found, as text; null for NULL. */
  readonly value: string | null;
}

export const rejectReasons = [
  "null",
  "not_finite",
  "does_not_fit",
  "too_long",
  "unreadable",
  "expression_failed",
  "prediction_not_finite",
  "model_failed",
  "target_cannot_hold",
  "prompt_too_long",
  "answer_refused",
  "answer_cut_off",
  "answer_invalid",
] as const;

/**
 * Why a language model gives no prediction for a row: the prompt is longer than its context, it refuses to answer, the
 * answer is longer than it may be, or has another form than asked for.
 */
export type AnswerFault = Extract<RejectReason, `prompt_${string}` | `answer_${string}`>;

export type RejectReason = (typeof rejectReasons)[number];

/** The outcome of a span: its rows are those to be published, those rejected and those filtered out. */
export interface SpanOutput {
  readonly rows: OutputRows;
  readonly rejects: readonly RejectedRow[];
  /** Rows that `input.where` left out. */
  readonly filtered: number;
  /** Rows of the span that were erased since they were scored; absent: none. */
  readonly erased?: number | undefined;
  /** Rows that the model was given at once; for people, never compared. */
  readonly batchSize: number;
  /** What computed them, where it is not the attempt's provider alone. */
  readonly provider?: string | undefined;
  /** Profiles of the rows, as JSON (checks/profile). */
  readonly profile: string;
  /** Called once the span's bytes are ready to be published. */
  readonly onEncoded?: (() => void) | undefined;
}

/** Rows ready for a sink: every output column, in output order. */
export interface OutputRows {
  readonly rowCount: number;
  readonly columns: readonly NamedColumn[];
}

/** A column of a shard, with the type as its format writes it ("BIGINT", "STRUCT(…)"). */
export interface SourceColumn {
  readonly name: string;
  readonly sourceType: string;
  /** undefined: a type that this release does not carry. */
  readonly type: ColumnType | undefined;
  /** The fields of a struct that cannot be carried as a whole, some of which may be used. */
  readonly fields?: readonly SourceColumn[];
  /** Set if the value comes from the names of the shard's folders, not from the shard. */
  readonly partition?: true;
  /** `input.columns` computes it. */
  readonly computed?: true;
  /** Set if the type says that all values are NULL: the column has the type of the other shards. */
  readonly onlyNulls?: true;
  /** Set if its nanoseconds are instants in UTC; else they are times of a clock on a wall. */
  readonly isUtc?: true;
}

const elementOfScalar: Readonly<Record<Exclude<ScalarType, ElementType | "utf8" | "binary">, [ElementType, 1 | 2]>> = {
  bool: ["uint8", 1],
  uuid: ["uint64", 2],
  date32: ["int32", 1],
  "time64[us]": ["int64", 1],
  "time64[ns]": ["int64", 1],
  "time64[us, zone]": ["int64", 1],
  "timestamp[us]": ["int64", 1],
  "timestamp[ns]": ["int64", 1],
  "timestamp[us, UTC]": ["int64", 1],
  interval: ["uint64", 2],
};

export const scalarTypes = [
  ...elementTypes,
  ...(Object.keys(elementOfScalar) as (keyof typeof elementOfScalar)[]),
  "utf8",
  "binary",
] as const satisfies readonly ScalarType[];

export function layoutOfType(type: ColumnType): Layout {
  if (typeof type !== "string") {
    switch (type.kind) {
      case "decimal":
        return decimalLayout(type.precision);
      case "list":
      case "struct":
        return type;
    }
  }
  if (type === "utf8" || type === "binary") {
    return { kind: "bytes" };
  }
  if (isElementType(type)) {
    return { kind: "fixed", element: type, elementsPerValue: 1 };
  }
  const [element, elementsPerValue] = elementOfScalar[type];
  return { kind: "fixed", element, elementsPerValue };
}

/** A decimal is kept as the smallest integer that holds its precision, as DuckDB does. */
function decimalLayout(precision: number): Layout {
  if (precision > 18) {
    return { kind: "fixed", element: "uint64", elementsPerValue: 2 };
  }
  return { kind: "fixed", element: precision > 9 ? "int64" : precision > 4 ? "int32" : "int16", elementsPerValue: 1 };
}

/** "int64", "decimal(10,2)", "list<float32>", "struct<a: int32>". */
export function showType(type: ColumnType): string {
  if (typeof type === "string") {
    return type;
  }
  switch (type.kind) {
    case "decimal":
      return `decimal(${type.precision},${type.scale})`;
    case "list":
      return `list<${showType(type.element)}>`;
    case "struct":
      return `struct<${type.fields.map((field) => `${field.name}: ${showType(field.type)}`).join(", ")}>`;
    default:
      return assertNever(type);
  }
}

/** A column's type as plans and messages name it; as its format does where it is none of ours. */
export function showColumnType({ type, sourceType, partition }: Omit<SourceColumn, "name">): string {
  const shown = type === undefined ? sourceType : showType(type);
  return partition === true ? `${shown}, from the folder name` : shown;
}

/** What a value takes in memory; texts and lists are guessed. Bytes. */
export function bytesPerValue(type: ColumnType): number {
  const layout = layoutOfType(type);
  switch (layout.kind) {
    case "fixed":
      return bytesPerElement(layout.element) * layout.elementsPerValue;
    case "bytes":
      return 32;
    case "list":
      return 64 * bytesPerValue(layout.element);
    case "struct":
      return layout.fields.reduce((sum, field) => sum + bytesPerValue(field.type), 0);
    default:
      return assertNever(layout);
  }
}

/** A column of a table, whose files may have it under other names, with other types, or not at all. */
export interface TableColumn {
  readonly name: string;
  /** What files know it by that number their columns; undefined: names count in all files. */
  readonly fieldId: number | undefined;
  /** The numbers of the values in it, in order, in files that number them; absent: no field of it is known by a number. */
  readonly leafIds?: readonly number[];
  /** What files call it that do not number their columns. */
  readonly storedNames: readonly string[];
  /** undefined: a type that is not read, such as a map or a variant. */
  readonly type: ColumnType | undefined;
  /** Its value in files that do not have it, as text; null: NULL. */
  readonly default: string | null;
  /** Whether it has one value in all rows of a file, which the table knows and the file does not. */
  readonly isPartition: boolean;
}

/** How the columns and the rows of a file become those of a table. */
export interface TableRows {
  /** In the order of the table. */
  readonly columns: readonly TableColumn[];
  /** Reads which rows of the file the table has removed: ascending numbers. */
  readonly removed: () => Promise<Uint32Array>;
}

/** Neighbouring rows of a shard, and the columns that were asked for. */
export interface Piece {
  /** [rowStart, rowEnd) of the shard. */
  readonly rowStart: number;
  readonly rowEnd: number;
  readonly columns: ReadonlyMap<string, Column>;
}
