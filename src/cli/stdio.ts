import { errnoOf, JobError } from "../util/errors.js";
import type { Stdio } from "../app/pipe-context.js";

/** The abort reason when the reader of stdout has closed it early. That is not an error. */
export const readerLeft: unique symbol = Symbol("the reader of stdout has left");

const noBytes = new Uint8Array(0);

/** Opens stdin and stdout of a pipe. @throws JobError USAGE when either is a terminal */
export function openStdio(stop: AbortSignal): Stdio {
  const { stdin, stdout } = process;
  checkNoTerminal(stdin.isTTY, stdout.isTTY);
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
    failed.abort(errnoOf(error) === "EPIPE" ? readerLeft : writeError(error));
  };
  stdout.removeAllListeners("error"); // main.ts reports stdout errors as a lost report
  stdout.on("error", fail);
  stdin.on("error", () => undefined); // the reader of `chunks` gets the error too
  return {
    chunks: stdin,
    close,
    signal,
    write: (chunks) => writeAll(chunks, { signal, fail }),
    [Symbol.dispose]() {
      signal.removeEventListener("abort", onAbort);
      close();
      if (signal.aborted && stdout.writableLength > 0) {
        // A pending write would keep the process alive. Models no longer run, so the process may exit once its exit code
        // is set.
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
      reject(signal.reason as Error); // a write that the reader blocks does not end by itself
    };
    signal.addEventListener("abort", stopped, { once: true });
    stdout.cork();
    for (const chunk of chunks) {
      stdout.write(chunk);
    }
    stdout.write(noBytes, (error) => {
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

function checkNoTerminal(stdin: boolean, stdout: boolean): void {
  if (stdin || stdout) {
    const found = stdin ? "opening stdin: it is a terminal" : "opening stdout: it is a terminal";
    throw new JobError("USAGE", `${found}, expected an Arrow stream`, {
      hint: "such as infer-batch pipe job.yaml < in.arrows > out.arrows",
    });
  }
}

function writeError(error: unknown): JobError {
  return new JobError("DISK", `writing to stdout: ${errnoOf(error) ?? String(error)}`, {
    hint: "what was written so far has no end-of-stream marker; run the same command again",
    cause: error,
  });
}
