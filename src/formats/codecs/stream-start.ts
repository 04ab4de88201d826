import type { Transform } from "node:stream";

/** Fills `target` with the first bytes that a decompressor makes of `packed`; returns how many there were. */
export async function streamStart(stream: Transform, packed: Uint8Array, target: Uint8Array): Promise<number> {
  let filled = 0;
  stream.end(packed);
  for await (const chunk of stream as AsyncIterable<Buffer>) {
    const part = chunk.subarray(0, target.length - filled);
    target.set(part, filled);
    filled += part.length;
    if (filled === target.length) {
      break; // which ends the stream
    }
  }
  return filled;
}
