import { constants } from "node:os";
import { JobError } from "../errors.js";

/** Spans in flight are finished or dropped within this time after a signal. */
const graceMs = 5000;

type StopSignal = "SIGINT" | "SIGTERM";

/**
 * An AbortSignal that ends a job between batches. SIGINT and SIGTERM abort it. A second one, or the end of the
 * grace time, ends the process at once, by the signal itself: `process.exit` would tear threads down inside the
 * model and abort with 134.
 */
export function abortOnSignals(): { signal: AbortSignal; [Symbol.dispose](): void } {
  const controller = new AbortController();
  let timer: NodeJS.Timeout | undefined;
  const onSignal = (name: StopSignal): void => {
    if (controller.signal.aborted) {
      dieBy(name);
    }
    timer = setTimeout(dieBy, graceMs, name).unref();
    controller.abort(
      new JobError(name, `stopping on ${name}: committed spans are kept`, {
        hint: "the same command again does the rest",
      }),
    );
  };
  // A bug outside every await would tear the process down in the same way: unwind instead, and end with 1.
  const onBug = (error: unknown): void => {
    process.stderr.write(`${error instanceof Error ? (error.stack ?? error.message) : String(error)}\n`);
    controller.abort(error);
    timer ??= setTimeout(() => process.kill(process.pid, "SIGKILL"), graceMs).unref();
  };
  const remove = (): void => {
    process.off("uncaughtException", onBug);
    process.off("SIGINT", onSignal);
    process.off("SIGTERM", onSignal);
  };
  const dieBy = (name: StopSignal): void => {
    remove();
    process.kill(process.pid, constants.signals[name]);
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
