import type { Readable } from "node:stream";
import { BrokenTransfer } from "../net/http-failures.js";
import type { Watchdog } from "./watchdog.js";

/**
 * Reads a short response body to its end. A body stream of the SDK can hang after its connection is lost: the
 * watchdog's signal destroys it, and its bytes are counted.
 * @throws BrokenTransfer when the body has fewer or more than `expectedBytes`
 */
export async function readBody(
  body: Readable,
  { expectedBytes, watchdog }: { expectedBytes: number; watchdog: Watchdog },
): Promise<Buffer> {
  const tearDown = (): void => {
    body.destroy(watchdog.signal.reason instanceof Error ? watchdog.signal.reason : undefined);
  };
  watchdog.signal.addEventListener("abort", tearDown, { once: true });
  const chunks: Uint8Array[] = [];
  let receivedBytes = 0;
  try {
    if (watchdog.signal.aborted) {
      tearDown();
    }
    for await (const chunk of body as AsyncIterable<Uint8Array>) {
      watchdog.reset();
      receivedBytes += chunk.length;
      if (receivedBytes > expectedBytes) {
        break;
      }
      chunks.push(chunk);
    }
  } finally {
    watchdog.signal.removeEventListener("abort", tearDown);
  }
  if (receivedBytes !== expectedBytes) {
    throw new BrokenTransfer(`a body of ${expectedBytes} bytes ended after ${receivedBytes}`);
  }
  return Buffer.concat(chunks);
}
