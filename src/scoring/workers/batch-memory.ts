import { releaseMemory, takeMemory } from "../../columnar/memory/vectors.js";
import { bytesPerElement, type Values, viewOf } from "../../columnar/values.js";
import type { TakeValues } from "../../packing/direct.js";
import type { BatchMemory } from "./batch-transfer.js";

/** Sizes are rounded up, so that released buffers fit again. */
const roundedBytes = 4096;

function roundUp(bytes: number): number {
  return Math.ceil(bytes / roundedBytes) * roundedBytes;
}

export interface PooledBatchMemory extends BatchMemory {
  /** The buffers that were allocated for the batch and were not sent. */
  left(sent: readonly ArrayBuffer[]): ArrayBuffer[];
  /** Forgets the buffers of the batch before. */
  clear(): void;
}

/** Takes memory from a pool, and remembers what it took for one batch. */
export function pooledBatchMemory(takeBuffer: (bytes: number) => ArrayBuffer): PooledBatchMemory {
  const made = new Map<Values, ArrayBuffer>();
  return {
    take(element, length) {
      const bytes = length * bytesPerElement(element);
      const buffer = takeBuffer(roundUp(bytes));
      const values = viewOf(element, buffer, 0, length);
      made.set(values, buffer);
      return values;
    },
    isOwn: (values) => made.has(values),
    left: (sent) => [...made.values()].filter((buffer) => !sent.includes(buffer)),
    clear() {
      made.clear();
    },
  };
}

/** Memory for arrays that are not sent to another thread, or are sent as copies. */
export function matrixMemory(): { readonly take: TakeValues; clear(): void } {
  const pieces: Uint8Array<ArrayBuffer>[] = [];
  return {
    take(element, length) {
      const piece = takeMemory(length * bytesPerElement(element));
      pieces.push(piece);
      return viewOf(element, piece.buffer, piece.byteOffset, length);
    },
    clear() {
      releaseMemory(pieces.splice(0));
    },
  };
}
