export interface BufferPool {
  /** A buffer of exactly this many bytes; its contents mean nothing. */
  take(bytes: number): ArrayBuffer;
  release(buffers: readonly ArrayBuffer[]): void;
  /** Bytes of the buffers that are in the pool. */
  readonly idleBytes: number;
  /** Drops all released buffers. */
  clear(): void;
}

/** Released buffers are filled again, so that a run allocates only its first few. */
export function createBufferPool(): BufferPool {
  const bySize = new Map<number, ArrayBuffer[]>();
  let idleBytes = 0;
  return {
    get idleBytes() {
      return idleBytes;
    },
    take(bytes) {
      const idle = bySize.get(bytes)?.pop();
      idleBytes -= idle?.byteLength ?? 0;
      return idle ?? new ArrayBuffer(bytes);
    },
    release(buffers) {
      for (const buffer of buffers) {
        idleBytes += buffer.byteLength;
        const same = bySize.get(buffer.byteLength) ?? [];
        same.push(buffer);
        bySize.set(buffer.byteLength, same);
      }
    },
    clear() {
      idleBytes = 0;
      bySize.clear();
    },
  };
}
