/** Bytes that come once, read in pieces of any length. */
export interface ByteStream {
  /** Bytes that were read. */
  readonly at: number;
  /** The next `length` bytes, in a buffer of their own; undefined when fewer are left. */
  read(length: number): Promise<Uint8Array<ArrayBuffer> | undefined>;
  /** Whether no byte is left; waits until that is known. */
  ends(): Promise<boolean>;
}

export function byteStream(chunks: AsyncIterable<Uint8Array>): ByteStream {
  const iterator = chunks[Symbol.asyncIterator]();
  let rest: Uint8Array = new Uint8Array(0);
  let at = 0;
  /** Whether there is more. */
  const more = async (): Promise<boolean> => {
    while (rest.length === 0) {
      const next = await iterator.next();
      if (next.done === true) {
        return false;
      }
      rest = next.value;
    }
    return true;
  };
  return {
    get at() {
      return at;
    },
    async read(length) {
      // The length comes from the stream and may be wrong. Memory that is not zeroed is only used as bytes arrive.
      const bytes = new Uint8Array(Buffer.allocUnsafeSlow(length).buffer);
      for (let filled = 0; filled < length; ) {
        if (!(await more())) {
          return undefined;
        }
        const taken = rest.subarray(0, length - filled);
        bytes.set(taken, filled);
        rest = rest.subarray(taken.length);
        filled += taken.length;
        at += taken.length;
      }
      return bytes;
    },
    ends: async () => !(await more()),
  };
}
