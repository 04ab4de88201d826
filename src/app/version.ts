import { createRequire } from "node:module";

const manifest = createRequire(import.meta.url)("../../package.json") as {
  readonly version: string;
  readonly dependencies: Readonly<Record<string, string>>;
};

export const programVersion: string = manifest.version;

/** Of what predictions may depend on. The packages are pinned, so that what is asked for is what is there. */
export const componentVersions: Readonly<Record<string, string>> = {
  "infer-batch": programVersion,
  node: process.versions.node,
  ...manifest.dependencies,
};
