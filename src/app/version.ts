import { createRequire } from "node:module";

const manifest = createRequire(import.meta.url)("../../package.json") as {
  readonly version: string;
  readonly dependencies: Readonly<Record<string, string>>;
};

export const programVersion: string = manifest.version;

/**
 * Versions of everything that predictions may depend on. package.json pins the packages, so these are the installed
 * ones.
 */
export const componentVersions: Readonly<Record<string, string>> = {
  "infer-batch": programVersion,
  node: process.versions.node,
  ...manifest.dependencies,
};
