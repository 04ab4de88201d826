import { printableLines } from "../util/printable.js";

/** What a command line uses of its process: Node's `process` is one. */
export interface Io {
  /** The result. */
  readonly stdout: Output;
  /** All else that is said. */
  readonly stderr: Output;
  exitCode?: number | string | null | undefined;
}

/** A stream of the process, or whatever takes text. */
export type Output = ProcessStream | TextOutput;

type ProcessStream = NodeJS.WriteStream & { readonly fd: number };

interface TextOutput {
  readonly isTTY?: false;
  readonly fd?: undefined;
  write(text: string): unknown;
}

/** What commands write to. */
export interface SafeIo {
  readonly stdout: SafeOutput;
  readonly stderr: SafeOutput;
  exitCode?: Io["exitCode"];
}

/** An output on which no text can move the cursor, change colours or reorder what is shown. */
export interface SafeOutput {
  /** Writes text with the characters that a terminal obeys shown as their codes; newlines stay. */
  write(text: string): unknown;
  /** The output itself, for colours and a progress bar. */
  readonly raw: Output;
}

/** Names of files, columns, tensors and keys are anybody's: this is the one place where text leaves for a terminal. */
export function safeIo(io: Io): SafeIo {
  return {
    stdout: safeOutput(io.stdout),
    stderr: safeOutput(io.stderr),
    get exitCode() {
      return io.exitCode;
    },
    set exitCode(code) {
      io.exitCode = code;
    },
  };
}

export function safeOutput(raw: Output): SafeOutput {
  return { write: (text) => raw.write(printableLines(text)), raw };
}
