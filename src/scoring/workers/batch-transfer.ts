import { areSurelyFinite } from "../../packing/input-target.js";
import type { Column, DecodedInput, Matrix, RecordBatch } from "../../columnar/types.js";
import { allocate, copyValues, elementOf, type Values } from "../../columnar/values.js";
import { assertNever } from "../../util/errors.js";
import type { TakeValues } from "../../packing/direct.js";
import { rowsOf, sliceColumn } from "../../columnar/columns.js";

/** A batch whose arrays are the only ones in their buffers, so that these can be sent to another thread. */
export interface Parcel {
  readonly batch: RecordBatch;
  readonly buffers: readonly ArrayBuffer[];
}

export interface BatchMemory {
  readonly take: TakeValues;
  /** Whether an array was made for this batch, and nothing else is in its buffer. */
  readonly isOwn: (values: Values) => boolean;
}

/** Makes a batch transferable: copies arrays whose buffer is shared. */
export function packParcel(batch: RecordBatch, { take, isOwn }: BatchMemory): Parcel {
  const buffers: ArrayBuffer[] = [];
  const own = <T extends Values>(values: T): T => {
    let array: Values = values;
    if (!isOwn(values)) {
      array = take(elementOf(values), values.length);
      copyValues(array, 0, values, 0, values.length);
    }
    buffers.push(array.buffer);
    return array as T;
  };
  const ownColumn = <T extends Column>(column: T): T => movedColumn(column, own) as T;
  const inputs = batch.inputs.map((input): DecodedInput => {
    if (input.kind !== "matrix") {
      return ownColumn(input);
    }
    const valid = input.valid === undefined ? undefined : own(input.valid as Uint8Array<ArrayBuffer>);
    return { ...input, data: own(input.data), valid, isFinite: isKnownFinite(input) || undefined };
  });
  return { batch: { rowCount: batch.rowCount, inputs, carried: batch.carried.map(ownColumn) }, buffers };
}

/** Whether all values are finite. Checked in the thread that made them, while they are in its cache. */
export function isKnownFinite({ data, isFinite }: Matrix): boolean {
  return isFinite ?? (!(data instanceof Float32Array || data instanceof Float64Array) || areSurelyFinite(data));
}

type Own = <T extends Values>(values: T) => T;

function movedColumn(column: Column, own: Own): Column {
  const valid = column.valid === undefined ? undefined : own(column.valid as Uint8Array<ArrayBuffer>);
  switch (column.kind) {
    case "fixed":
      return { ...column, data: own(column.data), valid };
    case "bytes": {
      const { offsets, start, end } = fromZero(column.offsets);
      const bytes = column.bytes.subarray(start, end) as Uint8Array<ArrayBuffer>;
      return { kind: "bytes", offsets: own(offsets), bytes: own(bytes), valid };
    }
    case "list": {
      const { offsets, start, end } = fromZero(column.offsets);
      return {
        kind: "list",
        offsets: own(offsets),
        child: movedColumn(sliceColumn(column.child, start, end), own),
        valid,
      };
    }
    case "struct": {
      const children = column.children.map((child) => movedColumn(child, own));
      return { kind: "struct", rowCount: rowsOf(column), children, valid };
    }
    default:
      return assertNever(column);
  }
}

function fromZero(offsets: Uint32Array): { offsets: Uint32Array<ArrayBuffer>; start: number; end: number } {
  const start = offsets[0] ?? 0;
  const moved = allocate("uint32", offsets.length) as Uint32Array<ArrayBuffer>;
  for (let index = 0; index < offsets.length; index += 1) {
    moved[index] = (offsets[index] as number) - start;
  }
  return { offsets: moved, start, end: offsets.at(-1) ?? 0 };
}
