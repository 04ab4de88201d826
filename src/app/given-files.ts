import { open } from "node:fs/promises";
import { type ErrorCode, errnoOf, JobError } from "../util/errors.js";
import { diskErrors } from "../sink/parquet/local/durable.js";

/** What a disk says of a name that somebody gave; the sink's own names cannot be these. */
const ofGivenNames: Readonly<Record<string, { code: ErrorCode; found: string }>> = {
  ENOENT: { code: "FILE_MISSING", found: "there is no such file or folder" },
  EISDIR: { code: "FILE_MISSING", found: "it is a folder" },
  ENOTDIR: { code: "FILE_MISSING", found: "a folder above it is a file" },
  ENAMETOOLONG: { code: "FILE_MISSING", found: "the name is too long" },
  ELOOP: { code: "FILE_MISSING", found: "its links lead in a circle" },
};

/**
 * What a failed call on a file means to whoever named it, in an argument or an option. What no name mends (a full disk,
 * one that fails, too many open files) is temporary.
 * @param hint where another name is what helps
 * @returns what is no error of the system as it is
 */
export function fileError(doing: string, error: unknown, hint: string): unknown {
  const errno = errnoOf(error);
  if (error instanceof JobError || errno === undefined) {
    return error;
  }
  const known = ofGivenNames[errno] ?? diskErrors[errno];
  if (known === undefined) {
    return new JobError("DISK", `${doing}: ${errno}`, { hint: "run the same command again", cause: error });
  }
  const { code, found } = known;
  const remedy = code === "DISK" ? diskErrors[errno]?.hint : hint;
  return new JobError(code, `${doing}: ${found} (${errno})`, { hint: remedy ?? hint, cause: error });
}

/**
 * The text that a file begins with, of at most `limitBytes`: what a file or a pipe holds more, such as `/dev/zero`, is
 * not read.
 * @throws Error of the system
 */
export async function readStart(path: string, limitBytes: number): Promise<string> {
  await using file = await open(path);
  const bytes = Buffer.alloc(limitBytes);
  let length = 0;
  while (length < limitBytes) {
    const { bytesRead } = await file.read(bytes, length, limitBytes - length, null); // a pipe has no positions
    if (bytesRead === 0) {
      break;
    }
    length += bytesRead;
  }
  return bytes.toString("utf8", 0, length);
}
