import { createColumnBuilder } from "./column-builder.js";
import { takeTexts } from "./numbered-texts.js";
import type { Column, ColumnType, FixedColumn } from "./types.js";
import { allocate, elementOf, type Values } from "./values.js";
import { assertNever } from "../util/errors.js";
import { rowsOf } from "./column-rows.js";

interface Taking {
  /** For each row, its position in the values. */
  readonly indices: Values;
  readonly valid: Uint8Array | undefined;
  /** Bytes or elements that may come of it. */
  readonly limit: number;
}

/** The values of a dictionary's indices. @throws RangeError for an index that it does not have */
export function takeRows(type: ColumnType, values: Column, taking: Taking): Column {
  const { positions, valid } = checkedPositions(values, taking);
  switch (values.kind) {
    case "fixed":
      return takeFixed(values, positions, valid);
    case "bytes":
      return { kind: "bytes", ...takeTexts(values, positions, { valid, limit: taking.limit }), valid };
    case "list":
    case "struct": {
      const builder = createColumnBuilder(type, positions.length);
      for (const position of positions) {
        if (
          values.kind === "list" &&
          position < rowsOf(values) &&
          builder.rowCount * lengthAt(values, position) > taking.limit
        ) {
          throw new RangeError(`lists of ${lengthAt(values, position)} elements for each of ${positions.length} rows`);
        }
        if (position < rowsOf(values)) {
          builder.append(values, position, position + 1);
        }
      }
      // A NULL without a value still takes a row.
      return builder.rowCount === positions.length ? { ...builder.finish(), valid } : refuseEmpty();
    }
    default:
      return assertNever(values);
  }
}

function refuseEmpty(): never {
  throw new RangeError("a dictionary of lists or structs without values");
}

function lengthAt({ offsets }: { readonly offsets: Uint32Array }, row: number): number {
  return (offsets[row + 1] ?? 0) - (offsets[row] ?? 0);
}

/** Checked positions, 0 for NULLs, and which rows are NULL: by index or by value. */
function checkedPositions(
  values: Column,
  { indices, valid: given }: Taking,
): { positions: Uint32Array; valid: Uint8Array | undefined } {
  const size = rowsOf(values);
  if (indices instanceof Uint32Array && given === undefined && values.valid === undefined) {
    checkPositions(indices, size);
    return { positions: indices, valid: undefined };
  }
  const positions = new Uint32Array(indices.length);
  const valid = given?.slice() ?? (values.valid === undefined ? undefined : new Uint8Array(indices.length).fill(1));
  for (let row = 0; row < indices.length; row += 1) {
    if (given?.[row] === 0) {
      continue;
    }
    const position = Number(indices[row]);
    if (position < 0 || position >= size) {
      throw new RangeError(`index ${position} into a dictionary of ${size} values`);
    }
    positions[row] = position;
    if (valid !== undefined && values.valid?.[position] === 0) {
      valid[row] = 0;
    }
  }
  return { positions, valid };
}

function checkPositions(positions: Uint32Array, size: number): void {
  for (let row = 0; row < positions.length; row += 1) {
    if ((positions[row] as number) >= size) {
      throw new RangeError(`index ${positions[row]} into a dictionary of ${size} values`);
    }
  }
}

function takeFixed(
  { data, elementsPerValue }: FixedColumn,
  positions: Uint32Array,
  valid: Uint8Array | undefined,
): Column {
  const taken = allocate(elementOf(data), positions.length * elementsPerValue);
  if (data instanceof BigInt64Array || data instanceof BigUint64Array) {
    // By halves: a BigInt for each value would cost ten times as much.
    takeWords(wordsOf(taken), wordsOf(data), positions, elementsPerValue * 2);
  } else if (data instanceof Float32Array) {
    takeWords(wordsOf(taken), wordsOf(data), positions, elementsPerValue); // a number for each would change some NaNs
  } else if (data.length > 0) {
    for (let row = 0; row < positions.length; row += 1) {
      const position = positions[row] as number;
      for (let element = 0; element < elementsPerValue; element += 1) {
        taken[row * elementsPerValue + element] = data[position * elementsPerValue + element] as number;
      }
    }
  }
  return { kind: "fixed", elementsPerValue, data: taken, valid };
}

function wordsOf({ buffer, byteOffset, byteLength }: Values): Uint32Array {
  return new Uint32Array(buffer, byteOffset, byteLength / Uint32Array.BYTES_PER_ELEMENT);
}

function takeWords(target: Uint32Array, source: Uint32Array, positions: Uint32Array, words: number): void {
  for (let row = 0; source.length > 0 && row < positions.length; row += 1) {
    const position = (positions[row] as number) * words;
    for (let word = 0; word < words; word += 1) {
      target[row * words + word] = source[position + word] as number;
    }
  }
}
