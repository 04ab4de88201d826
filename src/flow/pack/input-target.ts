import { createColumnBuilder, emptyTexts } from "../../columns/columns.js";
import {
  type InputBinding,
  type NumericTensorType,
  type TextBinding,
  type PaddedBinding,
  type Contract,
  maskedInput,
} from "../../models/binding/contract.js";
import { numberCodes, spreadTexts } from "../../columns/numbered-texts.js";
import {
  type NamedTensor,
  type NumberedTexts,
  tensorElement,
  type Texts,
  toFloat16Bits,
} from "../../columns/tensor.js";
import type {
  AnswerFault,
  BytesColumn,
  Column,
  DecodedInput,
  Matrix,
  FixedColumn,
  ListColumn,
} from "../../columns/types.js";
import { bytesPerElement, copyValues, type Values, viewOf } from "../../columns/values.js";
import { areFinite } from "../../columns/loops/vectors.js";
import { assertNever } from "../../base/errors.js";

/**
 * Why a row cannot be scored. `unreadable`: its source says what is wrong with it; `expression`: an expression fails on
 * it; `missing`: a feature is NULL, or its cast turned it into NULL, or a text that the engine cannot take; `not_finite`:
 * a feature is NaN or infinite; `too_long`: a list has more elements than the input; `prediction`: the model's prediction
 * is not finite; `model`: the model fails on the row, or its answer is no prediction; `target`: the target cannot hold the row; `AnswerFault`: what is wrong with a server's
 * answer.
 */
export interface RowFault {
  readonly reason:
    | "unreadable"
    | "expression"
    | "missing"
    | "not_finite"
    | "too_long"
    | "prediction"
    | "model"
    | "target"
    | AnswerFault;
  /**
   * The shard's column as the spec names it, the expression's name, the output column, or undefined where the row
   * as a whole is at fault.
   */
  readonly column: string | undefined;
  /** The run's number of the row. */
  readonly row: number;
  /** What is wrong with the row, the prediction, what the model said, or how long a list is; other features are read again for the message. */
  readonly value: string | undefined;
}

/** Rows [from, to) of a record batch. */
export interface BatchRows {
  readonly from: number;
  readonly to: number;
  /** The run's number of row `from`. */
  readonly row: number;
}

/** One input of one batch while it is filled. */
export interface InputTarget {
  /** Copies rows of a column to rows `filled` and after; values that cannot be scored are reported. */
  copy(column: DecodedInput | undefined, range: BatchRows, filled: number): void;
  /** `filled` rows, padded with zeros or empty texts to `rows`. `width`: of each row, where the input shrinks. */
  tensor(filled: number, rows: number, width?: number): NamedTensor;
  /** How an input shrinks; undefined: its width is fixed. */
  readonly shrinks?: {
    /** The greatest width. Inputs with the same limit always have the same width. */
    readonly limit: number;
    /** Elements of the longest row so far. */
    readonly longest: number;
  };
}

interface InputTargetOptions {
  readonly batchRows: number;
  readonly nanAllowed: boolean;
  readonly take: (bytes: number) => ArrayBuffer;
  readonly onFault: (fault: RowFault) => void;
}

type MatrixBinding = Extract<InputBinding, { kind: "matrix" | "list" }>;

/** The shape of the tensor that `rows` rows of `width` numbers are. */
export function matrixDims(binding: MatrixBinding, rows: number, width: number): number[] {
  return binding.kind === "matrix" && binding.rank === 1 ? [rows] : [rows, width];
}

function matrixTarget(
  binding: MatrixBinding,
  { batchRows, nanAllowed, take, onFault }: InputTargetOptions,
): InputTarget {
  const width = binding.kind === "list" ? binding.width : binding.columns.length;
  const element = tensorElement(binding.dtype);
  const length = batchRows * width;
  const values = viewOf(element, take(length * bytesPerElement(element)), 0, length);
  const nameOf = (index: number): string =>
    binding.kind === "list" ? binding.column.name : (binding.columns[index % width]?.name ?? "");
  return {
    copy(column, range, filled) {
      if (column?.kind !== "matrix" || column.width !== width) {
        throw new TypeError(`input ${binding.input} takes ${width} numbers a row`);
      }
      const report = (reason: "missing" | "not_finite", index: number): void => {
        onFault({ reason, column: nameOf(index), row: range.row + Math.floor(index / width), value: undefined });
        // The row is scored with its batch anyway, on zeros: models may fail on what they were not made for.
        const at = (filled + Math.floor(index / width)) * width;
        zero(values, at, at + width);
      };
      const from = range.from * width;
      const to = range.to * width;
      copyAs(binding.dtype, values, filled * width, column.data, { from, to });
      findMissing(column, range, (index) => {
        report("missing", index);
      });
      findNotFinite(column, { from, to }, nanAllowed, (index) => {
        report("not_finite", index);
      });
    },
    tensor(filled, rows) {
      zero(values, filled * width, rows * width);
      const dims = matrixDims(binding, rows, width);
      return { name: binding.input, dtype: binding.dtype, dims, data: values.subarray(0, rows * width) };
    },
  };
}

function zero(values: Values, from: number, to: number): void {
  if (values instanceof BigInt64Array || values instanceof BigUint64Array) {
    values.fill(0n, from, to);
  } else {
    values.fill(0, from, to);
  }
}

function copyAs(
  dtype: NumericTensorType,
  target: Values,
  at: number,
  source: Values,
  { from, to }: { from: number; to: number },
): void {
  if (dtype !== "float16") {
    copyValues(target, at, source, from, to);
    return;
  }
  for (let index = from; index < to; index += 1) {
    target[at + index - from] = toFloat16Bits(Number(source[index]));
  }
}

/** Reports the first NULL of each row, counted in elements from the first row of `range`. */
function findMissing({ valid, width }: Matrix, range: BatchRows, report: (index: number) => void): void {
  if (valid === undefined) {
    return;
  }
  for (let row = range.from; row < range.to; row += 1) {
    const found = valid.subarray(row * width, (row + 1) * width).indexOf(0);
    if (found >= 0) {
      report((row - range.from) * width + found);
    }
  }
}

/**
 * Reports each value that is not finite, counted in elements from `from`. A sum of float32 values cannot overflow
 * in float64, so it is finite exactly when every value is; sums of float64 may, and then nothing is found.
 */
function findNotFinite(
  { data, valid, isFinite }: Matrix,
  { from, to }: { from: number; to: number },
  nanAllowed: boolean,
  report: (index: number) => void,
): void {
  if (isFinite === true) {
    return;
  }
  if (!(data instanceof Float32Array || data instanceof Float64Array) || areSurelyFinite(data.subarray(from, to))) {
    return;
  }
  for (let index = from; index < to; index += 1) {
    const value = data[index] ?? 0;
    if (!Number.isFinite(value) && valid?.[index] !== 0 && !(nanAllowed && Number.isNaN(value))) {
      report(index - from);
    }
  }
}

/**
 * true: all numbers are finite; false: one may not be, as the sum of large float64 may overflow. In two functions: V8
 * makes one that has met both kinds of arrays half as fast.
 */
export function areSurelyFinite(values: Float32Array | Float64Array): boolean {
  return values instanceof Float32Array
    ? (areFinite(values) ?? Number.isFinite(sumOfFloats(values)))
    : Number.isFinite(sumOfDoubles(values));
}

/** Four sums of pairs: one would wait for its own last addition. */
function sumOfFloats(values: Float32Array): number {
  let [a, b, c, d] = [0, 0, 0, 0];
  const whole = values.length & ~7;
  for (let index = 0; index < whole; index += 8) {
    a += (values[index] as number) + (values[index + 1] as number);
    b += (values[index + 2] as number) + (values[index + 3] as number);
    c += (values[index + 4] as number) + (values[index + 5] as number);
    d += (values[index + 6] as number) + (values[index + 7] as number);
  }
  for (let index = whole; index < values.length; index += 1) {
    a += values[index] as number;
  }
  return a + b + c + d;
}

function sumOfDoubles(values: Float64Array): number {
  let [a, b] = [0, 0];
  const whole = values.length & ~1;
  for (let index = 0; index < whole; index += 2) {
    a += values[index] as number;
    b += values[index + 1] as number;
  }
  return whole < values.length ? a + b + (values[whole] as number) : a + b;
}

/** Numbering codes takes a place for each entry: a batch of a row would take thousands. */
const mostEntriesPerRow = 8;

function textTarget(
  { input, rank, column: { name }, tokens }: TextBinding,
  { batchRows, onFault }: InputTargetOptions,
): InputTarget {
  const texts = createColumnBuilder("utf8", batchRows);
  /** All rows so far, if they repeat the entries of one dictionary. */
  let coded: NumberedTexts | undefined;
  const spread = (): void => {
    if (coded !== undefined) {
      const { offsets, bytes } = spreadTexts(coded);
      texts.append({ kind: "bytes", offsets, bytes, valid: undefined }, 0, offsets.length - 1);
      coded = undefined;
    }
  };
  return {
    copy(column, { from, to, row }, filled) {
      if (column?.kind !== "bytes") {
        throw new TypeError(`input ${input} takes texts`);
      }
      const isShort = (column.codes?.entries.offsets.length ?? 0) <= mostEntriesPerRow * (to - from);
      if (column.codes !== undefined && isShort && filled === 0 && tokens === undefined) {
        const numbered = numberCodes(column.codes, from, to);
        if (!numbered.entries.bytes.includes(0)) {
          coded = numbered;
          return;
        }
      }
      spread();
      for (let index = from; index < to; ) {
        const end = tokens === undefined ? firstBadText(column, index, to) : firstNull(column, index, to);
        texts.append({ ...column, valid: undefined }, index, end);
        if (end < to) {
          onFault({ reason: "missing", column: name, row: row + (end - from), value: undefined });
          texts.append(emptyTexts(1), 0, 1);
        }
        index = end + 1;
      }
    },
    tensor(filled, rows) {
      const dims = rank === 1 ? [rows] : [rows, 1];
      if (coded !== undefined && filled === rows) {
        const numbered = coded;
        return {
          name: input,
          dtype: "string",
          dims,
          numbered,
          get data() {
            return spreadTexts(numbered);
          },
        };
      }
      spread();
      texts.append(emptyTexts(rows - filled), 0, rows - filled);
      return { name: input, dtype: "string", dims, data: packedTexts(texts.finish()), tokens };
    },
  };
}

/**
 * The first text of rows [from, to) that is NULL, or has a zero byte; else `to`. ONNX Runtime takes texts from JavaScript
 * as C does, up to the first zero: what it scored would be another text.
 */
function firstBadText({ offsets, bytes, valid }: BytesColumn, from: number, to: number): number {
  const end = firstNull({ valid }, from, to);
  const found = bytes.subarray(0, offsets[end]).indexOf(0, offsets[from]);
  if (found < 0) {
    return end;
  }
  let row = from;
  while ((offsets[row + 1] as number) <= found) {
    row += 1;
  }
  return row;
}

function firstNull({ valid }: Pick<BytesColumn, "valid">, from: number, to: number): number {
  const missing = valid?.subarray(0, to).indexOf(0, from) ?? -1;
  return missing < 0 ? to : missing;
}

/** Tensors in buffers of their own and of their own size, so that they can be sent to another thread. */
function packedTexts(column: Column): Texts {
  if (column.kind !== "bytes") {
    throw new TypeError("texts are kept as bytes");
  }
  const { offsets, bytes } = column;
  return { offsets: new Uint32Array(offsets), bytes: new Uint8Array(bytes.subarray(0, offsets.at(-1))) };
}

function paddedTarget(
  binding: PaddedBinding,
  { batchRows, nanAllowed, take, onFault }: InputTargetOptions,
): InputTarget {
  const { dtype, width, value } = binding;
  const values = memoryFor(dtype, batchRows * width, take);
  const shrinks = { limit: width, longest: 0 };
  return {
    ...(binding.shrink ? { shrinks } : {}),
    copy(column, range, filled) {
      const lists = listsOf(column, binding.input);
      const numbers = numbersOf(lists);
      fill(values, dtype, value, filled * width, (filled + range.to - range.from) * width);
      const finite = allFinite(lists, numbers, range);
      for (let row = range.from; row < range.to; row += 1) {
        const at = (filled + row - range.from) * width;
        const kept = keptElements(lists, row, binding);
        const start = lists.offsets[row] ?? 0;
        shrinks.longest = Math.max(shrinks.longest, kept);
        if (kept > 0) {
          copyAs(dtype, values, firstPlace(at, kept, binding), numbers.data, { from: start, to: start + kept });
        }
        const fault =
          kept < 0
            ? unfit(lists, row)
            : hasNull(numbers, start, start + kept)
              ? missing
              : finite || isFiniteRow(numbers, start, start + kept, nanAllowed)
                ? undefined
                : notFinite;
        if (fault !== undefined) {
          onFault({ ...fault, column: binding.column.name, row: range.row + (row - range.from) });
          zero(values, at, at + width); // scored with its batch anyway, as in a matrix
        }
      }
    },
    tensor: (filled, rows, narrow = width) => tensorOf(binding, { values, of: binding, filled, rows, narrow }),
  };
}

/** 1 where the lists of a padded input have elements, 0 where they were filled up. Tells no faults: that input does. */
function maskTarget(
  binding: Extract<InputBinding, { kind: "mask" }>,
  of: PaddedBinding,
  { batchRows, take }: InputTargetOptions,
): InputTarget {
  const { dtype } = binding;
  const { width } = of;
  const values = memoryFor(dtype, batchRows * width, take);
  const shrinks = { limit: width, longest: 0 };
  return {
    ...(of.shrink ? { shrinks } : {}),
    copy(column, range, filled) {
      const lists = listsOf(column, binding.input);
      zero(values, filled * width, (filled + range.to - range.from) * width);
      for (let row = range.from; row < range.to; row += 1) {
        const kept = keptElements(lists, row, of);
        shrinks.longest = Math.max(shrinks.longest, kept);
        if (kept > 0) {
          const place = firstPlace((filled + row - range.from) * width, kept, of);
          fill(values, dtype, 1, place, place + kept);
        }
      }
    },
    tensor: (filled, rows, narrow = width) => tensorOf(binding, { values, of, filled, rows, narrow }),
  };
}

type Fault = Pick<RowFault, "reason" | "value">;

const missing: Fault = { reason: "missing", value: undefined };
const notFinite: Fault = { reason: "not_finite", value: undefined };

function listsOf(column: DecodedInput | undefined, input: string): ListColumn {
  if (column?.kind !== "list") {
    throw new TypeError(`input ${input} takes lists`);
  }
  return column;
}

function numbersOf({ child }: ListColumn): FixedColumn {
  if (child.kind !== "fixed" || child.elementsPerValue !== 1) {
    throw new TypeError("an input of lists takes lists of numbers");
  }
  return child;
}

function memoryFor(dtype: NumericTensorType, length: number, take: InputTargetOptions["take"]): Values {
  const element = tensorElement(dtype);
  return viewOf(element, take(length * bytesPerElement(element)), 0, length);
}

/** Elements of a row that count; -1 where it is NULL, or has more than the input takes. */
function keptElements({ offsets, valid }: ListColumn, row: number, { width, truncate }: PaddedBinding): number {
  const length = (offsets[row + 1] ?? 0) - (offsets[row] ?? 0);
  return valid?.[row] === 0 || (length > width && !truncate) ? -1 : Math.min(length, width);
}

function unfit({ offsets, valid }: ListColumn, row: number): Fault {
  const length = (offsets[row + 1] ?? 0) - (offsets[row] ?? 0);
  return valid?.[row] === 0 ? missing : { reason: "too_long", value: `${length} elements` };
}

function firstPlace(at: number, kept: number, { side, width }: PaddedBinding): number {
  return side === "left" ? at + width - kept : at;
}

function hasNull({ valid }: FixedColumn, from: number, to: number): boolean {
  return valid?.subarray(from, to).includes(0) === true;
}

/** Whether all numbers of some rows are good, checked at once; if not, each row is checked. */
function allFinite({ offsets }: ListColumn, { data }: FixedColumn, { from, to }: BatchRows): boolean {
  return (
    !(data instanceof Float32Array || data instanceof Float64Array) ||
    areSurelyFinite(data.subarray(offsets[from], offsets[to]))
  );
}

function isFiniteRow({ data }: FixedColumn, from: number, to: number, nanAllowed: boolean): boolean {
  for (let index = from; index < to; index += 1) {
    const value = Number(data[index]);
    if (!Number.isFinite(value) && !(nanAllowed && Number.isNaN(value))) {
      return false;
    }
  }
  return true;
}

function fill(values: Values, dtype: NumericTensorType, value: number, from: number, to: number): void {
  if (values instanceof BigInt64Array || values instanceof BigUint64Array) {
    values.fill(BigInt(value), from, to);
  } else {
    values.fill(dtype === "float16" ? toFloat16Bits(value) : value, from, to);
  }
}

interface Packed {
  readonly values: Values;
  readonly of: PaddedBinding;
  readonly filled: number;
  readonly rows: number;
  readonly narrow: number;
}

function tensorOf(
  { input, dtype }: { readonly input: string; readonly dtype: NumericTensorType },
  { values, of: { width, side }, filled, rows, narrow }: Packed,
): NamedTensor {
  if (narrow < width) {
    const skipped = side === "left" ? width - narrow : 0;
    for (let row = 0, from = skipped; row < filled; row += 1, from += width) {
      values.copyWithin(row * narrow, from, from + narrow);
    }
  }
  zero(values, filled * narrow, rows * narrow);
  return { name: input, dtype, dims: [rows, narrow], data: values.subarray(0, rows * narrow) };
}

/** What an input's tensor is packed in. */
export function createInputTarget(
  binding: InputBinding,
  contract: Pick<Contract, "inputs">,
  options: InputTargetOptions,
): InputTarget {
  switch (binding.kind) {
    case "matrix":
    case "list":
      return matrixTarget(binding, options);
    case "padded":
      return paddedTarget(binding, options);
    case "mask":
      return maskTarget(binding, maskedInput(contract, binding.of), options);
    case "text":
      return textTarget(binding, options);
    default:
      return assertNever(binding);
  }
}
