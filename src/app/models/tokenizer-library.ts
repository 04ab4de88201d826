import { createRequire } from "node:module";
import { errnoOf, JobError, messageOf } from "../../util/errors.js";
import { tokenizersVersion } from "../version.js";

const load = createRequire(import.meta.url);

/** Users install the package if their jobs tokenize texts: it is 64 MB, and most jobs do without it. */
export const installTokenizers = `npm install tokenizers@${tokenizersVersion}`;
const installGlobally = `npm install --global tokenizers@${tokenizersVersion}`;

/**
 * Checks that the package which makes tokens of texts is installed, in the version that this program was tested with:
 * another one may make other tokens of the same text.
 * @throws JobError USAGE
 */
export function requireTokenizers(): void {
  const doing = "loading the package tokenizers, which makes tokens of texts";
  const hint = `run \`${installTokenizers}\` in the project that has infer-batch; or \`${installGlobally}\` if infer-batch is installed globally`;
  const found = installedTokenizers();
  if (found !== tokenizersVersion) {
    const what = found === undefined ? "it is not installed" : `it has version ${found}, not ${tokenizersVersion}`;
    throw new JobError("USAGE", `${doing}: ${what}`, { hint });
  }
  try {
    load("tokenizers");
  } catch (cause) {
    const platform = `${process.platform}-${process.arch}`;
    throw new JobError("USAGE", `${doing}: its native library for ${platform} cannot be loaded (${firstLine(cause)})`, {
      hint: `${hint}; the package has libraries for Linux, macOS and Windows on x64 and arm64`,
      cause,
    });
  }
}

/** The version of the package that is installed; undefined: none is. */
function installedTokenizers(): string | undefined {
  try {
    return (load("tokenizers/package.json") as { readonly version: string }).version;
  } catch (error) {
    if (errnoOf(error) === "MODULE_NOT_FOUND") {
      return undefined;
    }
    throw error;
  }
}

function firstLine(error: unknown): string {
  return messageOf(error).split("\n", 1)[0] ?? "";
}
