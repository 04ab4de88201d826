import type { InputBinding, NumericTensorType, PaddedBinding } from "../binding/contract.js";
import {
  copyAs,
  type InputTarget,
  type InputTargetOptions,
  areSurelyFinite,
  type RowFault,
  type BatchRows,
  zero,
} from "./input-target.js";
import { type NamedTensor, tensorElement, toFloat16Bits } from "../columnar/tensor.js";
import type { DecodedInput, FixedColumn, ListColumn } from "../columnar/types.js";
import { bytesPerElement, type Values, viewOf } from "../columnar/values.js";

/** Lists of up to `width` elements, the shorter ones filled up. */
export function paddedTarget(
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
export function maskTarget(
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

/** Where the elements of a row begin that has the elements from `at` on. */
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
  /** Elements of each row that the tensor has. */
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
