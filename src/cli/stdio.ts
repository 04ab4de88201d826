import { errnoOf, JobError } from "../util/errors.js";
import type { Stdio } from "../app/pipe-context.js";

/** What a reader of stdout that stops before all came ends a pipe with: it has what it wanted. */
export const readerLeft: unique symbol = Symbol("the reader of stdout has left");

const nothing = new Uint8Array(0);

/** @throws JobError USAGE where either is a terminal */
export function openStdio(stop: AbortSignal): Stdio {
  const { stdin, stdout } = process;
  refuseTerminals(stdin.isTTY, stdout.isTTY);
  const failed = new AbortController();
  const signal = AbortSignal.any([stop, failed.signal]);
  const close = (): void => {
    stdin.destroy();
  };
  const onAbort = (): void => {
    close();
    stdout.destroy();
  };
  signal.addEventListener("abort", onAbort);
  const fail = (error: unknown): void => {
    failed.abort(errnoOf(error) === "EPIPE" ? readerLeft : unwritable(error));
  };
  stdout.removeAllListeners("error"); // the program's own says that only a report is lost
  stdout.on("error", fail);
  stdin.on("error", () => undefined); // whoever reads meets it
  return {
    chunks: stdin,
    close,
    signal,
    write: (chunks) => writeAll(chunks, { signal, fail }),
    [Symbol.dispose]() {
      signal.removeEventListener("abort", onAbort);
      close();
      if (signal.aborted && stdout.writableLength > 0) {
        // A write that the reader holds up keeps the process. No model is at work any more: it may end, when its exit
        // code is set.
        setImmediate(() => process.exit());
      }
    },
  };
}

function writeAll(
  chunks: readonly Uint8Array[],
  { signal, fail }: { signal: AbortSignal; fail: (error: unknown) => void },
): Promise<void> {
  const { stdout } = process;
  return new Promise((resolve, reject) => {
    const stopped = (): void => {
      reject(signal.reason as Error); // a write that the reader holds up does not end by itself
    };
    signal.addEventListener("abort", stopped, { once: true });
    stdout.cork();
    for (const chunk of chunks) {
      stdout.write(chunk);
    }
    stdout.write(nothing, (error) => {
      signal.removeEventListener("abort", stopped);
      if (error === null || error === undefined) {
        resolve();
      } else {
        fail(error);
        reject(error);
      }
    });
    stdout.uncork();
  });
}

function refuseTerminals(stdin: boolean, stdout: boolean): void {
  if (stdin || stdout) {
    const found = stdin ? "opening stdin: it is a terminal" : "opening stdout: it is a terminal";
    throw new JobError("USAGE", `${found}, where an Arrow stream is due`, {
      hint: "such as infer-batch pipe job.yaml < in.arrows > out.arrows",
    });
  }
}

function unwritable(error: unknown): JobError {
  return new JobError("DISK", `writing to stdout: ${errnoOf(error) ?? String(error)}`, {
    hint: "what was written so far has no end-of-stream marker; run it again",
    cause: error,
  });
}
