import { resolve } from "node:path";
import { secretFile } from "../spec/secrets.js";
import { JobError } from "../util/errors.js";
import { fileError, readStart } from "./reading/given-files.js";

/** Longer than any password, token or URL. */
const secretLimitBytes = 64 * 1024;

export interface SecretPlace {
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
