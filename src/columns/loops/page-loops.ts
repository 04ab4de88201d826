/**
 * The loops that decoding a Parquet page spends most time in, in WebAssembly (`page-loops.wat`). WebAssembly is compiled
 * quickly and is fast from the first page on, where V8 interprets JavaScript at first. The loops reach only memory of
 * `vectors.ts`. Where there is none, DuckDB reads.
 */
import type { Values } from "../values.js";
import { areHere, loopsSharingMemory, spareBytes } from "./vectors.js";
import { pageLoopsCode } from "./page-loops-code.js";

interface Loops {
  readonly unpackSnappy: (from: number, fromEnd: number, to: number, toEnd: number) => number;
  readonly takeRuns: (
    state: number,
    end: number,
    width: number,
    count: number,
    to: number,
    entry: number,
    entries: number,
    shift: number,
  ) => number;
  readonly readBits: (at: number, end: number, to: number, count: number) => number;
  readonly findZeros: (at: number, end: number, to: number, capacity: number, count: number) => number;
  readonly spread: (at: number, count: number, valid: number, rows: number, shift: number) => void;
  readonly countOnes: (at: number, rows: number) => number;
}

interface Opened {
  readonly loops: Loops;
  /** What is left of the runs: memory of its own. */
  readonly state: Uint32Array;
}

let opened: Opened | undefined;

function loopsOver(...arrays: readonly { readonly buffer: ArrayBufferLike }[]): Opened | undefined {
  if (!areHere(arrays)) {
    return undefined;
  }
  opened ??= open();
  return opened;
}

function open(): Opened {
  const { loops, memory } = loopsSharingMemory(pageLoopsCode);
  const words = spareBytes / Uint32Array.BYTES_PER_ELEMENT;
  return { loops: loops as Loops, state: new Uint32Array(memory, memory.byteLength - spareBytes, words) };
}

/**
 * Unpacks a Snappy block, after its length, into exactly `target`. false: JavaScript must unpack it, and the contents of
 * `target` are undefined.
 */
export function unpackSnappyHere(elements: Uint8Array, target: Uint8Array): boolean {
  const { byteOffset: from } = elements;
  const { byteOffset: to } = target;
  const done = loopsOver(elements, target)?.loops.unpackSnappy(from, from + elements.length, to, to + target.length);
  return done === 1;
}

/** In place of an address: the loop writes nothing. */
const nowhere = -1;

/** How many bytes more than it fills `readBits` needs in its target. */
export const bitsSpareBytes = 7;

/**
 * Fills `target[0, count)` with numbers of one bit, of which `runs` are all. Returns how many are 1.
 * @throws RangeError where they are damaged, or an array is in other memory
 */
export function readBits(runs: Uint8Array, target: Uint8Array, count: number): number {
  const { byteOffset: at, length } = runs;
  const here = target.length >= count + bitsSpareBytes ? loopsOver(runs, target) : undefined;
  return requireFound(here?.loops.readBits(at, at + length, target.byteOffset, count));
}

/**
 * Fills `target` with the places of the zeros among `count` numbers of one bit, of which `runs` are all; undefined: they are
 * only counted. Returns how many there are.
 * @throws RangeError where they are more or fewer than fit into the target, damaged, or an array is in other memory
 */
export function findZeros(runs: Uint8Array, target: Uint32Array | undefined, count: number): number {
  const { byteOffset: at, length } = runs;
  const here = loopsOver(runs, ...(target === undefined ? [] : [target]));
  const [to, capacity] = target === undefined ? [nowhere, 0] : [target.byteOffset, target.length];
  const zeros = requireFound(here?.loops.findZeros(at, at + length, to, capacity, count));
  if (target !== undefined && zeros < target.length) {
    throw new RangeError(`${zeros} zeros, ${target.length} are due`);
  }
  return zeros;
}

/** @param found undefined: no loop was run; -1: it met an error */
function requireFound(found: number | undefined): number {
  if (found === undefined || found < 0) {
    throw new RangeError(found === undefined ? "runs that loops do not reach" : "runs that are damaged");
  }
  return found;
}

/** Values in order, of which NULLs have none. */
export interface PackedValues {
  /** Fills `target`. @throws RangeError where the values are damaged */
  take(target: Values): void;
  skip(count: number): void;
}

/** Wider ones would not fit into what unpacking holds; no dictionary has as many entries. */
const widestBits = 24;

/**
 * `count` values of a dictionary by their numbers, the runs of `width` bits in bytes [at, end). undefined: loops do not
 * reach them, or do not know such values.
 * @throws RangeError where the runs have more or fewer values than `count`: no row of such a page can be trusted
 */
export function takeRunsHere(
  bytes: Uint8Array,
  { at, end, width }: { readonly at: number; readonly end: number; readonly width: number },
  dictionary: Values,
  count: number,
): PackedValues | undefined {
  const shift = shiftOf(dictionary);
  const here = loopsOver(bytes, dictionary);
  if (here === undefined || shift === undefined || width > widestBits || end > bytes.length) {
    return undefined;
  }
  const { loops, state } = here;
  const { byteOffset } = bytes;
  const own = new Uint32Array(state.length);
  const pass = (values: number, to: number): void => {
    state.set(own);
    const { byteOffset: entry, length: entries } = dictionary;
    if (loops.takeRuns(state.byteOffset, byteOffset + end, width, values, to, entry, entries, shift) === 0) {
      throw new RangeError("runs that are damaged");
    }
    own.set(state);
  };
  const rewind = (): void => {
    own.fill(0);
    own.set([byteOffset + at, count]);
  };
  rewind();
  if (count > 0) {
    pass(count, nowhere);
    rewind();
  }
  return {
    take(target) {
      if (!areHere([target]) || elementBytes(target) !== elementBytes(dictionary)) {
        throw new TypeError("the target is not in the dictionary's memory, or has elements of another size");
      }
      pass(target.length, target.byteOffset);
    },
    skip(values) {
      pass(values, nowhere);
    },
  };
}

/**
 * Moves the first `count` values to where `valid` has a 1, which is so many times; puts 0 where it has none. All arrays
 * must be in the memory that loops reach.
 */
export function spreadHere(values: Values, count: number, valid: Uint8Array): void {
  const { loops } = loopsOver(values, valid) ?? {};
  const shift = shiftOf(values);
  if (loops === undefined || shift === undefined || values.length < valid.length || count > valid.length) {
    throw new TypeError("values that cannot be spread here");
  }
  loops.spread(values.byteOffset, count, valid.byteOffset, valid.length, shift);
}

/** Whether loops know such values. */
export function isSpreadHere(values: Values): boolean {
  return shiftOf(values) !== undefined;
}

/** Counts the ones among bytes of 0 or 1 in the memory that loops reach. @throws TypeError for other memory */
export function countOnesHere(valid: Uint8Array): number {
  const { loops } = loopsOver(valid) ?? {};
  if (loops === undefined) {
    throw new TypeError("bytes that cannot be counted here");
  }
  return loops.countOnes(valid.byteOffset, valid.length);
}

function elementBytes({ BYTES_PER_ELEMENT: bytes }: Values): number {
  return bytes;
}

/** By how many bits an index is shifted to be a byte offset, for values that the loops know. */
function shiftOf(values: Values): 2 | 3 | undefined {
  const bytes = elementBytes(values);
  return bytes === 4 ? 2 : bytes === 8 ? 3 : undefined;
}
