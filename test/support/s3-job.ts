import { readdir } from "node:fs/promises";
import { join } from "node:path";
import { type CliResult, type HereOrApart, runCommand } from "./cli.js";
import type { Bucket } from "./s3.js";
import { s3Env } from "./s3.js";

/** Copies every file below a folder into a bucket, each under its path. */
export async function upload(bucket: Bucket, folder: string, prefix: string): Promise<void> {
  for (const entry of await readdir(folder, { recursive: true, withFileTypes: true })) {
    if (entry.isFile()) {
      const path = join(entry.parentPath, entry.name);
      await bucket.putFile(`${prefix}${path.slice(folder.length + 1)}`, path);
    }
  }
}

/** Carries out a command line against the store at a port of this machine; fetched bytes are kept in `spool`. */
export async function runInS3(
  args: readonly string[],
  { port, env, ...options }: HereOrApart & { readonly port: number },
): Promise<CliResult> {
  return await runCommand(args, { ...options, env: { ...s3Env(port), ...env } });
}
