/**
 * Rows of lists by the levels before the values of a page. A repetition level of 0 begins a row. A definition level
 * says what there is: NULL (0, where the list is optional), a list without elements, an element that is NULL (where
 * elements are optional), or an element. https://parquet.apache.org/docs/file-format/nestedencoding/
 */
import { findZeros } from "../../../columnar/memory/page-loops.js";
import type { ListLevels } from "../footer/leaves.js";
import type { PageHeader } from "./page-header.js";
import { type PageMemory, reachable } from "./page-memory.js";
import { encodings, pageLimitValues, prefixed } from "./page-values.js";
import { isOneRun, readRuns } from "./runs.js";

/** Bytes [at, end) of a page. */
interface BytePlace {
  readonly at: number;
  readonly end: number;
}

export interface LevelPlaces {
  readonly repetition: BytePlace;
  readonly definition: BytePlace;
  readonly valuesAt: number;
}

/** Finds the levels of an unpacked page. @throws RangeError where they are not in it */
export function levelPlaces(header: PageHeader, bytes: Uint8Array): LevelPlaces {
  const { kind, levelBytes } = header;
  let repetition = { at: 0, end: levelBytes.repetition };
  let definition = { at: repetition.end, end: repetition.end + levelBytes.definition };
  if (kind === "data") {
    requireRuns(header);
    repetition = prefixed(bytes, 0);
    definition = prefixed(bytes, repetition.end);
  }
  if (definition.end > bytes.length) {
    throw new RangeError("levels end in the middle");
  }
  return { repetition, definition, valuesAt: definition.end };
}

/** @throws RangeError where the levels of a page of version 1 are in an encoding that is out of use */
export function requireRuns({ repetitionEncoding, levelEncoding }: PageHeader): void {
  if (repetitionEncoding !== encodings.runs || levelEncoding !== encodings.runs) {
    throw new RangeError(`levels of encodings ${repetitionEncoding} and ${levelEncoding}`);
  }
}

export interface ListsRequest {
  readonly places: LevelPlaces;
  readonly list: ListLevels;
  /** The number of levels of either kind. */
  readonly values: number;
  /** The number of rows that begin in the page. */
  readonly begun: number;
  /** Whether the page begins with elements of a row that begins in a page before it. */
  readonly isContinued: boolean;
  /** The number of that row's elements that are in pages before it, and are read. */
  readonly carried: number;
  readonly pageMemory: PageMemory;
}

/** The rows of a page. The first one may begin before it, the last one may go on behind it. */
export interface PageLists {
  /** Row i is elements [offsets[i], offsets[i + 1]), of which carried ones are the first. */
  readonly offsets: Uint32Array;
  /** Which lists are not NULL; undefined: all. */
  readonly valid: Uint8Array | undefined;
  /** Elements of the page. */
  readonly elements: {
    readonly rows: number;
    /** Which are not NULL; undefined: all. Holds until levels are read into the same memory again. */
    readonly valid: Uint8Array | undefined;
    /** How many are not NULL: values of the page. */
    readonly count: number;
  };
}

/** @throws RangeError where levels contradict each other, the page's header or the request */
export function readLists(bytes: Uint8Array, request: ListsRequest): PageLists {
  const { places, list, values, begun, isContinued, carried, pageMemory } = request;
  const { buffer, byteOffset } = pageMemory.memory("starts", Math.max(1, begun) * Uint32Array.BYTES_PER_ELEMENT);
  const starts = new Uint32Array(buffer, byteOffset, begun);
  findZeros(reachable(bytes, places.repetition, pageMemory), starts, values);
  if ((starts[0] === 0) === isContinued) {
    throw new RangeError(isContinued ? "a row that goes on begins" : "a page begins inside a row");
  }
  if (isOneRun(bytes, { ...places.definition, value: highestLevel(list) }, values)) {
    const lead = isContinued ? 1 : 0;
    const offsets = new Uint32Array(lead + begun + 1);
    for (let row = 0; row < begun; row += 1) {
      offsets[lead + row] = carried + (starts[row] as number);
    }
    offsets[lead + begun] = carried + values;
    return { offsets, valid: undefined, elements: { rows: values, valid: undefined, count: values } };
  }
  return readNullable(bytes, starts, request);
}

function highestLevel({ isOptional, isElementOptional }: ListLevels): number {
  return 1 + (isOptional ? 1 : 0) + (isElementOptional ? 1 : 0);
}

/** The same where not each level stands for an element with a value. */
function readNullable(
  bytes: Uint8Array,
  starts: Uint32Array,
  { places, list, values, begun, isContinued, carried, pageMemory }: ListsRequest,
): PageLists {
  if (values > pageLimitValues) {
    throw new RangeError(`a page of ${values} values`);
  }
  const highest = highestLevel(list);
  const empty = list.isOptional ? 1 : 0;
  const levels = pageMemory.memory("levels", values);
  readRuns(bytes, { ...places.definition, width: 32 - Math.clz32(highest) }, levels, values);
  const lead = isContinued ? 1 : 0;
  const offsets = new Uint32Array(lead + begun + 1);
  const valid = new Uint8Array(lead + begun).fill(1);
  const present = pageMemory.memory("valid", values);
  let [rows, count, nulls] = [0, 0, 0];
  for (let row = 0; row < valid.length; row += 1) {
    const from = row < lead ? 0 : (starts[row - lead] as number);
    const to = starts[row - lead + 1] ?? values;
    if (to === from + 1 && row >= lead && (levels[from] as number) <= empty) {
      valid[row] = levels[from] === empty ? 1 : 0;
      nulls += levels[from] === empty ? 0 : 1;
    } else {
      for (let at = from; at < to; at += 1) {
        const level = levels[at] as number;
        if (level <= empty || level > highest) {
          throw new RangeError(`the level ${level} for an element`);
        }
        const isPresent = level === highest ? 1 : 0;
        present[rows] = isPresent;
        count += isPresent;
        rows += 1;
      }
    }
    offsets[row + 1] = carried + rows;
  }
  return {
    offsets,
    valid: nulls === 0 ? undefined : valid,
    elements: { rows, valid: count === rows ? undefined : present.subarray(0, rows), count },
  };
}
