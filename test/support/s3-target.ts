import { mkdir, writeFile } from "node:fs/promises";
import { basename, dirname, join } from "node:path";
import type { ObjectStore } from "#src/stores/objects/store.js";
import { openS3Store, type S3Options, type S3Settings } from "#src/stores/objects/s3.js";
import { type Bucket, s3Env } from "./s3.js";
import { retriesFor } from "./retries.js";

export interface TargetSetup extends Partial<S3Options> {
  readonly port: number;
  readonly place?: S3Settings;
  readonly retrySeconds?: number;
  readonly warn?: (message: string) => void;
}

/** A store to write to. The environment has its credentials from then on. */
export function s3Target({
  port,
  place,
  retrySeconds = 0,
  warn = () => undefined,
  ...options
}: TargetSetup): ObjectStore {
  const { AWS_ENDPOINT_URL_S3: endpoint, ...env } = s3Env(port);
  Object.assign(process.env, env);
  return openS3Store({
    settings: { endpoint, ...place },
    timeouts: { connectMs: 10_000, silenceMs: 60_000, requestMs: 120_000 }, // requests are held
    retry: retriesFor(retrySeconds, warn),
    signal: new AbortController().signal,
    ...options,
  });
}

/** Copies what lies below a folder of a bucket into a folder here, where what reads disks can look at it. */
export async function mirror(bucket: Bucket, folder: string, to: string): Promise<string[]> {
  const keys = (await bucket.keys()).filter((key) => key.startsWith(`${folder}/`) && !key.endsWith("/"));
  await mkdir(to, { recursive: true });
  const copied: string[] = [];
  for (const key of keys) {
    const name = key.slice(folder.length + 1);
    const bytes = await get(bucket, key);
    if (bytes !== undefined) {
      const path = join(to, name);
      await mkdir(dirname(path), { recursive: true });
      await writeFile(path, bytes);
      copied.push(name);
    }
  }
  return copied;
}

/** The prefix of probes, as in `sink/parquet/s3/clear`. */
const probeStart = "probe.";

/** undefined: what a killed attempt asked the store with, and a later one has removed since it was listed. */
async function get(bucket: Bucket, key: string): Promise<Uint8Array | undefined> {
  try {
    return await bucket.get(key);
  } catch (error) {
    if (basename(key).startsWith(probeStart) && !(await bucket.keys()).includes(key)) {
      return undefined;
    }
    throw new Error(`copying ${key}: ${String(error)}`, { cause: error });
  }
}
