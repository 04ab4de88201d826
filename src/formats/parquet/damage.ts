import { JobError } from "../../util/errors.js";

/** Damage in the rows of a slice. */
export interface Damage {
  readonly error: JobError;
  /** The rows of the slice before this one can be read. */
  readonly rowStart: number;
}

/** The error for a shard whose pages are damaged, or cannot be read. */
export function corrupt(path: string, found: string, cause?: unknown): JobError {
  return new JobError("SHARD_CORRUPT", `reading ${path}: ${found}`, { hint: hintFor(found), cause });
}

function hintFor(found: string): string {
  return /unsupported|only supported|not supported/i.test(found)
    ? "the shard has a codec or an encoding that cannot be read; write it again with another one, and score that with --new-run"
    : "restore the planned file with its modification time (cp -p), and run again; committed spans are kept. If the file must be written again, --new-run scores it";
}
