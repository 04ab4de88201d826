import type { ModelCache } from "../models/cache.js";
import { fileModels } from "../models/file.js";
import type { ModelSource, ResolvedModel } from "../models/port.js";
import type { ModelSpec } from "../spec/model-spec.js";
import { isHttpUri, isHubUri } from "../spec/model-uri.js";
import { isS3Uri } from "../spec/s3-uri.js";
import { cacheFolder } from "../util/cache-folder.js";
import type { RetryTools } from "../util/retry.js";
import { openStore, storeUrl } from "./open-store.js";

export interface ModelOptions {
  /** The folder of the spec. */
  readonly folder: string;
  readonly retry: RetryTools;
  /** Identifies this process among all processes on all machines. */
  readonly writer: string;
  readonly isDead: (writer: string) => boolean;
  readonly signal: AbortSignal;
}

interface SourceKind {
  readonly owns: (uri: string) => boolean;
  readonly open: (model: ModelSpec, options: ModelOptions) => Promise<ModelSource>;
}

/** The kinds of model URIs. The first one that owns a URI resolves it. */
const kinds: readonly SourceKind[] = [
  { owns: isS3Uri, open: openS3Models },
  { owns: isHttpUri, open: openHttpModels },
  { owns: isHubUri, open: openHubModels },
  { owns: () => true, open: (_model, { folder }) => Promise.resolve(fileModels(folder)) },
];

/** Resolves the model of a spec. @param planned the digest that the plan of an unfinished run pins */
export async function resolveModel(model: ModelSpec, options: ModelOptions, planned?: string): Promise<ResolvedModel> {
  const kind = kinds.find(({ owns }) => owns(model.path));
  if (kind === undefined) {
    throw new Error(`no source of models for ${model.path}`);
  }
  using source = await kind.open(model, options);
  return await source.resolve(model.path, planned ?? model.sha256);
}

async function openS3Models(model: ModelSpec, options: ModelOptions): Promise<ModelSource> {
  const { s3Models } = await import("../models/s3.js");
  const cache = await openCache(options);
  return s3Models({ store: await openStore(model, options), endpoint: storeUrl(model), cache });
}

async function openHttpModels(_model: ModelSpec, options: ModelOptions): Promise<ModelSource> {
  const { httpModels } = await import("../models/https.js");
  const { retry, signal } = options;
  return httpModels({ cache: await openCache(options), retry, signal });
}

async function openHubModels(_model: ModelSpec, options: ModelOptions): Promise<ModelSource> {
  const { hubModels } = await import("../models/huggingface.js");
  const { hubSettings } = await import("./hub-settings.js");
  const { retry, signal } = options;
  return hubModels({ cache: await openCache(options), retry, signal, ...(await hubSettings(process.env)) });
}

async function openCache({ writer, isDead }: ModelOptions): Promise<ModelCache> {
  const { openModelCache } = await import("../models/cache.js");
  return openModelCache({ folder: cacheFolder("models"), writer, isDead });
}
