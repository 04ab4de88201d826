import { BrokenTransfer } from "./http-failures.js";

const usualSilenceMs = 30_000;

/** Ends a request in which the server is silent for too long. */
export interface SilenceTimeout extends Disposable {
  readonly signal: AbortSignal;
  readonly reset: () => void;
}

/** @param signal stops the request too */
export function startSilenceTimeout({
  signal,
  silenceMs = usualSilenceMs,
}: {
  readonly signal: AbortSignal;
  readonly silenceMs?: number | undefined;
}): SilenceTimeout {
  const controller = new AbortController();
  // While something blocks the thread, received bytes wait unread: they are read before this decides that there were none.
  let pending: NodeJS.Immediate | undefined;
  const timer = setTimeout(() => {
    pending = setImmediate(() => {
      controller.abort(new BrokenTransfer(`the server was silent for ${silenceMs / 1000} s`));
    });
  }, silenceMs);
  const stop = (): void => {
    controller.abort(signal.reason);
  };
  signal.addEventListener("abort", stop, { once: true });
  if (signal.aborted) {
    stop();
  }
  return {
    signal: controller.signal,
    reset() {
      clearImmediate(pending);
      timer.refresh();
    },
    [Symbol.dispose]() {
      clearTimeout(timer);
      clearImmediate(pending);
      signal.removeEventListener("abort", stop);
      controller.abort(); // closes a response whose body was not read to its end
    },
  };
}
