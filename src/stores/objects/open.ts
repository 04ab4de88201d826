/** Which store a scheme names: a new one is a file, and a line here. */
import type { StoreScheme } from "../../job/jobfile/uri.js";
import { assertNever } from "../../base/errors.js";
import type { GiveCredentials } from "./protocol.js";
import type { S3Settings } from "./s3.js";
import type { ObjectStore, RequestOptions } from "./store.js";

/** A store, and how it is reached. It can be sent to another thread. */
export interface StorePlace {
  readonly scheme: StoreScheme;
  /** What is for S3 only is ignored elsewhere. */
  readonly settings: S3Settings;
}

/**
 * Opens a store. Its code is loaded here, since that takes a while.
 * @param credentials for S3; undefined: those of the environment
 */
export async function openStoreAt(
  { scheme, settings }: StorePlace,
  options: RequestOptions,
  credentials?: GiveCredentials,
): Promise<ObjectStore> {
  const { endpoint } = settings;
  const cloud = { ...options, endpoint, env: process.env };
  const { openObjectStore } = await import("./store.js");
  switch (scheme) {
    case "s3":
      return (await import("./s3.js")).openS3Store({ ...options, settings, credentials });
    case "gs":
      return openObjectStore((await import("./gcs.js")).gcsProtocol(cloud), options);
    case "az":
      return openObjectStore((await import("./azure.js")).azureProtocol(cloud), options);
    default:
      return assertNever(scheme);
  }
}

/**
 * Identifies the store: the same URI is another object in another store.
 * @returns its URL; empty for the one of AWS, Google or Azure
 */
export function storeUrl({ scheme, settings }: StorePlace): string {
  const { env } = process;
  switch (scheme) {
    case "s3":
      return settings.endpoint ?? env["AWS_ENDPOINT_URL_S3"] ?? env["AWS_ENDPOINT_URL"] ?? "";
    case "gs":
      return settings.endpoint ?? env["STORAGE_EMULATOR_HOST"] ?? "";
    case "az":
      return settings.endpoint ?? "";
    default:
      return assertNever(scheme);
  }
}
