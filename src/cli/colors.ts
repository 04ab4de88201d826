import { styleText } from "node:util";
import { printableLines } from "../util/texts.js";
import type { SafeOutput } from "./io.js";

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
export function writeMessage(output: SafeOutput, text: string): void {
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
