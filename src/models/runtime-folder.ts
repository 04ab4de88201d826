import { createRequire } from "node:module";
import { dirname } from "node:path";
import { isOutOfFiles } from "../base/errors.js";

const require = createRequire(import.meta.url);

interface Manifest {
  readonly version: string;
}

const { peerDependencies } = require("../../package.json") as {
  readonly peerDependencies: Readonly<Record<"onnxruntime-node", string>>;
};

/** The version of ONNX Runtime that this program is made for. */
export const runtimeVersion = peerDependencies["onnxruntime-node"];

/**
 * Returns the folder with ONNX Runtime's libraries: that of an installed onnxruntime-node of the right version, which may
 * have CUDA files; else the one in the npm package, which scripts/vendor.mjs has made.
 */
export function runtimeFolder(): string {
  return dirname(installed() ?? require.resolve("../../vendor/onnxruntime/package.json"));
}

function installed(): string | undefined {
  try {
    const path = require.resolve("onnxruntime-node/package.json");
    return (require(path) as Manifest).version === runtimeVersion ? path : undefined;
  } catch (error) {
    if (isOutOfFiles(error)) {
      throw error; // the package may be installed: only the file limit kept it from being read
    }
    return undefined; // users need not install it
  }
}
