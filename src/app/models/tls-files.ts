import { resolve } from "node:path";
import { createSecureContext } from "node:tls";
import type { TlsSettings } from "../../net/request.js";
import type { ServerTlsSpec } from "../../spec/server/server-spec.js";
import { JobError, messageOf } from "../../util/errors.js";
import { fileError, readStart } from "../reading/given-files.js";

/** More than all authorities of a system. */
const limitBytes = 4 * 1024 * 1024;

export interface TlsFilesPlace {
  /** The folder of the spec, which relative paths start from. */
  readonly folder: string;
  /** The position of a key in the spec. */
  readonly where: (path: readonly string[]) => string;
}

/**
 * Reads the files of `model.server.tls`. No message quotes them.
 * @throws JobError FILE_MISSING, PERMISSION, SPEC_INVALID for files that are not certificates and their key
 */
export async function readTls(
  files: ServerTlsSpec | undefined,
  { folder, where }: TlsFilesPlace,
): Promise<TlsSettings> {
  const read: Record<string, string> = {};
  for (const [name, path] of Object.entries(files ?? {}) as [string, string][]) {
    const doing = `reading ${where(["model", "server", "tls", name])}: ${path}`;
    try {
      read[name] = await readStart(resolve(folder, path), limitBytes);
    } catch (error) {
      throw fileError(doing, error, "a file in PEM that this user can read; paths are relative to the spec's folder");
    }
  }
  try {
    createSecureContext(read);
  } catch (error) {
    const doing = `reading ${where(["model", "server", "tls"])}`;
    throw new JobError("SPEC_INVALID", `${doing}: ${messageOf(error)}`, {
      hint: "ca and cert are certificates in PEM, key is the private key of cert in PEM, without a passphrase",
    });
  }
  return read;
}
