import { styleText } from "node:util";
import { printableLines } from "../base/texts.js";

/** The part of a process that a command line uses; `process` itself implements it. */
export interface Io {
  /** Receives the result. */
  readonly stdout: Output;
  /** Receives all other messages. */
  readonly stderr: Output;
  exitCode?: number | string | null | undefined;
}

/** A stream of the process, or another receiver of text. */
export type Output = ProcessStream | TextOutput;

type ProcessStream = NodeJS.WriteStream & { readonly fd: number };

interface TextOutput {
  readonly isTTY?: false;
  readonly fd?: undefined;
  write(text: string): unknown;
}

/** The outputs of a command, safe for terminals. */
export interface SafeIo {
  readonly stdout: SafeOutput;
  readonly stderr: SafeOutput;
  exitCode?: Io["exitCode"];
}

/** An output whose text cannot move a terminal's cursor, change its colours or reorder characters. */
export interface SafeOutput {
  /** Writes text; control characters are written as codes, except newlines. */
  write(text: string): unknown;
  /** The underlying output, for colours and a progress bar. */
  readonly raw: Output;
}

/** Makes the outputs of a process safe: names of files, columns, tensors and keys may contain anything. */
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

/** The number of characters in a line of a terminal; undefined: the output is none. */
export function terminalWidth({ raw }: SafeOutput): number | undefined {
  return raw.isTTY === true && raw.columns > 0 ? raw.columns : undefined;
}

/** Makes one output safe. */
export function safeOutput(raw: Output): SafeOutput {
  return { write: (text) => raw.write(printableLines(text)), raw };
}

/** Whether to write colours to a stream: https://no-color.org */
export function wantsColor(stream: { isTTY?: boolean }): boolean {
  return stream.isTTY === true && (process.env["NO_COLOR"] ?? "") === "";
}

type Styles = readonly { readonly start: RegExp; readonly style: readonly ("bold" | "cyan" | "red" | "yellow")[] }[];

const messageStyles = [
  { start: /^error:/gm, style: ["bold", "red"] },
  { start: /^warning:/gm, style: ["bold", "yellow"] },
  { start: /^ {2}hint:/gm, style: ["cyan"] },
] as const;

const rejectStyles = [
  { start: /^\d+ rows? rejected .*/gm, style: ["bold"] },
  { start: /^\d+ rows?: .*/gm, style: ["bold", "yellow"] },
] as const;

/** Writes a message; on a terminal, the words that lines begin with have colours. */
export function writeNotice(output: SafeOutput, text: string): void {
  writePainted(output, text, messageStyles);
}

/** Writes which rows were rejected; on a terminal, the lines that count them have colours. */
export function writeRejects(output: SafeOutput, text: string): void {
  writePainted(output, text, rejectStyles);
}

function writePainted({ raw }: SafeOutput, text: string, styles: Styles): void {
  const safe = printableLines(text);
  const painted = styles.reduce(
    (shown, { start, style }) =>
      shown.replaceAll(start, (word) => styleText([...style], word, { validateStream: false })),
    safe,
  );
  raw.write(wantsColor(raw) ? painted : safe);
}
