import { type CommandLine, paramFlag, quietFlag, logFlags } from "../flags.js";
import { count } from "../../base/shown-numbers.js";
import { open } from "node:fs/promises";
import { dirname, resolve } from "node:path";
import { attemptServices } from "../../job/attempt.js";
import { budgetOf, recordOf } from "../../job/open.js";
import { usableCores } from "../../job/machine.js";
import { modelTools } from "../../job/model-tools.js";
import { fileError, type JobOptions, readSpec } from "../../job/reading.js";
import type { RejectedRow } from "../../columns/types.js";
import { openArrowDecoder } from "../../formats/arrow/decoder.js";
import { openArrowPipe } from "../../formats/arrow/pipe.js";
import { silentProgress } from "../../report/progress.js";
import { summarizeRejects } from "../../report/rejects-text.js";
import { pipeText } from "../../report/report.js";
import type { Log } from "../../flow/opened-job.js";
import { type OpenedPipe, runPipe } from "../../run/pipe.js";
import { openArrowStream } from "../../targets/stream.js";
import { pipeName } from "../../job/jobfile/load.js";
import { hasBudget } from "../../job/jobfile/prompt-spec.js";
import { errnoOf, JobError } from "../../base/errors.js";
import { sha256Of } from "../../base/sha256.js";
import { runIdOf } from "../../run/plan/identity.js";
import { abortOnSignals } from "../failure.js";
import type { SafeIo } from "../io.js";
import { createLog, type LogOptions } from "../logger.js";

export const pipeCommand: CommandLine = {
  flags: {
    ...paramFlag,
    "--rejects <file>": "File for rows that cannot be scored, one line of JSON each",
    ...quietFlag,
    ...logFlags,
  },
  examples: ["cat rows.arrows | infer-batch pipe job.yaml > predictions.arrows"],
  run: pipe,
};

interface PipeOptions extends JobOptions, LogOptions {
  readonly rejects?: string;
}

async function pipe(spec: string, options: PipeOptions, io: SafeIo): Promise<void> {
  const { stderr } = io;
  using stop = abortOnSignals(io, options, {
    kept: "what was written so far has no end-of-stream marker",
    hint: "run the same command over the same input again",
  });
  using stdio = openStdio(stop.signal);
  const log = createLog(stderr, options);
  const rejected = summarizeRejects();
  try {
    await using file = options.rejects === undefined ? undefined : await openRejectsFile(options.rejects);
    const onRejected = async (rows: readonly RejectedRow[]): Promise<void> => {
      for (const row of rows) {
        rejected.add(row);
      }
      await (rows.length === 0 ? undefined : file?.write(rows));
    };
    log.info(pipeText(await runPipe(await openPipe(spec, options, { stdio, log, onRejected }))));
  } catch (error) {
    if (error !== readerLeft) {
      throw error;
    }
    log.info("the reader of stdout closed it: scoring stops");
  } finally {
    if (rejected.rows > 0) {
      log.warn([`${count(rejected.rows, "row")} rejected`, ...rejected.lines()].join("\n"));
    }
  }
}

/** The abort reason when the reader of stdout has closed it early. That is not an error. */
const readerLeft: unique symbol = Symbol("the reader of stdout has left");

const noBytes = new Uint8Array(0);

function openStdio(stop: AbortSignal): Stdio {
  const { stdin, stdout } = process;
  if (stdin.isTTY || stdout.isTTY) {
    throw new JobError(
      "USAGE",
      `opening ${stdin.isTTY ? "stdin" : "stdout"}: it is a terminal, expected an Arrow stream`,
      {
        hint: "such as infer-batch pipe job.yaml < in.arrows > out.arrows",
      },
    );
  }
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
    if (errnoOf(error) === "EPIPE") {
      failed.abort(readerLeft);
      return;
    }
    failed.abort(
      new JobError("DISK", `writing to stdout: ${errnoOf(error) ?? String(error)}`, {
        hint: "what was written so far has no end-of-stream marker; run the same command again",
        cause: error,
      }),
    );
  };
  stdout.removeAllListeners("error"); // main.ts reports stdout errors as a lost report
  stdout.on("error", fail);
  stdin.on("error", () => undefined); // the reader of `chunks` gets the error too
  return {
    chunks: stdin,
    close,
    signal,
    write: (chunks) => writeAll(chunks, signal, fail),
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

function writeAll(chunks: readonly Uint8Array[], signal: AbortSignal, fail: (error: unknown) => void): Promise<void> {
  const { stdout } = process;
  return new Promise((written, reject) => {
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
        written();
      } else {
        fail(error);
        reject(error);
      }
    });
    stdout.uncork();
  });
}

/** A line of JSON for each row. */
async function openRejectsFile(
  path: string,
): Promise<AsyncDisposable & { readonly write: (rows: readonly RejectedRow[]) => Promise<void> }> {
  const orFail = async <T>(work: Promise<T>): Promise<T> =>
    await work.catch((error: unknown) => {
      throw fileError(`writing rejected rows to ${path}`, error, "--rejects names a file that this user can write");
    });
  const file = await orFail(open(path, "w"));
  return {
    write: (rows) => orFail(file.appendFile(rows.map((row) => `${JSON.stringify(row)}\n`).join(""))),
    [Symbol.asyncDispose]: () => file.close(),
  };
}

interface Stdio extends Disposable {
  readonly chunks: AsyncIterable<Uint8Array>;
  /** Stops reading: `chunks` ends. */
  readonly close: () => void;
  /** Resolves when the system has accepted all chunks. */
  readonly write: (chunks: readonly Uint8Array[]) => Promise<void>;
  /** Aborted with the given signal, or when stdout cannot be written; ends waiting for either end. */
  readonly signal: AbortSignal;
}

interface PipeParts {
  readonly log: Log;
  readonly onRejected: OpenedPipe["onRejected"];
  readonly stdio: Stdio;
}

/** Reads a spec and connects its model to a pipe. @public so that tests reach it */
export async function openPipe(
  specPath: string,
  options: JobOptions,
  { stdio, log, onRejected }: PipeParts,
): Promise<OpenedPipe> {
  const { spec, where } = await readSpec(specPath, options, { pipe: true });
  if (hasBudget(spec.model)) {
    const message = "a pipe stores no answers, and cannot hold its runs to a budget: use run, or leave it out";
    throw new JobError("SPEC_INVALID", `reading ${where(["model", "budget"])}: ${message}`);
  }
  const { signal, chunks, close } = stdio;
  const folder = dirname(resolve(specPath));
  const cores = usableCores();
  const worker = { index: 0, count: 1 };
  const services = attemptServices(spec, log, signal);
  const memory = budgetOf(spec, cores);
  const input = openArrowPipe({ name: pipeName, chunks, close, memory });
  return {
    job: { spec, where },
    runId: runIdOf(spec.name, spec.params, sha256Of),
    input,
    output: openArrowStream(stdio.write),
    openDecoder: () => Promise.resolve(openArrowDecoder({ timezone: spec.timezone, memory, open: input.open })),
    models: modelTools(spec, { ...services, folder, where, worker, cores, log }),
    memory,
    nowMs: () => performance.now(),
    dateMs: () => Date.now(),
    reporter: { log, progress: silentProgress, record: recordOf(spec, { worker }) },
    onRejected,
    signal,
  };
}
