import type { CommanderError } from "commander";
import { type ExitCode, exitCodeOf, JobError } from "../util/errors.js";
import { writeMessage } from "./colors.js";
import { type Io, safeOutput } from "./io.js";
import { finalError } from "../app/machine-errors.js";
import { writeTerminationMessage } from "./termination-log.js";

/** Options of a command that decide how its errors are written. */
export interface OutputOptions {
  readonly quiet?: boolean;
  readonly logFormat?: "pretty" | "json";
}

/** Writes an error to stderr, for people or as a JSON log line. Returns its exit code. */
export function failWith(thrown: unknown, { logFormat, quiet }: OutputOptions, io: Pick<Io, "stderr">): ExitCode {
  const stderr = safeOutput(io.stderr);
  const error = finalError(thrown);
  const { text, hint } = error instanceof JobError ? jobErrorText(error) : { text: bugText(error), hint: "" };
  writeTerminationMessage(text, hint);
  if (logFormat === "json") {
    const identity = error instanceof JobError ? { code: error.code, hint: error.hint } : { code: "BUG" };
    const line = {
      level: "error",
      time: new Date().toISOString(),
      ...identity,
      exit_code: exitCodeOf(error),
      msg: messageText(error),
    };
    stderr.write(`${JSON.stringify(line)}\n`);
  } else {
    // Cron mails all output: a late input is one line. No output at all would mean success.
    const isLate = error instanceof JobError && error.code === "INPUT_NOT_READY";
    writeMessage(stderr, quiet === true && isLate ? text : `${text}${hint}`);
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

function messageText(error: unknown): string {
  return error instanceof JobError ? error.message : bugText(error);
}

function jobErrorText(error: JobError): { text: string; hint: string } {
  const hint = error.hint === undefined ? "" : `  hint: ${error.hint}\n`;
  return { text: `error: ${error.message}\n`, hint };
}

function bugText(error: unknown): string {
  return `error: this is a bug in infer-batch; committed spans are kept\n${stackText(error)}\n`;
}

function stackText(error: unknown): string {
  if (!(error instanceof Error)) {
    return String(error);
  }
  const stack = error.stack ?? error.message;
  return error.cause === undefined ? stack : `${stack}\ncaused by ${stackText(error.cause)}`;
}
