import { constants } from "node:os";
import { JobError } from "../util/errors.js";
import type { SafeOutput } from "./io.js";

/** Spans in flight are finished or dropped within this time after a signal. */
const graceMs = 5000;

const stopSignals = ["SIGINT", "SIGTERM"] as const;
type StopSignal = (typeof stopSignals)[number];

/**
 * Lets SIGINT and SIGTERM end the first process of a container, as they end any other: the kernel drops a signal that
 * this process does not handle. A command that handles them itself, by `abortOnSignals`, comes first.
 */
export function endOnSignalsAsFirstProcess(): void {
  if (process.pid !== 1) {
    return;
  }
  for (const name of stopSignals) {
    process.on(name, () => {
      if (process.listenerCount(name) === 1) {
        process.exit(128 + constants.signals[name]);
      }
    });
  }
}

/** What a stop leaves behind, and what to do then. */
interface StopText {
  readonly kept: string;
  readonly hint: string;
}

const runText: StopText = { kept: "committed spans are kept", hint: "the same command again does the rest" };

/**
 * An AbortSignal that ends a job between batches. SIGINT and SIGTERM abort it. A second one, or the end of the
 * grace time, ends the process at once, by the signal itself: `process.exit` would tear threads down inside the
 * model and abort with 134.
 */
export function abortOnSignals(
  stderr: SafeOutput,
  { kept, hint }: StopText = runText,
): { signal: AbortSignal; [Symbol.dispose](): void } {
  const controller = new AbortController();
  let timer: NodeJS.Timeout | undefined;
  const onSignal = (name: StopSignal): void => {
    if (controller.signal.aborted) {
      dieBy(name);
    }
    timer = setTimeout(dieBy, graceMs, name).unref();
    controller.abort(new JobError(name, `stopping on ${name}: ${kept}`, { hint }));
  };
  // A bug outside every await would tear the process down in the same way: unwind instead, and end with 1.
  const onBug = (error: unknown): void => {
    stderr.write(`${error instanceof Error ? (error.stack ?? error.message) : String(error)}\n`);
    controller.abort(error);
    timer ??= setTimeout(endNow, graceMs, "SIGKILL").unref();
  };
  const remove = (): void => {
    process.off("uncaughtException", onBug);
    process.off("SIGINT", onSignal);
    process.off("SIGTERM", onSignal);
  };
  const dieBy = (name: StopSignal): void => {
    remove();
    endNow(name);
  };
  process.on("SIGINT", onSignal);
  process.on("SIGTERM", onSignal);
  process.on("uncaughtException", onBug);
  return {
    signal: controller.signal,
    [Symbol.dispose]() {
      clearTimeout(timer);
      remove();
    },
  };
}

/** Ends the process by a signal of its own. */
function endNow(name: StopSignal | "SIGKILL"): void {
  process.kill(process.pid, name);
  // Still here: as the first process of a container it gets no signal of its own. It may abort inside the model then,
  // but it does not stay until somebody kills it from outside.
  setTimeout(() => process.exit(128 + constants.signals[name]), 100);
}
