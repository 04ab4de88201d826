import { resolve } from "node:path";
import { openModelFile } from "./model-file.js";
import type { ModelSource } from "./port.js";

/** Opens the source of models on disk. @param folder the folder that relative paths start from */
export function fileModels(folder: string): ModelSource {
  return {
    resolve: async (path) => ({ file: await openModelFile(resolve(folder, path)) }),
    [Symbol.dispose]() {},
  };
}
