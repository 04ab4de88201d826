import type { FileKind, ModelCache, RemoteOptions } from "../models/cache.js";
import { proxiesOf } from "../net/request.js";
import { fileModels } from "../models/model-file.js";
import type { ModelPin, ModelSource, ResolvedModel } from "../models/port.js";
import type { ModelSpec } from "../spec/model-spec.js";
import { isHttpUri, isHubUri, isMlflowUri } from "../spec/model-uri.js";
import type { StoreSpec } from "../spec/store-spec.js";
import { isObjectUri } from "../spec/object-uri.js";
import { cacheFolder } from "../util/cache-folder.js";
import type { RetryTools } from "../util/retry.js";
import { openStore, urlOfStore } from "./open-store.js";

export interface ModelOptions {
  /** The folder of the spec. */
  readonly folder: string;
  readonly retry: RetryTools;
  /** Identifies this process among all processes on all machines. */
  readonly writer: string;
  readonly isDead: (writer: string) => boolean;
  readonly signal: AbortSignal;
  /** What is resolved. Default: models. */
  readonly kind?: FileKind | undefined;
}

interface SourceKind {
  readonly owns: (uri: string) => boolean;
  readonly open: (model: ModelPlace, options: ModelOptions) => Promise<ModelSource>;
}

/** The kinds of model URIs. The first one that owns a URI resolves it. */
const kinds: readonly SourceKind[] = [
  { owns: isObjectUri, open: openObjectModels },
  { owns: isHttpUri, open: openHttpModels },
  { owns: isHubUri, open: openHubModels },
  { owns: isMlflowUri, open: openMlflowModels },
  { owns: () => true, open: (_model, { folder, kind }) => Promise.resolve(fileModels(folder, kind?.open)) },
];

/** The keys of `model` that say where it is. */
export interface ModelPlace extends Pick<ModelSpec, "sha256" | "registry" | keyof StoreSpec> {
  readonly path: string;
}

/** Resolves a model URI. @param planned the model that the plan of an unfinished run pins */
export async function resolveModel(
  model: ModelPlace,
  options: ModelOptions,
  planned?: ModelPin,
): Promise<ResolvedModel> {
  const kind = kinds.find(({ owns }) => owns(model.path));
  if (kind === undefined) {
    throw new Error(`no source of models for ${model.path}`);
  }
  using source = await kind.open(model, options);
  const { path, sha256 } = model;
  return await source.resolve(path, planned ?? (sha256 === undefined ? undefined : { sha256 }));
}

async function openObjectModels(model: ModelPlace, options: ModelOptions): Promise<ModelSource> {
  const { objectModels } = await import("../models/objects.js");
  const cache = await openCache(options);
  return objectModels({
    store: await openStore(model.path, model, options),
    endpoint: urlOfStore(model.path, model),
    cache,
  });
}

async function openHttpModels(_model: ModelPlace, options: ModelOptions): Promise<ModelSource> {
  const { httpModels } = await import("../models/https.js");
  return httpModels(await remoteOptions(options));
}

async function openHubModels(_model: ModelPlace, options: ModelOptions): Promise<ModelSource> {
  const { hubModels, hubSettings } = await import("../models/huggingface.js");
  return hubModels({ ...(await remoteOptions(options)), ...(await hubSettings(process.env)) });
}

async function openMlflowModels(model: ModelPlace, options: ModelOptions): Promise<ModelSource> {
  const { mlflowModels } = await import("../models/mlflow.js");
  return mlflowModels({
    ...(await remoteOptions(options)),
    registryUrl: model.registry?.url,
    env: process.env,
    async openStore(uri, name) {
      const { objectArtifacts } = await import("../models/objects.js");
      const ofMlflow = uri.startsWith("s3:") ? process.env["MLFLOW_S3_ENDPOINT_URL"] : undefined;
      const place = { ...model, endpoint: model.endpoint ?? ofMlflow };
      const artifacts = { store: await openStore(uri, place, options), endpoint: urlOfStore(uri, place) };
      return objectArtifacts(artifacts, uri, `model ${name}`);
    },
  });
}

async function remoteOptions(options: ModelOptions): Promise<RemoteOptions> {
  const { retry, signal } = options;
  return { cache: await openCache(options), retry, signal, findProxy: proxiesOf(process.env) };
}

/** Opens the cache of this machine's models. */
export async function openCache({ writer, isDead, kind }: ModelOptions): Promise<ModelCache> {
  const { openModelCache } = await import("../models/cache.js");
  const folder = cacheFolder(kind === undefined ? "models" : `${kind.noun}s`);
  return openModelCache({ folder, writer, isDead, ...(kind === undefined ? {} : { kind }) });
}
