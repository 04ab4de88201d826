import { setMaxListeners } from "node:events";
import type { Readable } from "node:stream";
import { BrokenTransfer } from "./failures.js";
import type { S3Timeouts } from "./client.js";

/** Bytes that are handed on together: what a socket gives is small. */
const handedBytes = 512 * 1024;

/** A timer for each of a request's silences, and one for all of it. */
export interface Watch extends Disposable {
  /** Aborted when the store fell silent, when the request took too long, or when the job is stopped. */
  readonly signal: AbortSignal;
  /** A byte came. */
  heard(): void;
}

/** `stops`: signals that end the request. Not joined by `AbortSignal.any`, which keeps each result in Node 20. */
export function watchRequest({ silenceMs, requestMs }: S3Timeouts, stops: readonly AbortSignal[]): Watch {
  const own = new AbortController();
  const stop = (): void => {
    own.abort(stops.find(({ aborted }) => aborted)?.reason);
  };
  const giveUp = (what: string) => (): void => {
    own.abort(new BrokenTransfer(what));
  };
  let silence = setTimeout(giveUp(`the store was silent for ${silenceMs / 1000} s`), silenceMs);
  const whole = setTimeout(giveUp(`a request took more than ${requestMs / 1000} s`), requestMs);
  setMaxListeners(0, ...stops); // many requests at once are no leak, of which Node would warn the user
  for (const signal of stops) {
    signal.addEventListener("abort", stop, { once: true });
  }
  if (stops.some(({ aborted }) => aborted)) {
    stop();
  }
  return {
    signal: own.signal,
    heard() {
      silence = silence.refresh();
    },
    [Symbol.dispose]() {
      clearTimeout(silence);
      clearTimeout(whole);
      for (const signal of stops) {
        signal.removeEventListener("abort", stop);
      }
    },
  };
}

/**
 * Reads a body through, in pieces. Bodies of the SDK can hang when a connection is lost: it is torn down when the
 * watch says so, and its bytes are counted.
 * @throws BrokenTransfer when it has fewer or more bytes
 */
export async function readBody(
  body: Readable,
  { expectedBytes, watch }: { expectedBytes: number; watch: Watch },
  take: (pieces: readonly Uint8Array[]) => Promise<void>,
): Promise<void> {
  const tearDown = (): void => {
    body.destroy(watch.signal.reason instanceof Error ? watch.signal.reason : undefined);
  };
  watch.signal.addEventListener("abort", tearDown, { once: true });
  let seen = 0;
  let pieces: Uint8Array[] = [];
  let held = 0;
  const handOn = async (): Promise<void> => {
    const now = pieces;
    pieces = [];
    held = 0;
    await take(now);
  };
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
      held += piece.length;
      if (held >= handedBytes) {
        await handOn();
        watch.heard(); // a slow disk is not the store's silence
      }
    }
  } finally {
    watch.signal.removeEventListener("abort", tearDown);
    if (pieces.length > 0 && seen <= expectedBytes) {
      await handOn(); // of a body that broke off, too: the next try goes on from there
    }
  }
  if (seen !== expectedBytes) {
    throw new BrokenTransfer(`a body of ${expectedBytes} bytes ended after ${seen}`);
  }
}
