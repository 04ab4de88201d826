/**
 * Values of a dictionary in a page that is too large for the memory which loops reach. Its runs are copied there in parts,
 * each of which is runs by itself.
 */
import { type PackedValues, takeRunsHere } from "../../../columnar/memory/page-loops.js";
import { areHere } from "../../../columnar/memory/vectors.js";
import type { Values } from "../../../columnar/values.js";
import { writeVarint } from "../../../util/thrift.js";
import type { PageMemory } from "./page-memory.js";
import { fittingValue, nextWholeRun, openRuns, requireEnd, type Runs } from "./runs.js";

/** A part stays in a core's cache until it is read. */
const partBytes = 64 * 1024;
/** Enough for the head of a packed run in a part. */
const headBytes = 4;

/** Bytes [at, end) of a page, and how many numbers they are. */
interface Part {
  readonly at: number;
  readonly end: number;
  readonly count: number;
  /** Whether they are groups of eight numbers from a packed run, without its head; else they are whole runs. */
  readonly isCut: boolean;
}

interface PartsOptions {
  /** Where loops reach it. */
  readonly dictionary: Values;
  readonly count: number;
  readonly pageMemory: PageMemory;
}

/**
 * What `takeRunsHere` returns, for bytes in any memory.
 * @throws RangeError where the runs have more or fewer values than `count`
 */
export function takeRunsInParts(
  bytes: Uint8Array,
  place: { readonly at: number; readonly end: number; readonly width: number },
  { dictionary, count, pageMemory }: PartsOptions,
): PackedValues | undefined {
  const memory = pageMemory.memory("runs", headBytes + partBytes);
  if (!areHere([memory, dictionary])) {
    return undefined;
  }
  const parts = partsOf(openRuns(bytes, place), count);
  let [index, passed] = [0, 0];
  let open: PackedValues | undefined;
  const opened = (part: Part): PackedValues => {
    open ??= openPart(bytes, part, { memory, width: place.width, dictionary });
    return open;
  };
  const pass = (numbers: number, target: Values | undefined): void => {
    for (let done = 0; done < numbers; ) {
      const part = parts[index];
      if (part === undefined) {
        throw new RangeError(`more than the ${count} values of a page`);
      }
      const length = Math.min(numbers - done, part.count - passed);
      if (target !== undefined) {
        opened(part).take(target.subarray(done, done + length));
      } else if (length < part.count) {
        opened(part).skip(length);
      }
      done += length;
      passed += length;
      if (passed === part.count) {
        [index, passed, open] = [index + 1, 0, undefined];
      }
    }
  };
  return {
    take: (target) => {
      pass(target.length, target);
    },
    skip: (numbers) => {
      pass(numbers, undefined);
    },
  };
}

/** Cuts a page into parts: whole runs, and groups of eight numbers of runs that are larger than a part. */
function partsOf(runs: Runs, count: number): Part[] {
  const parts: Part[] = [];
  let [at, end, held] = [runs.at, runs.at, 0];
  const close = (next: number): void => {
    if (held > 0) {
      parts.push({ at, end, count: held, isCut: false });
    }
    [at, end, held] = [next, next, 0];
  };
  for (let counted = 0; counted < count; counted += runs.length) {
    const start = runs.at;
    nextWholeRun(runs, count - counted);
    const runEnd = Math.min(runs.at, runs.bytes.length);
    if (runEnd - start > partBytes) {
      close(runEnd);
      cutRun(runs, parts);
      continue;
    }
    if (!runs.isPacked) {
      fittingValue(runs);
    }
    if (runEnd - at > partBytes) {
      close(start);
    }
    end = runEnd;
    held += runs.length;
  }
  if (count > 0) {
    requireEnd(runs);
  }
  close(end);
  return parts;
}

/** Cuts a packed run into parts of as many groups of eight numbers as fit. */
function cutRun({ bytes, valuesAt, length, width }: Runs, parts: Part[]): void {
  const groups = Math.floor(partBytes / width);
  for (let from = 0; from < length; from += groups * 8) {
    const count = Math.min(groups * 8, length - from);
    const at = valuesAt + (from / 8) * width;
    // Some bytes of the last group may not be there.
    parts.push({ at, end: Math.min(at + Math.ceil(count / 8) * width, bytes.length), count, isCut: true });
  }
}

interface PartOptions {
  readonly memory: Uint8Array<ArrayBuffer>;
  readonly width: number;
  readonly dictionary: Values;
}

/** Copies a part to where loops reach it. @throws RangeError where it is damaged */
function openPart(
  bytes: Uint8Array,
  { at, end, count, isCut }: Part,
  { memory, width, dictionary }: PartOptions,
): PackedValues {
  const head = isCut ? writeVarint(Math.ceil(count / 8) * 2 + 1) : []; // the lowest bit: a packed run
  memory.set(head);
  memory.set(bytes.subarray(at, end), head.length);
  const runs = { at: 0, end: head.length + end - at, width };
  const values = takeRunsHere(memory, runs, dictionary, count);
  if (values === undefined) {
    throw new TypeError("runs that loops do not reach");
  }
  return values;
}
