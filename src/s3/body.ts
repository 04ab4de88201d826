import type { Readable } from "node:stream";
import { BrokenTransfer } from "./failures.js";
import type { Watch } from "./watch.js";

/**
 * Reads a small body through. Bodies of the SDK can hang when a connection is lost: it is torn down when the watch says
 * so, and its bytes are counted.
 * @throws BrokenTransfer when it has fewer or more bytes
 */
export async function readBody(
  body: Readable,
  { expectedBytes, watch }: { expectedBytes: number; watch: Watch },
): Promise<Buffer> {
  const tearDown = (): void => {
    body.destroy(watch.signal.reason instanceof Error ? watch.signal.reason : undefined);
  };
  watch.signal.addEventListener("abort", tearDown, { once: true });
  const pieces: Uint8Array[] = [];
  let seen = 0;
  try {
    if (watch.signal.aborted) {
      tearDown();
    }
    for await (const piece of body as AsyncIterable<Uint8Array>) {
      watch.heard();
      seen += piece.length;
      if (seen > expectedBytes) {
        break;
      }
      pieces.push(piece);
    }
  } finally {
    watch.signal.removeEventListener("abort", tearDown);
  }
  if (seen !== expectedBytes) {
    throw new BrokenTransfer(`a body of ${expectedBytes} bytes ended after ${seen}`);
  }
  return Buffer.concat(pieces);
}
