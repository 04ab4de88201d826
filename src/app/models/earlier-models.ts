import { copyFile, stat } from "node:fs/promises";
import { constants } from "node:fs";
import { dirname, join, resolve } from "node:path";
import type { EarlierModel, EarlierModels, ScoringContext } from "../../scoring/context.js";
import type { JobSpec } from "../../spec/job-spec.js";
import { modelUri } from "../../spec/model-spec.js";
import { isHttpUri, isModelUri, isServedUri } from "../../spec/model-uri.js";
import { type ModelOptions, openCache } from "../open-model.js";

/** Larger files are not kept: copying them takes too long. */
const keptBytes = 256 * 1024 * 1024;

/**
 * Opens the models of earlier runs of a job.
 * @param toolsOf how the model of a spec is found, and an engine opened for it
 */
export function earlierModels(
  spec: Pick<JobSpec, "model" | "engine">,
  options: ModelOptions,
  toolsOf: (spec: Pick<JobSpec, "model" | "engine">) => Pick<ScoringContext, "resolveModel" | "openEngine">,
): EarlierModels {
  return {
    async find(earlier) {
      const { uri: path, sha256, version } = earlier;
      const { server } = spec.model;
      if (isServedUri(path) && (server === undefined || modelUri(spec.model) !== path)) {
        return undefined; // where it was served is not known
      }
      const place = isServedUri(path) ? { server: { ...server, version } } : { path, server: undefined };
      const model = { ...spec.model, ...place, sha256: undefined } as JobSpec["model"];
      const tools = toolsOf({ model, engine: spec.engine });
      const kept = isFile(path) ? await (await openCache(options)).find(sha256, path) : undefined;
      const found = kept ?? (await tools.resolveModel({ sha256, version })).model;
      return found.sha256 === sha256 ? { model: found, openEngine: tools.openEngine } : undefined;
    },
    keep: (model) => keep(model, options),
  };
}

/** Whether a URI names a file of this machine. */
function isFile(uri: string): boolean {
  return !isModelUri(uri) && !isHttpUri(uri);
}

async function copy(from: string, to: string): Promise<void> {
  await copyFile(from, to, constants.COPYFILE_FICLONE);
}

async function keep({ uri, sha256 }: EarlierModel, options: ModelOptions): Promise<void> {
  const from = resolve(options.folder, uri);
  if (!isFile(uri) || (await stat(from)).size > keptBytes) {
    return;
  }
  const cache = await openCache(options);
  if (await cache.touch(sha256)) {
    return;
  }
  await cache.add({
    key: `file ${sha256}`,
    name: uri,
    model: (to) => copy(from, to),
    async external(location, to) {
      await copy(join(dirname(from), location), to);
      return "";
    },
  });
}
