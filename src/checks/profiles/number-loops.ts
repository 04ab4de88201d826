/**
 * Profiles numbers in WebAssembly (`number-loops.wat`). A run profiles a few million values, a span at a time: V8 interprets
 * JavaScript for a good part of that, and compiles WebAssembly at once.
 */
import { loopsWithMemory } from "../../columnar/memory/vectors.js";
import type { Histogram } from "./histogram.js";
import { numberLoopsCode } from "./number-loops-code.js";
import { blockValues, type NextNumbers, type NumberProfile, type ProfileLimits } from "./number-profile.js";
import { costOfName, limitValues, manyNumbers } from "./value-counts.js";

/** See `number-loops.wat`. */
interface Loops {
  readonly memory: { readonly buffer: ArrayBuffer };
  readonly countFew: (at: number, end: number, limit: number) => number;
  readonly addFew: () => void;
  readonly addNumbers: (at: number, end: number) => void;
  readonly takeSums: () => void;
  readonly takeBins: (limit: number) => number;
}

/** The loops, and their areas of memory. All of them are empty between two profiles. */
interface Opened {
  readonly loops: Loops;
  readonly block: Float64Array;
  /** Of positive numbers, of negative ones, of squares. */
  readonly sums: readonly [WholeNumber, WholeNumber, WholeNumber];
  readonly notFinite: Uint32Array;
  readonly extremes: Float64Array;
  readonly shift: Int32Array;
  readonly keys: Int32Array;
  readonly binCounts: Uint32Array;
  /** Pairs of a number and how often it came. */
  readonly few: Float64Array;
  readonly fewCounts: BigUint64Array;
}

interface WholeNumber {
  /** In units of 2^-1074, the lowest bits first. */
  readonly words: BigUint64Array;
  /** The first word that is not 0, and the one after the last. */
  readonly range: Uint32Array;
}

let opened: { readonly here: Opened | undefined } | undefined;

function open(): Opened | undefined {
  const loops = loopsWithMemory(numberLoopsCode) as Loops | undefined;
  if (loops === undefined) {
    return undefined;
  }
  const { buffer } = loops.memory;
  const sumAt = (index: number): WholeNumber => {
    const at = 0x1030000 + index * 0x240;
    return { words: new BigUint64Array(buffer, at, 36), range: new Uint32Array(buffer, at + 0x120, 2) };
  };
  const here = {
    loops,
    block: new Float64Array(buffer, 0x1024000, blockValues),
    sums: [sumAt(0), sumAt(1), sumAt(2)] as const,
    notFinite: new Uint32Array(buffer, 0x1018000, 3),
    extremes: new Float64Array(buffer, 0x1018010, 2),
    shift: new Int32Array(buffer, 0x1018020, 1),
    keys: new Int32Array(buffer, 0x1018100, 1024),
    binCounts: new Uint32Array(buffer, 0x1019100, 1024),
    few: new Float64Array(buffer, 0x1020000, 2 * 1024),
    fewCounts: new BigUint64Array(buffer, 0x1020000, 2 * 1024),
  };
  here.extremes.set(noExtremes);
  return here;
}

const noExtremes = [Number.POSITIVE_INFINITY, Number.NEGATIVE_INFINITY];

/** The profile of all numbers of `next`. undefined: this thread has no WebAssembly, and `next` was not called. */
export function profileInLoops(next: NextNumbers, limits: ProfileLimits): NumberProfile | undefined {
  opened ??= { here: open() };
  const { here } = opened;
  if (here === undefined) {
    return undefined;
  }
  const isFew = addAll(here, next, Math.min(limits.values, Math.floor(limits.nameBytes / costOfName(1))));
  const values = isFew ? limitValues(namesOf(here), limits, undefined) : manyNumbers;
  if (isFew) {
    here.loops.addFew();
  }
  const [nan = 0, positiveInfinite = 0, negativeInfinite = 0] = here.notFinite;
  const [min = 0, max = 0] = here.extremes;
  const histogram = takeHistogram(here, limits.bins);
  const exact = takeSums(here);
  here.notFinite.fill(0);
  here.extremes.set(noExtremes);
  const finite = histogram.counts.reduce((sum, count) => sum + count, 0);
  return { nan, positiveInfinite, negativeInfinite, finite, min, max, ...exact, histogram, values };
}

/** Whether the numbers are counted by value, since there are few; else they are in the sums and bins. */
function addAll({ loops, block }: Opened, next: NextNumbers, limit: number): boolean {
  const start = block.byteOffset;
  let isFew = true;
  for (let count = next(block); count > 0; count = next(block)) {
    const end = start + count * Float64Array.BYTES_PER_ELEMENT;
    const at = isFew ? loops.countFew(start, end, limit) : start;
    if (at < end) {
      if (isFew) {
        loops.addFew();
        isFew = false;
      }
      loops.addNumbers(at, end);
    }
  }
  return isFew;
}

function namesOf({ few, fewCounts }: Opened): ReadonlyMap<string, number> {
  const counts = new Map<string, number>();
  for (let slot = 0; slot < few.length; slot += 2) {
    const count = fewCounts[slot + 1] as bigint;
    if (count > 0n) {
      counts.set(String(few[slot]), Number(count));
    }
  }
  return counts;
}

/** Of what the bins hold; they are taken before. */
function takeSums({ loops, sums }: Opened): Pick<NumberProfile, "sum" | "squares"> {
  loops.takeSums();
  const [positive, negative, squares] = sums;
  return { sum: wholeOf(positive) - wholeOf(negative), squares: wholeOf(squares) };
}

function wholeOf({ words, range }: WholeNumber): bigint {
  const [first = 0, end = 0] = range;
  let whole = 0n;
  for (let index = end - 1; index >= first; index -= 1) {
    whole = (whole << 64n) + (words[index] as bigint);
  }
  return whole << BigInt(64 * first);
}

function takeHistogram({ loops, shift, keys, binCounts }: Opened, limit: number): Histogram {
  const bins = loops.takeBins(limit);
  return {
    shift: shift[0] as number,
    keys: keys.slice(0, bins),
    counts: new Float64Array(binCounts.subarray(0, bins)),
  };
}
