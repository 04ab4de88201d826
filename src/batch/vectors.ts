/**
 * Loops over floats that work with the processor's vectors. V8 makes no vector code of JavaScript, but does of
 * WebAssembly, which reaches its own memory only: so each thread has some, that it hands out for columns and matrices.
 * Where an array lies elsewhere, or the processor has no vectors, the loops in JavaScript do the same. The loops are in
 * `vectors.wat`.
 */
import { vectorCode } from "./vector-code.js";

/** As far as it is used here. TypeScript has it among the types of browsers only. */
declare const WebAssembly:
  | {
      readonly Module: new (code: Uint8Array) => object;
      readonly Instance: new (module: object) => { readonly exports: unknown };
    }
  | undefined;

/** Addresses and strides are bytes; what comes back is 1 where a float is not finite, 0 where all are. */
interface Loops {
  readonly memory: { readonly buffer: ArrayBuffer };
  readonly anyNotFinite: (at: number, count: number) => number;
  readonly packFour: PackFour;
  /** Of doubles. */
  readonly roundFour: PackFour;
}

type PackFour = (to: number, stride: number, a: number, b: number, c: number, d: number, rows: number) => number;

/** Larger pieces are no matter of loops, and would stay where they are: this memory is never given back. */
const pieceLimitBytes = 16 * 1024 * 1024;
const leastBytes = 4096;
/** Of a piece, wasted at most, so that one fits that was there before. */
const wasted = 1 / 8;
/** Between pieces. Columns that all begin at the same place of a page would be in each other's way in the cache. */
const gapBytes = 256;

/** Memory of a thread, in pieces. */
interface Memory {
  readonly loops: Loops;
  readonly buffer: ArrayBuffer;
  /** By size, those that came back. */
  readonly idle: Map<number, Uint8Array<ArrayBuffer>[]>;
  /** Of all, how many bytes were handed out once. */
  used: number;
}

let opened: { readonly memory: Memory | undefined } | undefined;

/** undefined: this machine has none. */
function memoryHere(): Memory | undefined {
  opened ??= { memory: open() };
  return opened.memory;
}

function open(): Memory | undefined {
  if (WebAssembly === undefined) {
    return undefined; // V8 was told to make no machine code
  }
  try {
    const code = Uint8Array.from(atob(vectorCode), (letter) => letter.charCodeAt(0));
    const { exports } = new WebAssembly.Instance(new WebAssembly.Module(code));
    const loops = exports as Loops;
    return { loops, buffer: loops.memory.buffer, idle: new Map(), used: 0 };
  } catch {
    return undefined; // a processor without vectors, or no memory for it
  }
}

/**
 * So many bytes or more, which vectors reach as long as there are some; what is in them means nothing. Never to be sent
 * to another thread: all of the memory would go with them.
 */
export function takeMemory(bytes: number): Uint8Array<ArrayBuffer> {
  const memory = bytes > pieceLimitBytes ? undefined : memoryHere();
  if (memory === undefined) {
    return new Uint8Array(bytes);
  }
  const size = pieceSize(bytes);
  const idle = memory.idle.get(size)?.pop();
  if (idle !== undefined) {
    return idle;
  }
  if (memory.used + size > memory.buffer.byteLength) {
    return new Uint8Array(bytes);
  }
  const piece = new Uint8Array(memory.buffer, memory.used, size);
  memory.used += size + gapBytes;
  return piece;
}

/** Pieces that nobody uses any more. */
export function giveBackMemory(pieces: Iterable<Uint8Array<ArrayBuffer>>): void {
  for (const piece of pieces) {
    const memory = memoryOf(piece);
    if (memory !== undefined) {
      const same = memory.idle.get(piece.length) ?? [];
      same.push(piece);
      memory.idle.set(piece.length, same);
    }
  }
}

function pieceSize(bytes: number): number {
  const step = Math.max(leastBytes, 2 ** Math.floor(Math.log2(Math.max(1, bytes))) * wasted);
  return Math.max(1, Math.ceil(bytes / step)) * step;
}

/** The memory that an array lies in; undefined: it lies elsewhere. */
function memoryOf({ buffer }: Uint8Array | Float32Array): Memory | undefined {
  const memory = opened?.memory;
  return memory?.buffer === buffer ? memory : undefined;
}

/** Whether all values are finite; undefined: vectors do not reach them. */
export function areFinite(values: Float32Array): boolean | undefined {
  const loops = memoryOf(values)?.loops;
  return loops === undefined ? undefined : loops.anyNotFinite(values.byteOffset, values.length) === 0;
}

/** Columns of one kind, and rows of them. */
export interface FourColumns<T extends Float32Array | Float64Array> {
  readonly a: T;
  readonly b: T;
  readonly c: T;
  readonly d: T;
  readonly from: number;
  readonly to: number;
}

/**
 * Puts rows [from, to) of four columns side by side, doubles rounded to floats: the first row's at `at`, the next one's
 * `width` after. Whether all floats are finite; undefined: nothing was done, since vectors do not reach all of it.
 * @throws RangeError where an array ends before, which no loop would notice
 */
export function packFour(
  target: Float32Array,
  at: number,
  width: number,
  four: FourColumns<Float32Array> | FourColumns<Float64Array>,
): boolean | undefined {
  const loops = memoryOf(target)?.loops;
  const { a, b, c, d, from, to } = four;
  const { buffer } = target;
  if (loops === undefined || a.buffer !== buffer || b.buffer !== buffer || c.buffer !== buffer || d.buffer !== buffer) {
    return undefined;
  }
  const rows = to - from;
  if (rows <= 0) {
    return true;
  }
  if (from < 0 || to > Math.min(a.length, b.length, c.length, d.length)) {
    throw new RangeError(`rows ${from} to ${to} of columns of ${[a, b, c, d].map(({ length }) => length).join(", ")}`);
  }
  if (at < 0 || width < 4 || at + (rows - 1) * width + 4 > target.length) {
    throw new RangeError(`${rows} rows of ${width} at ${at} of ${target.length}`);
  }
  const floatBytes = Float32Array.BYTES_PER_ELEMENT;
  const skipped = from * a.BYTES_PER_ELEMENT;
  const pack = a instanceof Float64Array ? loops.roundFour : loops.packFour;
  const bad = pack(
    target.byteOffset + at * floatBytes,
    width * floatBytes,
    a.byteOffset + skipped,
    b.byteOffset + skipped,
    c.byteOffset + skipped,
    d.byteOffset + skipped,
    rows,
  );
  return bad === 0;
}
