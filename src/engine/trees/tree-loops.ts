import { areHere, releaseMemory, loopsSharingMemory, takeMemory } from "../../columnar/memory/vectors.js";
import { Unsupported } from "./ensemble.js";
import { treeLoopsCode } from "./tree-loops-code.js";

/** The loops of `tree-loops.wat`: addresses and strides are bytes. */
export interface TreeLoops {
  readonly rankFloats: RankValues;
  readonly rankDoubles: RankValues;
  readonly rankBytes: (ranks: number, rows: number, base: number, nan: number, out: number) => void;
  readonly memberFloats: MarkMembers;
  readonly memberDoubles: MarkMembers;
  readonly scoreBlock: (tree: number, end: number, rows: number, how: number, exits: number) => void;
}

type RankValues = (x: number, stride: number, rows: number, thresholds: number, firstHalf: number, out: number) => void;
type MarkMembers = (
  x: number,
  stride: number,
  rows: number,
  members: number,
  firstHalf: number,
  nan: number,
  out: number,
) => void;

let opened: TreeLoops | undefined;

/** Trees are many small pieces. */
const chunkBytes = 1024 * 1024;
const alignedBytes = 16;

/** This thread's memory, and the loops over it. */
export interface TreeMemory extends Disposable {
  readonly loops: TreeLoops;
  /** The whole memory. */
  readonly buffer: ArrayBuffer;
  /** The address of so many bytes. @throws Unsupported where there are none left */
  take(bytes: number): number;
}

/** @throws Unsupported where this thread has no such memory */
export function openTreeMemory(): TreeMemory {
  const pieces: Uint8Array<ArrayBuffer>[] = [];
  const take = (bytes: number): Uint8Array<ArrayBuffer> => {
    const piece = takeMemory(bytes);
    if (!areHere([piece])) {
      throw new Unsupported("there is no WebAssembly memory for it");
    }
    pieces.push(piece);
    return piece;
  };
  const { buffer } = take(1); // opens the memory
  let chunk = { at: 0, end: 0 };
  opened ??= loopsSharingMemory(treeLoopsCode).loops as TreeLoops;
  return {
    loops: opened,
    buffer,
    take(bytes) {
      const size = Math.ceil(Math.max(1, bytes) / alignedBytes) * alignedBytes;
      if (size > chunk.end - chunk.at) {
        const { byteOffset: at, length } = take(Math.max(size, chunkBytes));
        chunk = { at, end: at + length };
      }
      const { at } = chunk;
      chunk = { ...chunk, at: at + size };
      return at;
    },
    [Symbol.dispose]() {
      releaseMemory(pieces.splice(0));
    },
  };
}
