import { fileModels } from "../models/file.js";
import type { ModelSource, ResolvedModel } from "../models/port.js";
import type { ModelSpec } from "../spec/model-spec.js";
import { isS3Uri } from "../spec/s3-uri.js";
import { cacheFolder } from "../util/cache-folder.js";
import type { RetryTools } from "../util/retry.js";
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

interface SourceKind {
  readonly owns: (uri: string) => boolean;
  readonly open: (model: ModelSpec, tools: ModelTools) => Promise<ModelSource>;
}

/** Where models come from, by their URI; the first that owns it. */
const kinds: readonly SourceKind[] = [
  { owns: isS3Uri, open: openS3Models },
  { owns: () => true, open: (_model, { folder }) => Promise.resolve(fileModels(folder)) },
];

/** The model of a spec. @param planned the digest that the plan of an unfinished run pins */
export async function resolveModel(model: ModelSpec, tools: ModelTools, planned?: string): Promise<ResolvedModel> {
  const kind = kinds.find(({ owns }) => owns(model.path));
  if (kind === undefined) {
    throw new Error(`no source of models for ${model.path}`);
  }
  using source = await kind.open(model, tools);
  return await source.resolve(model.path, planned ?? model.sha256);
}

async function openS3Models(model: ModelSpec, tools: ModelTools): Promise<ModelSource> {
  const { s3Models } = await import("../models/s3.js");
  const { openModelCache } = await import("../models/cache.js");
  const { writer, isDead } = tools;
  const cache = openModelCache({ folder: cacheFolder("models"), writer, isDead });
  return s3Models({ store: await openStore(model, tools), endpoint: storeUrl(model), cache });
}
