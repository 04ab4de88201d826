import type { TokenizerFile } from "../../models/port.js";
import type { PinnedTokenizer } from "../../plan/plan.js";
import type { ModelSpec } from "../../spec/model-spec.js";
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
