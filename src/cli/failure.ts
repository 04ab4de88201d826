import { closeSync, constants as fileConstants, fstatSync, ftruncateSync, openSync, writeSync } from "node:fs";
import { constants } from "node:os";
import type { CommanderError } from "commander";
import { finalError } from "../job/machine.js";
import { isInputFile } from "../formats/by-format.js";
import { type ExitCode, JobError, exitCodeOf } from "../base/errors.js";
import { type Io, type SafeIo, safeOutput, writeNotice } from "./io.js";
import { printableLines, shellWord } from "../base/texts.js";

/** Options of a command that decide how its errors are written. */
export interface OutputOptions {
  readonly quiet?: boolean;
  readonly logFormat?: "pretty" | "json";
}

/** Writes an error to stderr, for people or as a JSON log line. Returns its exit code. */
export function failWith(thrown: unknown, { logFormat, quiet }: OutputOptions, io: Pick<Io, "stderr">): ExitCode {
  const stderr = safeOutput(io.stderr);
  const error = finalError(thrown);
  const known = error instanceof JobError ? error : undefined;
  const bug = `error: this is a bug in infer-batch; committed spans are kept\n${stackText(error)}\n`;
  const text = known === undefined ? bug : `error: ${known.message}\n`;
  const hint = known?.hint === undefined ? "" : `  hint: ${known.hint}\n`;
  writeTerminationMessage(text, hint);
  if (logFormat === "json") {
    const line = {
      level: "error",
      time: new Date().toISOString(),
      code: known?.code ?? "BUG",
      hint: known?.hint,
      exit_code: exitCodeOf(error),
      msg: known?.message ?? bug,
    };
    stderr.write(`${JSON.stringify(line)}\n`);
  } else {
    // Cron mails all output: a late input is one line. No output at all would mean success.
    writeNotice(stderr, quiet === true && known?.code === "INPUT_NOT_READY" ? text : `${text}${hint}`);
  }
  return exitCodeOf(error);
}

/** The exit code of a usage error or of a request for help; commander has already written the message. */
export function usageExit({ code, exitCode, message }: CommanderError): ExitCode {
  if (exitCode === 0) {
    return 0;
  }
  writeTerminationMessage(code === "commander.help" ? "error: there is no command\n" : `${message}\n`);
  return 64;
}

function stackText(error: unknown): string {
  if (!(error instanceof Error)) {
    return String(error);
  }
  const stack = error.stack ?? error.message;
  return error.cause === undefined ? stack : `${stack}\ncaused by ${stackText(error.cause)}`;
}

/** Kubernetes' default `terminationMessagePath`. */
const defaultPath = "/dev/termination-log";
/** The most that Kubernetes keeps of a termination message. */
const maxBytes = 4096;

/**
 * Writes the termination message that Kubernetes shows (`kubectl describe pod`), if its file exists.
 * `INFER_BATCH_TERMINATION_LOG` names another file, which is created when it is missing. `tail` is kept whole; `text` is
 * cut to what fits.
 * @public so that tests reach it
 */
export function writeTerminationMessage(
  text: string,
  tail = "",
  named = process.env["INFER_BATCH_TERMINATION_LOG"],
): void {
  const { O_WRONLY, O_NOFOLLOW, O_NONBLOCK, O_CREAT } = fileConstants;
  const shownTail = firstBytes(printableLines(tail), maxBytes);
  try {
    // The default file is created by Kubernetes only. O_NONBLOCK: opening a FIFO must not wait for a reader.
    const flags = O_WRONLY | O_NOFOLLOW | O_NONBLOCK;
    const file = named === undefined ? openSync(defaultPath, flags) : openSync(named, flags | O_CREAT);
    try {
      if (fstatSync(file).isFile()) {
        ftruncateSync(file);
        writeSync(file, `${firstBytes(printableLines(text), maxBytes - Buffer.byteLength(shownTail))}${shownTail}`);
      }
    } finally {
      closeSync(file);
    }
  } catch {
    // Not in such a container, or not writable: stderr has the message.
  }
}

/** The longest start of a text, in whole characters, that has at most `count` bytes. */
function firstBytes(text: string, count: number): string {
  const bytes = Buffer.from(text);
  // With `stream`, the decoder leaves out an incomplete character at the end.
  return bytes.length <= count ? text : new TextDecoder().decode(bytes.subarray(0, count), { stream: true });
}

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
  stopMs = graceMs,
): { signal: AbortSignal; [Symbol.dispose](): void } {
  const controller = new AbortController();
  let timer: NodeJS.Timeout | undefined;
  const onSignal = (name: StopSignal): void => {
    if (controller.signal.aborted) {
      dieBy(name, `stopping at once on a second ${name}`);
    }
    timer = setTimeout(dieBy, stopMs, name, `stopping on ${name}: it took more than ${stopMs / 1000} s`).unref();
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
  const dieBy = (name: StopSignal, why: string): void => {
    remove();
    failWith(new JobError(name, `${why}; ${kept}`, { hint }), options, { stderr: stderr.raw });
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

/** What to do about an argument too many in a command line, as a line of stderr; "": nothing is known. */
export function usageHint(args: readonly string[]): string {
  if (args[0] === "init" && args.some((arg, index) => isInputFile(arg) && args[index - 1] !== "--input")) {
    return `(${quoteThePattern})\n`;
  }
  const index = args.findIndex((arg, at) => arg === "--param" && args[at + 1]?.includes("=") === false);
  const [name, value] = index === -1 ? [] : args.slice(index + 1);
  return name === undefined || value === undefined ? "" : `(write --param ${shellWord(`${name}=${value}`)})\n`;
}

/** What to do where a shell has put the names of files in place of a pattern. */
export const quoteThePattern = "put the pattern of --input in quotes: --input 'data/*.parquet'";
