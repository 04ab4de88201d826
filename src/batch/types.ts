/** Types of column values that this release carries, by their Arrow names. */
export type ColumnType =
  | "int8"
  | "int16"
  | "int32"
  | "int64"
  | "uint8"
  | "uint16"
  | "uint32"
  | "uint64"
  | "float32"
  | "float64";

interface ArrayOf {
  int8: Int8Array<ArrayBuffer>;
  int16: Int16Array<ArrayBuffer>;
  int32: Int32Array<ArrayBuffer>;
  int64: BigInt64Array<ArrayBuffer>;
  uint8: Uint8Array<ArrayBuffer>;
  uint16: Uint16Array<ArrayBuffer>;
  uint32: Uint32Array<ArrayBuffer>;
  uint64: BigUint64Array<ArrayBuffer>;
  float32: Float32Array<ArrayBuffer>;
  float64: Float64Array<ArrayBuffer>;
}

export type Values = ArrayOf[ColumnType];

/** Columns of equal length. `width` > 1: each row is that many elements, row-major (a fixed-size list). */
export interface Column {
  readonly type: ColumnType;
  readonly width: number;
  /** [rows * width] */
  readonly data: Values;
  /** One byte an element, 0 = NULL; undefined when there is none. Data under a NULL means nothing. */
  readonly valid: Uint8Array | undefined;
}

export interface RecordBatch {
  readonly rowCount: number;
  readonly columns: readonly Column[];
}

export interface NamedColumn extends Column {
  readonly name: string;
}

/** Rows ready for a sink: every output column, in output order. */
export interface OutputRows {
  readonly rowCount: number;
  readonly columns: readonly NamedColumn[];
}

/** What a model takes or gives, as the engine reports it. */
export interface TensorSignature {
  readonly name: string;
  /** ONNX element type ("float32", "int64", "string" …); undefined for sequences and maps. */
  readonly dtype: string | undefined;
  /** null: a dimension that may vary. */
  readonly shape: readonly (number | null)[];
}

export interface ModelSignature {
  readonly inputs: readonly TensorSignature[];
  readonly outputs: readonly TensorSignature[];
}

/** A tensor's values; `dims` multiply to `data.length`. */
export interface Tensor {
  readonly dtype: ColumnType;
  readonly dims: readonly number[];
  readonly data: Values;
}

/** A column of a shard, with the type as its format writes it ("BIGINT", "STRUCT(…)"). */
export interface SourceColumn {
  readonly name: string;
  readonly sourceType: string;
  /** undefined: a type that this release does not carry through. */
  readonly type: ColumnType | undefined;
  /** Integer, float or decimal: may be cast into a feature matrix. */
  readonly numeric: boolean;
}

const constructors = {
  int8: Int8Array,
  int16: Int16Array,
  int32: Int32Array,
  int64: BigInt64Array,
  uint8: Uint8Array,
  uint16: Uint16Array,
  uint32: Uint32Array,
  uint64: BigUint64Array,
  float32: Float32Array,
  float64: Float64Array,
} as const;

export const columnTypes = Object.keys(constructors) as readonly ColumnType[];

export function isColumnType(name: string | undefined): name is ColumnType {
  return name !== undefined && Object.hasOwn(constructors, name);
}

export function bytesPerElement(type: ColumnType): number {
  return constructors[type].BYTES_PER_ELEMENT;
}

/** A zeroed array of `length` elements. */
export function allocate(type: ColumnType, length: number): Values {
  return new constructors[type](length);
}

/** `length` elements of `buffer` from `byteOffset`, without a copy. */
export function viewOf(type: ColumnType, buffer: ArrayBuffer, byteOffset: number, length: number): Values {
  return new constructors[type](buffer, byteOffset, length);
}

/** Copies `source[from, to)` to `target` at `at`; both have the same type. */
export function copyValues(target: Values, at: number, source: Values, from: number, to: number): void {
  // One call for all types: TypeScript cannot see that the two arrays agree.
  (target as Float64Array).set((source as Float64Array).subarray(from, to), at);
}
