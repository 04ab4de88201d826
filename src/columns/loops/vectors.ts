import type { Values } from "../values.js";
import { vectorCode } from "./vector-code.js";

interface MemoryPieces {
  /** `bytes` bytes, aligned for any element; their content is undefined. undefined: no free range is large enough. */
  take(bytes: number): Uint8Array<ArrayBuffer> | undefined;
  /** Makes a piece free again. @throws Error if `take` did not return it, or it is free already */
  release(piece: Uint8Array<ArrayBuffer>): void;
  /** Bytes of all pieces that are not released. */
  readonly usedBytes: number;
}

const alignedBytes = 64;

interface Range {
  start: number;
  end: number;
}

/**
 * Pieces of the buffer up to byte `limit`. The first free range that is large enough is used, so that memory that was
 * never touched stays untouched. Neighbouring free ranges are joined.
 * @public so that tests see it
 */
export function createMemoryPieces(buffer: ArrayBuffer, limit = buffer.byteLength): MemoryPieces {
  /** Sorted by start. */
  const free: Range[] = [{ start: 0, end: limit }];
  const ends = new Map<number, number>();
  let usedBytes = 0;
  return {
    get usedBytes() {
      return usedBytes;
    },
    take(bytes) {
      const size = Math.ceil(Math.max(1, bytes) / alignedBytes) * alignedBytes;
      const index = free.findIndex(({ start, end }) => end - start >= size);
      const range = free[index];
      if (range === undefined) {
        return undefined;
      }
      const { start } = range;
      range.start += size;
      if (range.start === range.end) {
        free.splice(index, 1);
      }
      ends.set(start, start + size);
      usedBytes += size;
      return new Uint8Array(buffer, start, bytes);
    },
    release({ buffer: of, byteOffset: start }) {
      const end = of === buffer ? ends.get(start) : undefined;
      if (end === undefined) {
        throw new Error(`releasing memory at ${start}: it is not in use`);
      }
      ends.delete(start);
      usedBytes -= end - start;
      const after = free.findIndex((range) => range.start >= end);
      const index = after === -1 ? free.length : after;
      const [before, next] = [free[index - 1], free[index]];
      if (before?.end === start) {
        before.end = next?.start === end ? next.end : end;
        free.splice(index, next?.start === end ? 1 : 0);
      } else if (next?.start === end) {
        next.start = start;
      } else {
        free.splice(index, 0, { start, end });
      }
    },
  };
}

/**
 * Loops over floats that work with the processor's vectors. V8 makes no vector code of JavaScript, but does of
 * WebAssembly, which reaches its own memory only: so each thread allocates columns and matrices from such memory.
 * The loops are in `vectors.wat`. Where a thread has no such memory (`ulimit -v`), or an array is too large for it, DuckDB
 * reads, and the main thread packs.
 */

/** The part of WebAssembly that is used here. TypeScript declares it only among the types of browsers. */
interface WebAssemblyHere {
  readonly Module: new (code: Uint8Array) => object;
  readonly Instance: new (module: object, imports?: object) => { readonly exports: unknown };
}

/** Addresses and strides are bytes; what comes back is 1 where a float is not finite, 0 where all are. */
interface Loops {
  readonly memory: { readonly buffer: ArrayBuffer };
  readonly anyNotFinite: (at: number, count: number) => number;
  readonly packFour: (to: number, stride: number, a: number, b: number, c: number, d: number, rows: number) => number;
  readonly floatsOfDoubles: (at: number, count: number, to: number) => void;
  /** Returns 1 if a float may differ from the integer that it was made from, else 0. */
  readonly floatsOfInts: (at: number, count: number, to: number) => number;
  readonly floatsOfLongs: (at: number, count: number, to: number) => number;
}

/** Larger pieces come from other memory: pages of this memory that were written to are never returned to the system. */
export const pieceLimitBytes = 16 * 1024 * 1024;
/** Scratch space of the loops at the end of the memory, which no piece includes. */
export const spareBytes = 64;
/** Rows that are packed at once, at most. */
export const packedRows = 1024;

interface Vectors {
  readonly loops: Loops;
  readonly buffer: ArrayBuffer;
  readonly pieces: MemoryPieces;
  /** For the columns that are packed: what is made of each. */
  readonly made: readonly Float32Array<ArrayBuffer>[];
}

let opened: { readonly vectors: Vectors | undefined } | undefined;

function vectorsHere(): Vectors | undefined {
  opened ??= { vectors: open() };
  return opened.vectors;
}

function open(): Vectors | undefined {
  // Absent where a flag keeps V8 from making machine code.
  const { WebAssembly: here } = globalThis as { WebAssembly?: WebAssemblyHere };
  if (here === undefined) {
    return undefined;
  }
  try {
    const loops = instantiate(here, vectorCode) as Loops;
    const { buffer } = loops.memory;
    const madeBytes = packedRows * Float32Array.BYTES_PER_ELEMENT;
    const madeFrom = buffer.byteLength - spareBytes - 4 * madeBytes;
    const made = [0, 1, 2, 3].map((place) => new Float32Array(buffer, madeFrom + place * madeBytes, packedRows));
    return { loops, buffer, pieces: createMemoryPieces(buffer, madeFrom), made };
  } catch {
    return undefined; // a processor without vectors, or no memory for it
  }
}

function instantiate(here: WebAssemblyHere, code: string, imports?: object): unknown {
  const bytes = Uint8Array.from(atob(code), (letter) => letter.charCodeAt(0));
  return new here.Instance(new here.Module(bytes), imports).exports;
}

/** Whether arrays are in the memory that this thread's loops reach. */
export function areHere(arrays: readonly { readonly buffer: ArrayBufferLike }[]): boolean {
  const here = opened?.vectors?.buffer;
  return here !== undefined && arrays.every(({ buffer }) => buffer === here);
}

/**
 * Other loops over this thread's memory, which they import as `memory.memory`.
 * @param code in base64
 * @throws Error where there is none
 */
export function loopsSharingMemory(code: string): { readonly loops: unknown; readonly memory: ArrayBuffer } {
  const vectors = opened?.vectors;
  const { WebAssembly: here } = globalThis as { WebAssembly?: WebAssemblyHere };
  if (vectors === undefined || here === undefined) {
    throw new Error("loops without memory");
  }
  const loops = instantiate(here, code, { memory: { memory: vectors.loops.memory } });
  return { loops, memory: vectors.buffer };
}

/**
 * Other loops, which have memory of their own; undefined: there are none.
 * @param code in base64
 */
export function loopsWithMemory(code: string): unknown {
  const { WebAssembly: here } = globalThis as { WebAssembly?: WebAssemblyHere };
  const isRefused = opened !== undefined && opened.vectors === undefined;
  try {
    return here === undefined || isRefused ? undefined : instantiate(here, code);
  } catch {
    return undefined; // no memory for them
  }
}

/** Uses no vectors in this thread from now on. V8 reserves 10 GiB of addresses for them, which `ulimit -v` may not allow. */
export function doWithoutVectors(): void {
  opened = { vectors: undefined };
}

/**
 * So many bytes, which vectors reach as long as there are some; what is in them means nothing. Never to be sent to
 * another thread: all of the memory would go with them.
 */
export function takeMemory(bytes: number): Uint8Array<ArrayBuffer> {
  const piece = bytes > pieceLimitBytes ? undefined : vectorsHere()?.pieces.take(bytes);
  return piece ?? new Uint8Array(bytes);
}

/** Releases pieces that are no longer used, each as `takeMemory` returned it. */
export function releaseMemory(taken: Iterable<Uint8Array<ArrayBuffer>>): void {
  for (const piece of taken) {
    vectorsOf(piece)?.pieces.release(piece);
  }
}

/** Bytes in use of the memory that vectors reach. @public so that tests see it */
export function usedMemoryBytes(): number {
  return opened?.vectors?.pieces.usedBytes ?? 0;
}

function vectorsOf({ buffer }: Uint8Array | Float32Array): Vectors | undefined {
  const vectors = opened?.vectors;
  return vectors?.buffer === buffer ? vectors : undefined;
}

/** Whether all values are finite; undefined: vectors do not reach them. */
export function areFinite(values: Float32Array): boolean | undefined {
  const loops = vectorsOf(values)?.loops;
  return loops === undefined ? undefined : loops.anyNotFinite(values.byteOffset, values.length) === 0;
}

interface FourColumns {
  readonly a: Values;
  readonly b: Values;
  readonly c: Values;
  readonly d: Values;
  readonly from: number;
  readonly to: number;
}

/**
 * Puts rows [from, to), at most `packedRows`, of four columns side by side as floats: the first row's at `at`, the next
 * one's `width` after. Doubles are rounded. True: all of these floats are finite, and those of whole numbers are these
 * numbers; false: one may not be; undefined: nothing was done, since vectors do not reach the target, or do not know a
 * column.
 * @throws RangeError where an array ends before, which no loop would notice
 */
export function packFour(target: Values, at: number, width: number, four: FourColumns): boolean | undefined {
  const { a, b, c, d, from, to } = four;
  const vectors = target instanceof Float32Array ? vectorsOf(target) : undefined;
  if (vectors === undefined) {
    return undefined;
  }
  const rows = to - from;
  if (rows <= 0) {
    return true;
  }
  if (from < 0 || rows > packedRows || to > Math.min(a.length, b.length, c.length, d.length)) {
    throw new RangeError(`rows ${from} to ${to} of columns of ${[a, b, c, d].map(({ length }) => length).join(", ")}`);
  }
  if (at < 0 || width < 4 || at + (rows - 1) * width + 4 > target.length) {
    throw new RangeError(`${rows} rows of ${width} at ${at} of ${target.length}`);
  }
  const places: number[] = [];
  for (const [place, column] of [a, b, c, d].entries()) {
    const floats = floatsOf(vectors, column, { from, to, place });
    if (floats === undefined || floats === false) {
      return floats;
    }
    places.push(floats);
  }
  const [toBytes, stride] = [target.byteOffset + at * floatBytes, width * floatBytes];
  const [ofA, ofB, ofC, ofD] = places as [number, number, number, number];
  return vectors.loops.packFour(toBytes, stride, ofA, ofB, ofC, ofD, rows) === 0;
}

const floatBytes = Float32Array.BYTES_PER_ELEMENT;

/** The address of the floats of rows of a column; false: one may not be the number that it was; undefined: it is not known. */
function floatsOf(
  { loops, buffer, made }: Vectors,
  column: Values,
  { from, to, place }: { readonly from: number; readonly to: number; readonly place: number },
): number | false | undefined {
  const at = column.byteOffset + from * column.BYTES_PER_ELEMENT;
  const rows = to - from;
  const floats = made[place] as Float32Array<ArrayBuffer>;
  const { byteOffset } = floats;
  if (column.buffer === buffer) {
    if (column instanceof Float32Array) {
      return at;
    }
    if (column instanceof Float64Array) {
      loops.floatsOfDoubles(at, rows, byteOffset);
      return byteOffset;
    }
    if (column instanceof Int32Array) {
      return loops.floatsOfInts(at, rows, byteOffset) === 0 && byteOffset;
    }
    if (column instanceof BigInt64Array) {
      return loops.floatsOfLongs(at, rows, byteOffset) === 0 && byteOffset;
    }
  }
  if (
    column instanceof Int32Array ||
    column instanceof Uint32Array ||
    column instanceof BigInt64Array ||
    column instanceof BigUint64Array
  ) {
    return undefined; // floats may not be these numbers
  }
  floats.set(column.subarray(from, to));
  return byteOffset;
}
