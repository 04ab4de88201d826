import { styleText } from "node:util";
import { printableLines } from "../util/printable.js";
import type { SafeOutput } from "./io.js";

/** Whether to write colours to a stream: https://no-color.org */
export function wantsColor(stream: { isTTY?: boolean }): boolean {
  return stream.isTTY === true && (process.env["NO_COLOR"] ?? "") === "";
}

const styles = [
  { start: /^error:/gm, style: ["bold", "red"] },
  { start: /^warning:/gm, style: ["bold", "yellow"] },
  { start: /^ {2}hint:/gm, style: ["cyan"] },
] as const;

/** Writes a message; on a terminal, the words that lines begin with have colours. */
export function writeMessage({ raw }: SafeOutput, text: string): void {
  const safe = printableLines(text);
  const painted = styles.reduce(
    (shown, { start, style }) =>
      shown.replaceAll(start, (word) => styleText([...style], word, { validateStream: false })),
    safe,
  );
  raw.write(wantsColor(raw) ? painted : safe);
}
