import { constants } from "node:os";
import { JobError } from "../util/errors.js";
import { failWith, type OutputOptions } from "./failure.js";
import type { SafeIo } from "./io.js";

/** After a signal, spans in flight must be committed or dropped within this time. */
const graceMs = 5000;

const stopSignals = ["SIGINT", "SIGTERM"] as const;
type StopSignal = (typeof stopSignals)[number];

/**
 * Makes SIGINT and SIGTERM end the process when it is the first of a container: the kernel drops signals that such a
 * process does not handle. A handler of `abortOnSignals` takes precedence.
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

/** What a message says about a stop. */
interface StopText {
  readonly kept: string;
  readonly hint: string;
}

const runText: StopText = { kept: "committed spans are kept", hint: "run the same command again to score the rest" };

/**
 * Makes an AbortSignal that SIGINT and SIGTERM abort, to stop a job between batches. A second signal, or the end of the
 * grace time, kills the process by the signal itself, after a message: `process.exit` would tear threads down inside
 * the model, which aborts with 134.
 */
export function abortOnSignals(
  { stderr }: Pick<SafeIo, "stderr">,
  options: OutputOptions,
  { kept, hint }: StopText = runText,
): { signal: AbortSignal; [Symbol.dispose](): void } {
  const controller = new AbortController();
  let timer: NodeJS.Timeout | undefined;
  const onSignal = (name: StopSignal): void => {
    if (controller.signal.aborted) {
      dieBy(name, `stopping at once on a second ${name}`);
    }
    timer = setTimeout(dieBy, graceMs, name, `stopping on ${name}: it took more than ${graceMs / 1000} s`).unref();
    controller.abort(new JobError(name, `stopping on ${name}: ${kept}`, { hint }));
  };
  // An uncaught exception would tear the process down in the same way: stop the job instead, and exit with 1.
  const onBug = (error: unknown): void => {
    stderr.write(`${error instanceof Error ? (error.stack ?? error.message) : String(error)}\n`);
    controller.abort(error);
    timer ??= setTimeout(killSelf, graceMs, "SIGKILL").unref();
  };
  const remove = (): void => {
    process.off("uncaughtException", onBug);
    process.off("SIGINT", onSignal);
    process.off("SIGTERM", onSignal);
  };
  const dieBy = (name: StopSignal, found: string): void => {
    remove();
    failWith(new JobError(name, `${found}; ${kept}`, { hint }), options, { stderr: stderr.raw });
    killSelf(name);
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

function killSelf(name: StopSignal | "SIGKILL"): void {
  process.kill(process.pid, name);
  // The first process of a container does not get its own signal. It exits instead: that may abort inside the model, but
  // the process does not linger until it is killed from outside.
  setTimeout(() => process.exit(128 + constants.signals[name]), 100);
}
