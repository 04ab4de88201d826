import { createRequire } from "node:module";
import type { JobSpec } from "../spec/job-spec.js";
import { tokenizerUris } from "../spec/model-spec.js";

const manifest = createRequire(import.meta.url)("../../package.json") as {
  readonly version: string;
  readonly dependencies: Readonly<Record<string, string>>;
  readonly peerDependencies: Readonly<Record<"tokenizers" | "onnxruntime-node", string>>;
};

export const programVersion: string = manifest.version;

/** The version of the package that makes tokens of texts. Users install it if their jobs need it. */
export const tokenizersVersion: string = manifest.peerDependencies.tokenizers;

/**
 * Versions of everything that predictions may depend on. package.json pins the packages, so these are the installed
 * ones.
 */
export const componentVersions: Readonly<Record<string, string>> = {
  "infer-batch": programVersion,
  node: process.versions.node,
  ...manifest.dependencies,
  "onnxruntime-node": manifest.peerDependencies["onnxruntime-node"],
};

/** Versions of everything that a job's predictions may depend on. */
export function versionsFor({ model }: Pick<JobSpec, "model">): Readonly<Record<string, string>> {
  return tokenizerUris(model).size === 0 ? componentVersions : { ...componentVersions, tokenizers: tokenizersVersion };
}
