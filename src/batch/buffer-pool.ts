export interface BufferPool {
  /** A buffer of exactly this many bytes; its contents mean nothing. */
  take(bytes: number): ArrayBuffer;
  giveBack(buffers: readonly ArrayBuffer[]): void;
  /** Lets go of all that came back. */
  clear(): void;
}

/** Buffers that come back are filled again, so that a run allocates only its first few. */
export function createBufferPool(): BufferPool {
  const bySize = new Map<number, ArrayBuffer[]>();
  return {
    take: (bytes) => bySize.get(bytes)?.pop() ?? new ArrayBuffer(bytes),
    giveBack(buffers) {
      for (const buffer of buffers) {
        const same = bySize.get(buffer.byteLength) ?? [];
        same.push(buffer);
        bySize.set(buffer.byteLength, same);
      }
    },
    clear() {
      bySize.clear();
    },
  };
}
