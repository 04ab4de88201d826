/** Allocates pieces of a buffer. */
export interface MemoryPieces {
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
