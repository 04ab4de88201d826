import { closeSync, constants, fstatSync, ftruncateSync, openSync, writeSync } from "node:fs";

/** Where Kubernetes looks for a container's last words unless `terminationMessagePath` says otherwise. */
const usualPlace = "/dev/termination-log";
/** Kubernetes keeps no more. */
const limitBytes = 4096;

/**
 * Leaves what went wrong where Kubernetes shows it (`kubectl describe pod`), when this runs in a container of it: the
 * file is there then. `INFER_BATCH_TERMINATION_LOG` names another one. `tail` is kept whole, of `text` what fits.
 */
export function leaveLastWords(
  text: string,
  tail = "",
  path = process.env["INFER_BATCH_TERMINATION_LOG"] ?? usualPlace,
): void {
  const { O_WRONLY, O_NOFOLLOW, O_NONBLOCK } = constants;
  try {
    // Never made: a folder of this name elsewhere is nobody's business. Nor waited for, where it is a pipe.
    const file = openSync(path, O_WRONLY | O_NOFOLLOW | O_NONBLOCK);
    try {
      if (fstatSync(file).isFile()) {
        ftruncateSync(file);
        writeSync(file, `${firstBytes(text, limitBytes - Buffer.byteLength(tail))}${tail}`);
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
