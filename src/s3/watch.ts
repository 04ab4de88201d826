import { setMaxListeners } from "node:events";
import { BrokenTransfer } from "./failures.js";
import type { S3Timeouts } from "./client.js";

/** A timer for each of a request's silences, and one for all of it. */
export interface Watch extends Disposable {
  /** Aborted when the store fell silent, when the request took too long, or when the job is stopped. */
  readonly signal: AbortSignal;
  /** A byte came. */
  readonly heard: () => void;
}

/** `stops`: signals that end the request. Not joined by `AbortSignal.any`, which keeps each result in Node 20. */
export function watchRequest({ silenceMs, requestMs }: S3Timeouts, stops: readonly AbortSignal[]): Watch {
  const own = new AbortController();
  const stop = (): void => {
    own.abort(stops.find(({ aborted }) => aborted)?.reason);
  };
  const giveUp = (what: string): void => {
    own.abort(new BrokenTransfer(what));
  };
  // While a slow disk takes what another request has brought, nobody listens: first hear what has come meanwhile.
  let due: NodeJS.Immediate | undefined;
  const silent = (): void => {
    due = setImmediate(giveUp, `the store was silent for ${silenceMs / 1000} s`);
  };
  const silence = setTimeout(silent, silenceMs);
  const whole = setTimeout(giveUp, requestMs, `a request took more than ${requestMs / 1000} s`);
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
      clearImmediate(due);
      silence.refresh();
    },
    [Symbol.dispose]() {
      clearTimeout(silence);
      clearImmediate(due);
      clearTimeout(whole);
      for (const signal of stops) {
        signal.removeEventListener("abort", stop);
      }
    },
  };
}
