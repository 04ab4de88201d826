import { createColumnBuilder } from "./column-builder.js";
import { takeTexts } from "./numbered-texts.js";
import type { Column, ColumnType, FixedColumn } from "./types.js";
import { allocate, elementOf, type Values } from "./values.js";
import { assertNever } from "../util/errors.js";
import { rowsOf } from "./column-rows.js";

interface Taking {
  /** Of each row, its place in the values. */
  readonly indices: Values;
  readonly valid: Uint8Array | undefined;
  /** Bytes or elements that may come of it. */
  readonly limit: number;
}

/** What a dictionary's indices stand for. @throws RangeError for an index that it has not */
export function takeRows(type: ColumnType, values: Column, taking: Taking): Column {
  const { places, valid } = placesOf(values, taking);
  switch (values.kind) {
    case "fixed":
      return takeFixed(values, places, valid);
    case "bytes":
      return { kind: "bytes", ...takeTexts(values, places, { valid, limit: taking.limit }), valid };
    case "list":
    case "struct": {
      const builder = createColumnBuilder(type, places.length);
      for (const place of places) {
        if (
          values.kind === "list" &&
          place < rowsOf(values) &&
          builder.rowCount * lengthAt(values, place) > taking.limit
        ) {
          throw new RangeError(`lists of ${lengthAt(values, place)} elements for each of ${places.length} rows`);
        }
        if (place < rowsOf(values)) {
          builder.append(values, place, place + 1);
        }
      }
      // A NULL without a value still takes a row.
      return builder.rowCount === places.length ? { ...builder.finish(), valid } : refuseEmpty();
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

/** Checked places, 0 for NULLs, and which rows are NULL: by index or by value. */
function placesOf(
  values: Column,
  { indices, valid: given }: Taking,
): { places: Uint32Array; valid: Uint8Array | undefined } {
  const size = rowsOf(values);
  if (indices instanceof Uint32Array && given === undefined && values.valid === undefined) {
    checkPlaces(indices, size);
    return { places: indices, valid: undefined };
  }
  const places = new Uint32Array(indices.length);
  const valid = given?.slice() ?? (values.valid === undefined ? undefined : new Uint8Array(indices.length).fill(1));
  for (let row = 0; row < indices.length; row += 1) {
    if (given?.[row] === 0) {
      continue;
    }
    const place = Number(indices[row]);
    if (place < 0 || place >= size) {
      throw new RangeError(`index ${place} into a dictionary of ${size} values`);
    }
    places[row] = place;
    if (valid !== undefined && values.valid?.[place] === 0) {
      valid[row] = 0;
    }
  }
  return { places, valid };
}

function checkPlaces(places: Uint32Array, size: number): void {
  for (let row = 0; row < places.length; row += 1) {
    if ((places[row] as number) >= size) {
      throw new RangeError(`index ${places[row]} into a dictionary of ${size} values`);
    }
  }
}

function takeFixed({ data, lanes }: FixedColumn, places: Uint32Array, valid: Uint8Array | undefined): Column {
  const taken = allocate(elementOf(data), places.length * lanes);
  if (data instanceof BigInt64Array || data instanceof BigUint64Array) {
    // By halves: a BigInt for each value would cost ten times as much.
    takeWords(wordsOf(taken), wordsOf(data), places, lanes * 2);
  } else if (data instanceof Float32Array) {
    takeWords(wordsOf(taken), wordsOf(data), places, lanes); // a number for each would change some NaNs
  } else if (data.length > 0) {
    for (let row = 0; row < places.length; row += 1) {
      const place = places[row] as number;
      for (let lane = 0; lane < lanes; lane += 1) {
        taken[row * lanes + lane] = data[place * lanes + lane] as number;
      }
    }
  }
  return { kind: "fixed", lanes, data: taken, valid };
}

function wordsOf({ buffer, byteOffset, byteLength }: Values): Uint32Array {
  return new Uint32Array(buffer, byteOffset, byteLength / Uint32Array.BYTES_PER_ELEMENT);
}

function takeWords(target: Uint32Array, source: Uint32Array, places: Uint32Array, words: number): void {
  for (let row = 0; source.length > 0 && row < places.length; row += 1) {
    const place = (places[row] as number) * words;
    for (let word = 0; word < words; word += 1) {
      target[row * words + word] = source[place + word] as number;
    }
  }
}
