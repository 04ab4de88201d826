import type { CountTokens } from "../../engine/paid-engine.js";
import { loadTokenCounter, refusedTokenizer, TokenizerError } from "../../engine/tokens/tokenizer.js";
import type { TokenizerFile } from "../../models/port.js";
import type { PinnedTokenizer } from "../../plan/plan.js";
import type { ModelSpec } from "../../spec/model-spec.js";
import { requireTokenizers } from "./tokenizer-library.js";
import { type ModelOptions, resolveModel } from "../open-model.js";

/** Finds a tokenizer of a model's inputs. @param planned the same one, as the plan of an unfinished run pins it */
export async function findTokenizer(
  { model, uri }: { readonly model: ModelSpec; readonly uri: string },
  options: ModelOptions,
  planned?: PinnedTokenizer,
): Promise<TokenizerFile> {
  const { readTokenizerFacts, tokenizerKind } = await import("../../models/tokenizer-file.js");
  const place = { ...model, path: uri, sha256: undefined };
  const { file, version } = await resolveModel(place, { ...options, kind: tokenizerKind }, planned);
  const { path, sha256 } = file;
  return { path, uri, version, sha256, facts: await readTokenizerFacts(file) };
}

/**
 * Loads the tokenizer that counts the tokens of prompts.
 * @throws JobError USAGE where its package is not installed; MODEL_INVALID, and what finds a file of a model
 */
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
