import { open } from "node:fs/promises";
import { resolve } from "node:path";
import { secretFile } from "../../spec/secrets.js";
import { diskErrors } from "../../stores/disk.js";
import { errnoOf, type ErrorCode, JobError, messageOf } from "../../util/errors.js";

/** Errors of a file name that a user gave; names that the sink makes do not meet them. */
const ofGivenNames: Readonly<Record<string, { code: ErrorCode; found: string }>> = {
  ENOENT: { code: "FILE_MISSING", found: "there is no such file or folder" },
  EISDIR: { code: "FILE_MISSING", found: "it is a folder" },
  ENOTDIR: { code: "FILE_MISSING", found: "a folder above it is a file" },
  ENAMETOOLONG: { code: "FILE_MISSING", found: "the name is too long" },
  ELOOP: { code: "FILE_MISSING", found: "its links lead in a circle" },
};

/**
 * Returns the error to show for a failed call on a file that a user named in an argument, an option or the spec. Errors
 * that another name would not avoid (a full or failing disk, too many open files) are temporary.
 * @param hint what to do if the name is wrong
 * @returns `error` itself if it is no system error
 */
export function fileError(doing: string, error: unknown, hint: string): unknown {
  const errno = errnoOf(error);
  if (error instanceof JobError || errno === undefined) {
    return error;
  }
  const { code, found, remedy } = explained(errno, { hint, unknown: "run the same command again" });
  return new JobError(code, `${doing}: ${found}`, { hint: remedy, cause: error });
}

/** Says in one line why a file that a user named could not be written. @param hint what to do if the name is wrong */
export function failureText(error: unknown, hint: string): string {
  const errno = errnoOf(error);
  if (error instanceof JobError || errno === undefined) {
    return messageOf(error);
  }
  const { found, remedy } = explained(errno, { hint, unknown: hint });
  return `${found}; ${remedy}`;
}

interface Explained {
  readonly code: ErrorCode;
  readonly found: string;
  readonly remedy: string;
}

/** @param hints what to do if the name is wrong, and if the error is unknown */
function explained(errno: string, { hint, unknown }: { readonly hint: string; readonly unknown: string }): Explained {
  const known = ofGivenNames[errno] ?? diskErrors[errno];
  if (known === undefined) {
    return { code: "DISK", found: errno, remedy: unknown };
  }
  const { code, found } = known;
  const ofDisk = code === "DISK" ? diskErrors[errno]?.hint : undefined;
  return { code, found: `${found} (${errno})`, remedy: ofDisk ?? hint };
}

/**
 * Reads at most the first `limitBytes` of a file or pipe as text, also if it never ends, as `/dev/zero`.
 * @throws system errors
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

/**
 * Reads a whole text file that the spec names.
 * @param key the key as messages name it
 * @throws JobError FILE_MISSING, PERMISSION, DISK; SPEC_INVALID for a file that is too large
 */
export async function readGivenText(
  path: string,
  { key, limitBytes }: { key: string; limitBytes: number },
): Promise<string> {
  const doing = `reading ${key}: ${path}`;
  const hint = "name a file that this user can read; paths are relative to the spec's folder";
  const text = await readStart(path, limitBytes + 1).catch((error: unknown) => {
    throw fileError(doing, error, hint);
  });
  if (Buffer.byteLength(text) > limitBytes) {
    throw new JobError("SPEC_INVALID", `${doing}: it has more than ${limitBytes / 1024 / 1024} MiB`, { hint });
  }
  return text;
}

/** Longer than any password, token or URL. */
const secretLimitBytes = 64 * 1024;

interface SecretPlace {
  /** The folder of the spec, which relative paths start from. */
  readonly folder: string;
  /** The key as messages name it: "job.yaml:4:9: output.postgres.url". */
  readonly key: string;
}

/**
 * Returns a secret as it is now: the value itself, or the text of the file that `${file:PATH}` names, without the
 * newline at its end. No message quotes it.
 * @throws JobError FILE_MISSING, PERMISSION, SPEC_INVALID for a file that is too large or empty, DISK
 */
export async function readSecret(value: string, { folder, key }: SecretPlace): Promise<string> {
  const path = secretFile(value);
  if (path === undefined) {
    return value;
  }
  const doing = `reading ${key}: ${path}`;
  const hint = "${file:PATH} names a file that this user can read; paths are relative to the spec's folder";
  let text: string;
  try {
    text = await readStart(resolve(folder, path), secretLimitBytes + 1);
  } catch (error) {
    throw fileError(doing, error, hint);
  }
  if (Buffer.byteLength(text) > secretLimitBytes) {
    throw new JobError("SPEC_INVALID", `${doing}: it has more than ${secretLimitBytes / 1024} KiB`, { hint });
  }
  const secret = text.replace(/\r?\n$/, "");
  if (secret === "" || secret.includes("\0")) {
    const found = secret === "" ? "it is empty" : "it is no text";
    throw new JobError("SPEC_INVALID", `${doing}: ${found}`, { hint: "write the secret into it, and nothing else" });
  }
  return secret;
}
