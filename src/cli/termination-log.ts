import { closeSync, constants, fstatSync, ftruncateSync, openSync, writeSync } from "node:fs";
import { printableLines } from "../util/texts.js";

/** Kubernetes' default `terminationMessagePath`. */
const defaultPath = "/dev/termination-log";
/** The most that Kubernetes keeps of a termination message. */
const maxBytes = 4096;

/**
 * Writes the termination message that Kubernetes shows (`kubectl describe pod`), if its file exists.
 * `INFER_BATCH_TERMINATION_LOG` names another file, which is created when it is missing. `tail` is kept whole; `text` is
 * cut to what fits.
 */
export function writeTerminationMessage(
  text: string,
  tail = "",
  named = process.env["INFER_BATCH_TERMINATION_LOG"],
): void {
  const { O_WRONLY, O_NOFOLLOW, O_NONBLOCK, O_CREAT } = constants;
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
