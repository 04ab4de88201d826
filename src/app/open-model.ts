import { resolve } from "node:path";
import { openModelFile } from "../models/file.js";
import type { ModelFile } from "../engine/port.js";
import type { RetryTools } from "../util/retry.js";
import type { ModelSpec } from "../spec/model-spec.js";
import { isS3Uri } from "../spec/s3-uri.js";
import { cacheFolder } from "../util/cache-folder.js";
import { openStore, storeUrl } from "./open-store.js";

export interface ModelTools {
  /** The spec's folder. */
  readonly folder: string;
  readonly retry: RetryTools;
  /** Names this process among all on all machines. */
  readonly writer: string;
  readonly isDead: (writer: string) => boolean;
  readonly signal: AbortSignal;
}

/** From the disk, or from S3 through a cache of this user. */
export async function openModel(model: ModelSpec, tools: ModelTools): Promise<ModelFile> {
  if (!isS3Uri(model.path)) {
    return await openModelFile(resolve(tools.folder, model.path));
  }
  const { openS3Model } = await import("../models/s3.js");
  using store = await openStore(model, tools);
  const { writer, isDead } = tools;
  const endpoint = storeUrl(model);
  return await openS3Model(model.path, model.sha256, { store, endpoint, cache: cacheFolder("models"), writer, isDead });
}
