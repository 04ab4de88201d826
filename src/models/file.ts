import { resolve } from "node:path";
import { openModelFile } from "./model-file.js";
import type { ModelFile, ModelSource } from "./port.js";

/**
 * Opens the source of models on disk.
 * @param folder the folder that relative paths start from
 * @param open reads and digests a file; default: a model
 */
export function fileModels(
  folder: string,
  open: (path: string) => Promise<ModelFile> = (path) => openModelFile(path),
): ModelSource {
  return {
    resolve: async (path) => ({ file: await open(resolve(folder, path)) }),
    [Symbol.dispose]() {},
  };
}
