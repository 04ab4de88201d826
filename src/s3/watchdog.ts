import { setMaxListeners } from "node:events";
import { BrokenTransfer } from "../net/http-failures.js";
import type { S3Timeouts } from "./client.js";

/** Times one request: its longest silence, and the whole of it. */
export interface Watchdog extends Disposable {
  /** Aborted when the store was silent for too long, the request took too long, or the job was stopped. */
  readonly signal: AbortSignal;
  /** Restarts the silence timer; called for each chunk that is sent or received. */
  readonly reset: () => void;
}

/** Starts the timers of a request that any of `stops` ends. `AbortSignal.any` is not used: Node 20 never frees its results. */
export function startWatchdog({ silenceMs, requestMs }: S3Timeouts, stops: readonly AbortSignal[]): Watchdog {
  const controller = new AbortController();
  const stop = (): void => {
    controller.abort(stops.find(({ aborted }) => aborted)?.reason);
  };
  const fail = (found: string): void => {
    controller.abort(new BrokenTransfer(found));
  };
  // While a slow disk blocks the thread, received bytes wait unread: read them before deciding that there were none.
  let pending: NodeJS.Immediate | undefined;
  const onSilence = (): void => {
    pending = setImmediate(fail, `the store was silent for ${silenceMs / 1000} s`);
  };
  const silence = setTimeout(onSilence, silenceMs);
  const total = setTimeout(fail, requestMs, `a request took more than ${requestMs / 1000} s`);
  setMaxListeners(0, ...stops); // else Node warns of a leak when many requests are in flight
  for (const signal of stops) {
    signal.addEventListener("abort", stop, { once: true });
  }
  if (stops.some(({ aborted }) => aborted)) {
    stop();
  }
  return {
    signal: controller.signal,
    reset() {
      clearImmediate(pending);
      silence.refresh();
    },
    [Symbol.dispose]() {
      clearTimeout(silence);
      clearImmediate(pending);
      clearTimeout(total);
      for (const signal of stops) {
        signal.removeEventListener("abort", stop);
      }
    },
  };
}
