import { firstLine } from "../duckdb/sql.js";
import { createRequire } from "node:module";
import type { TokenizerFile } from "../models/places/place.js";
import type { PinnedTokenizer } from "../run/plan/plan.js";
import type { ModelSpec } from "./jobfile/model-spec.js";
import { JobError, errnoOf, messageOf } from "../base/errors.js";
import { tokenizersVersion } from "./attempt.js";
import { type ModelOptions, resolveModel } from "./kinds.js";
import type { CountTokens } from "../models/engine.js";
import { TokenizerError, loadTokenCounter, refusedTokenizer } from "../models/tokens.js";

export async function findTokenizer(
  { model, uri }: { readonly model: ModelSpec; readonly uri: string },
  options: ModelOptions,
  planned?: PinnedTokenizer,
): Promise<TokenizerFile> {
  const { readTokenizerFacts, tokenizerKind } = await import("../models/places/tokenizer-file.js");
  const place = { ...model, path: uri, sha256: undefined };
  const { file, version } = await resolveModel(place, { ...options, kind: tokenizerKind }, planned);
  const { path, sha256 } = file;
  return { path, uri, version, sha256, facts: await readTokenizerFacts(file) };
}

/** @throws JobError USAGE where the tokenizers package is not installed; MODEL_INVALID, and as for a file of a model */
export async function openTokenCounter(
  tokenizer: { readonly model: ModelSpec; readonly uri: string },
  options: ModelOptions,
): Promise<CountTokens> {
  requireTokenizers();
  const { path, sha256 } = await findTokenizer(tokenizer, options);
  const { uri } = tokenizer;
  return await loadTokenCounter({ path, uri, sha256 }).catch((error: unknown) => {
    throw error instanceof TokenizerError ? refusedTokenizer(uri, error.message) : error;
  });
}

const load = createRequire(import.meta.url);

/** Users install the package if their jobs tokenize texts: it is 64 MB, and most jobs do without it. */
export const installTokenizers = `npm install tokenizers@${tokenizersVersion}`;
const installGlobally = `npm install --global tokenizers@${tokenizersVersion}`;

/** Only the version that this program was tested with: another may make other tokens. @throws JobError USAGE */
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
    throw new JobError(
      "USAGE",
      `${doing}: its native library for ${platform} cannot be loaded (${firstLine(messageOf(cause))})`,
      {
        hint: `${hint}; the package has libraries for Linux, macOS and Windows on x64 and arm64`,
        cause,
      },
    );
  }
}

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
