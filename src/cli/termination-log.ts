import { closeSync, constants, fstatSync, ftruncateSync, openSync, writeSync } from "node:fs";
import { printableLines } from "../util/printable.js";

/** Where Kubernetes looks for a container's last words unless `terminationMessagePath` says otherwise. */
const usualPlace = "/dev/termination-log";
/** Kubernetes keeps no more. */
const limitBytes = 4096;

/**
 * Leaves what went wrong where Kubernetes shows it (`kubectl describe pod`), when this runs in a container of it: the
 * file is there then. `INFER_BATCH_TERMINATION_LOG` names another one, which is made unless it is there. `tail` is kept
 * whole, of `text` what fits.
 */
export function leaveLastWords(text: string, tail = "", named = process.env["INFER_BATCH_TERMINATION_LOG"]): void {
  const { O_WRONLY, O_NOFOLLOW, O_NONBLOCK, O_CREAT } = constants;
  const shownTail = firstBytes(printableLines(tail), limitBytes);
  try {
    // Kubernetes makes the usual file; elsewhere there is none, and /dev is no place for one. A pipe is not waited for.
    const flags = O_WRONLY | O_NOFOLLOW | O_NONBLOCK;
    const file = named === undefined ? openSync(usualPlace, flags) : openSync(named, flags | O_CREAT);
    try {
      if (fstatSync(file).isFile()) {
        ftruncateSync(file);
        writeSync(file, `${firstBytes(printableLines(text), limitBytes - Buffer.byteLength(shownTail))}${shownTail}`);
      }
    } finally {
      closeSync(file);
    }
  } catch {
    // Not in such a container, or not writable: stderr has said it.
  }
}

/** As many whole characters as take at most so many bytes. */
function firstBytes(text: string, count: number): string {
  const bytes = Buffer.from(text);
  // A stream's decoder keeps back the bytes of a character that is not whole.
  return bytes.length <= count ? text : new TextDecoder().decode(bytes.subarray(0, count), { stream: true });
}
