import {
  type NumericTensorType,
  type CastRules,
  type ColumnRef,
  type DecodedBinding,
  decodedInputs,
  type Projection,
} from "../../models/binding/contract.js";
import {
  type ColumnType,
  showType,
  type FixedColumn,
  type Matrix,
  type Column,
  type ListColumn,
  type DecodedInput,
  type RecordBatch,
  type Piece,
} from "../../columns/types.js";
import { tensorElement } from "../../columns/tensor.js";
import { allocate, type ElementType, elementOf, type Values } from "../../columns/values.js";
import { packedRows, packFour } from "../../columns/loops/vectors.js";
import { sliceColumn } from "../../columns/columns.js";

/**
 * How numbers of one type become a tensor's here, without DuckDB. `copy`: each is one of the tensor's; `round`: a double
 * becomes a float, unless it overflows; `exact`: an integer of 32 bits that the float holds, `long`: of 64; `widen`: an
 * integer of up to 32 bits becomes one of 64.
 */
export type Cast = "copy" | "round" | "exact" | "long" | "widen";

const bitsOf: Readonly<Record<string, number>> = { int8: 7, uint8: 8, int16: 15, uint16: 16, int32: 31, uint32: 32 };
/** Whole numbers of so many bits are each a float of the type. */
const exactBits: Partial<Record<NumericTensorType, number>> = { float32: 24, float64: 53 };

/**
 * Finds a cast that needs no DuckDB; undefined: only DuckDB has it. Both give the same values: see `castSql`.
 * @public so that tests see it
 */
export function castOf(from: ColumnType, dtype: NumericTensorType, { cast }: CastRules): Cast | undefined {
  if (from === dtype) {
    return "copy";
  }
  if (dtype === "bool" || dtype === "float16") {
    return undefined;
  }
  const name = showType(from);
  const held = exactBits[dtype];
  if (held === undefined) {
    return integerCast(name, dtype);
  }
  if (name === "bool" || (name === "float32" && dtype === "float64")) {
    return "copy";
  }
  if (name === "float64") {
    return "round";
  }
  const bits = bitsOf[name];
  if (bits !== undefined) {
    return bits <= held ? "copy" : cast === "exact" ? "exact" : undefined;
  }
  return (name === "int64" || name === "uint64") && cast === "exact" ? "long" : undefined;
}

function integerCast(name: string, dtype: string): Cast | undefined {
  const isLong = dtype === "int64" || dtype === "uint64";
  const [bits, target] = [bitsOf[name], isLong ? 64 : bitsOf[dtype]];
  const cast = isLong ? "widen" : "copy";
  if (name === "bool") {
    return cast;
  }
  const losesSign = dtype.startsWith("u") && !name.startsWith("u");
  return bits !== undefined && target !== undefined && bits <= target && !losesSign ? cast : undefined;
}

/** What a matrix is filled from. */
export interface MatrixColumn {
  readonly column: FixedColumn;
  readonly cast: Cast;
}

interface Rows {
  readonly from: number;
  readonly to: number;
}

/** Returns memory for `length` elements, which is not cleared. */
export type TakeValues = (element: ElementType, length: number) => Values;

/** Makes arrays one after the other: each holds until the next one is made. */
function reusing(): TakeValues {
  let last: Values | undefined;
  return (element, length) => {
    last = last?.length === length && elementOf(last) === element ? last : allocate(element, length);
    return last;
  };
}

/**
 * Rows [from, to) of some columns side by side.
 * @public so that tests see it
 */
export function packMatrix(
  dtype: NumericTensorType,
  columns: readonly MatrixColumn[],
  { from, to }: Rows,
  { missing, take = allocate }: Pick<CastRules, "missing"> & { readonly take?: TakeValues },
): Matrix {
  const width = columns.length;
  const [only] = columns;
  const nan = missing === "nan" && exactBits[dtype] !== undefined;
  if (
    only !== undefined &&
    width === 1 &&
    only.cast === "copy" &&
    elementOf(only.column.data) === tensorElement(dtype)
  ) {
    const valid = only.column.valid?.subarray(from, to);
    if (valid === undefined || !nan) {
      return { kind: "matrix", width, data: only.column.data.subarray(from, to), valid };
    }
  }
  const target: Target = {
    data: take(tensorElement(dtype), (to - from) * width),
    width,
    valid: undefined,
    isFinite: true,
  };
  // As many rows of a column follow each other, which the processor reads ahead, and what is filled of their rows stays
  // in its first cache.
  const groups = groupsOf(columns);
  for (let start = from; start < to; start += packedRows) {
    const rows = { from: start, to: Math.min(to, start + packedRows), nan };
    for (const { index, some } of groups) {
      const at = (start - from) * width + index;
      if (!packSome(target, at, some, rows)) {
        target.isFinite = false; // the rows are checked one by one
        for (const [place, source] of some.entries()) {
          convert(target, at + place, source, rows);
        }
      }
      for (const [place, { column }] of some.entries()) {
        markNulls(target, at + place, column.valid, rows);
      }
    }
  }
  return { kind: "matrix", width, data: target.data, valid: target.valid, isFinite: target.isFinite || undefined };
}

interface Group {
  readonly index: number;
  readonly some: readonly MatrixColumn[];
}

/** Columns by fours. Where they do not come out even, the last four are among those before, too. */
function groupsOf(columns: readonly MatrixColumn[]): Group[] {
  return Array.from({ length: Math.ceil(columns.length / 4) }, (_, group) => {
    const index = Math.max(0, Math.min(group * 4, columns.length - 4));
    return { index, some: columns.slice(index, index + 4) };
  });
}

/**
 * Packs four columns at once, where loops reach them and all of their values fit, or are checked later. False: the target's
 * content is undefined.
 */
function packSome(target: Target, at: number, columns: readonly MatrixColumn[], { from, to }: Rows): boolean {
  const [a, b, c, d] = columns.map(({ column }) => column.data);
  if (a === undefined || b === undefined || c === undefined || d === undefined) {
    return false;
  }
  const isPacked = packFour(target.data, at, target.width, { a, b, c, d, from, to });
  target.isFinite &&= isPacked === true;
  return isPacked === true || (isPacked === false && columns.every(({ cast }) => cast === "copy"));
}

interface Target {
  readonly data: Values;
  readonly width: number;
  /** Made once a value does not fit, or is NULL. */
  valid: Uint8Array | undefined;
  isFinite: boolean;
}

function unfit(target: Target, at: number): void {
  target.valid ??= new Uint8Array(target.data.length).fill(1);
  target.valid[at] = 0;
}

function markNulls(
  target: Target,
  at: number,
  valid: Uint8Array | undefined,
  { from, to, nan }: Rows & { nan: boolean },
): void {
  if (valid === undefined) {
    return;
  }
  for (let row = from, place = at; row < to; row += 1, place += target.width) {
    if (valid[row] === 0) {
      if (nan) {
        (target.data as Float64Array)[place] = Number.NaN;
        target.valid?.fill(1, place, place + 1);
      } else {
        unfit(target, place);
      }
    }
  }
}

function convert(target: Target, at: number, { column: { data }, cast }: MatrixColumn, rows: Rows): void {
  switch (cast) {
    case "copy":
      copyStrided(target.data as Float64Array, at, target.width, data as Float64Array, rows);
      break;
    case "round":
    case "exact":
      copyChecked(target, at, data as Float64Array, { ...rows, isExact: cast === "exact" });
      break;
    case "long":
      copyLongs(target, at, data as BigInt64Array, rows);
      break;
    case "widen":
      copyWidened(target, at, data as Int32Array, rows);
      break;
  }
}

function copyStrided(target: Float64Array, at: number, width: number, source: Float64Array, { from, to }: Rows): void {
  for (let row = from, place = at; row < to; row += 1, place += width) {
    target[place] = source[row] as number;
  }
}

function copyChecked(
  target: Target,
  at: number,
  source: Float64Array,
  { from, to, isExact }: Rows & { isExact: boolean },
): void {
  const data = target.data as Float64Array;
  for (let row = from, place = at; row < to; row += 1, place += target.width) {
    const value = source[row] as number;
    data[place] = value;
    const made = data[place];
    if (isExact ? made !== value : !Number.isFinite(made) && Number.isFinite(value)) {
      unfit(target, place);
    }
  }
}

/** Whole numbers up to this are doubles. */
const wholeLimit = 2 ** 53;

/** Copies int64 values as two halves: a BigInt for each value would cost ten times as much. */
function copyLongs(target: Target, at: number, source: BigInt64Array | BigUint64Array, { from, to }: Rows): void {
  const data = target.data as Float64Array;
  const low = new Uint32Array(source.buffer, source.byteOffset, source.length * 2);
  const high = source instanceof BigInt64Array ? new Int32Array(low.buffer, low.byteOffset, low.length) : low;
  for (let row = from, place = at; row < to; row += 1, place += target.width) {
    const value = (high[row * 2 + 1] as number) * 2 ** 32 + (low[row * 2] as number);
    data[place] = value;
    const fits =
      value < wholeLimit && value > -wholeLimit ? data[place] === value : BigInt(data[place] as number) === source[row];
    if (!fits) {
      unfit(target, place);
    }
  }
}

/** Widens int32 values to int64 as two halves: the upper one repeats the sign. */
function copyWidened({ data, width }: Target, at: number, source: Int32Array, { from, to }: Rows): void {
  const halves = new Int32Array(data.buffer, data.byteOffset, data.length * 2);
  for (let row = from, place = at * 2; row < to; row += 1, place += width * 2) {
    const value = source[row] as number;
    halves[place] = value;
    halves[place + 1] = value < 0 ? -1 : 0;
  }
}

/** Lists of `width` numbers each; a row of another length, or NULL, is all NULLs. */
function listMatrix(
  { dtype, width }: { readonly dtype: NumericTensorType; readonly width: number },
  column: Column,
  cast: Cast,
  { from, to, missing }: Rows & Pick<CastRules, "missing">,
): Matrix {
  const { offsets, child, valid } = numberLists(column);
  const base = offsets[from] ?? 0;
  let inOrder = true;
  for (let row = from; inOrder && row < to; row += 1) {
    inOrder = offsets[row + 1] === base + (row + 1 - from) * width && valid?.[row] !== 0;
  }
  if (inOrder) {
    const packed = packMatrix(
      dtype,
      [{ column: child, cast }],
      { from: base, to: base + (to - from) * width },
      { missing },
    );
    return { ...packed, width };
  }
  const data = allocate(tensorElement(dtype), (to - from) * width);
  const marks = new Uint8Array(data.length);
  for (let row = from; row < to; row += 1) {
    const start = offsets[row] ?? 0;
    if (valid?.[row] === 0 || (offsets[row + 1] ?? 0) - start !== width) {
      continue;
    }
    const packed = packMatrix(dtype, [{ column: child, cast }], { from: start, to: start + width }, { missing });
    const at = (row - from) * width;
    (data as Float64Array).set(packed.data as Float64Array, at);
    marks.fill(1, at, at + width);
    marks.set(packed.valid ?? [], at);
  }
  return { kind: "matrix", width, data, valid: marks };
}

/**
 * Rows of lists, however long, with elements that are the tensor's.
 * @public so that tests see it
 */
export function castLists(
  dtype: NumericTensorType,
  column: Column,
  cast: Cast,
  { from, to, missing }: Rows & Pick<CastRules, "missing">,
): ListColumn {
  const { offsets, child, valid } = numberLists(column);
  const start = offsets[from] ?? 0;
  const numbers = packMatrix(dtype, [{ column: child, cast }], { from: start, to: offsets[to] ?? 0 }, { missing });
  const own = new Uint32Array(to - from + 1);
  for (let row = from; row <= to; row += 1) {
    own[row - from] = (offsets[row] ?? 0) - start;
  }
  return {
    kind: "list",
    offsets: own,
    child: { kind: "fixed", elementsPerValue: 1, data: numbers.data, valid: numbers.valid },
    valid: valid?.subarray(from, to),
  };
}

function numberLists(column: Column): ListColumn & { readonly child: FixedColumn } {
  if (column.kind !== "list" || column.child.kind !== "fixed") {
    throw new TypeError("an input of lists takes lists of numbers");
  }
  return { ...column, child: column.child };
}

interface DirectPlan {
  /** @param constants columns from folder names, of at least as many rows */
  batch(piece: Piece, rows: { readonly from: number; readonly to: number }, constants: Constants): RecordBatch;
}

export type Constants = ReadonlyMap<string, Column>;

type PackInput = (columns: Piece["columns"], rows: Rows) => DecodedInput;

/**
 * Plans how a projection is made without DuckDB; undefined: a part of it needs DuckDB.
 * @param take memory for matrices; default: each holds until the next batch is made
 */
export function directPlan(projection: Projection, take?: TakeValues): DirectPlan | undefined {
  const { passthrough, expressions } = projection;
  if (expressions !== null || passthrough.some(({ source }) => !isPlain(source))) {
    return undefined;
  }
  const packers: PackInput[] = [];
  for (const binding of decodedInputs(projection)) {
    const packer = inputPacker(binding, projection, take);
    if (packer === undefined) {
      return undefined;
    }
    packers.push(packer);
  }
  return {
    batch: ({ columns }, rows, constants) => ({
      rowCount: rows.to - rows.from,
      inputs: packers.map((make) => make(columns, rows)),
      carried: passthrough.map(({ source }) =>
        source.partition === true
          ? sliceColumn(columnOf(constants, source), 0, rows.to - rows.from)
          : sliceColumn(columnOf(columns, source), rows.from, rows.to),
      ),
    }),
  };
}

function isPlain({ path, computed }: ColumnRef): boolean {
  return path.length === 1 && computed !== true;
}

function inputPacker(binding: DecodedBinding, rules: CastRules, take: TakeValues | undefined): PackInput | undefined {
  if (binding.kind === "matrix") {
    return matrixPacker(binding, rules, take ?? reusing());
  }
  const { column } = binding;
  if (!isPlain(column) || column.partition === true) {
    return undefined;
  }
  if (binding.kind === "text") {
    return (columns, { from, to }) => {
      const texts = sliceColumn(columnOf(columns, column), from, to);
      if (texts.kind !== "bytes") {
        throw new TypeError("a text column is read as bytes");
      }
      return texts;
    };
  }
  const element = elementType(column.type);
  const cast = element === undefined ? undefined : castOf(element, binding.dtype, rules);
  if (cast === undefined) {
    return undefined;
  }
  const { missing } = rules;
  return binding.kind === "padded"
    ? (columns, rows) => castLists(binding.dtype, columnOf(columns, column), cast, { ...rows, missing })
    : (columns, rows) => listMatrix(binding, columnOf(columns, column), cast, { ...rows, missing });
}

function elementType(type: ColumnType): ColumnType | undefined {
  return typeof type === "object" && type.kind === "list" ? type.element : undefined;
}

function matrixPacker(
  { columns: refs, dtype }: Extract<DecodedBinding, { kind: "matrix" }>,
  rules: CastRules,
  take: TakeValues,
): PackInput | undefined {
  const casts: Cast[] = [];
  for (const ref of refs) {
    const cast = isPlain(ref) && ref.partition !== true ? castOf(ref.type, dtype, rules) : undefined;
    if (cast === undefined) {
      return undefined;
    }
    casts.push(cast);
  }
  return (columns, rows) =>
    packMatrix(
      dtype,
      refs.map((ref, index) => ({ column: numbersOf(columns, ref), cast: casts[index] ?? "copy" })),
      rows,
      { missing: rules.missing, take },
    );
}

function numbersOf(columns: Piece["columns"], ref: ColumnRef): FixedColumn {
  const column = columnOf(columns, ref);
  if (column.kind !== "fixed") {
    throw new TypeError(`column ${ref.name} has no numbers`);
  }
  return column;
}

function columnOf(columns: ReadonlyMap<string, Column>, { path }: ColumnRef): Column {
  const column = columns.get(path[0] ?? "");
  if (column === undefined) {
    throw new RangeError(`column ${path[0]} was not read`);
  }
  return column;
}
