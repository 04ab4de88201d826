import { type ExitCode, JobError } from "../errors.js";
import { printable } from "../report/table.js";

export interface OutputOptions {
  readonly logFormat?: "pretty" | "json";
}

/** Writes an error for people or for a log collector, and returns the exit code it ends in. */
export function failWith(error: unknown, { logFormat }: OutputOptions): ExitCode {
  const text = error instanceof JobError ? jobErrorText(error) : bugText(error);
  if (logFormat === "json") {
    const known = error instanceof JobError ? { code: error.code, hint: error.hint } : { code: "BUG" };
    const line = {
      level: "error",
      time: new Date().toISOString(),
      ...known,
      exit_code: exitCodeOf(error),
      msg: messageText(error),
    };
    process.stderr.write(`${JSON.stringify(line)}\n`);
  } else {
    process.stderr.write(text);
  }
  return exitCodeOf(error);
}

function exitCodeOf(error: unknown): ExitCode {
  return error instanceof JobError ? error.exitCode : 1;
}

function messageText(error: unknown): string {
  return error instanceof JobError ? error.message : bugText(error);
}

function jobErrorText(error: JobError): string {
  const hint = error.hint === undefined ? "" : `  hint: ${error.hint}\n`;
  // A message may quote bytes of a damaged file; a terminal must not obey them.
  const message = error.message.split("\n").map(printable).join("\n");
  return `error: ${message}\n${hint}`;
}

function bugText(error: unknown): string {
  const stack = error instanceof Error ? (error.stack ?? error.message) : String(error);
  return `error: this is a bug in infer-batch; committed spans are kept\n${stack}\n`;
}
