import { readFile } from "node:fs/promises";
import { type TokenizerFacts, unknownTraits } from "../binding/model-facts.js";
import { noTexts } from "../file/texts.js";
import { parseJson } from "../../run/plan/parse-plan.js";
import { JobError } from "../../base/errors.js";
import { sha256Of } from "../../base/sha256.js";
import { z } from "../../base/zod.js";
import type { FileKind } from "./cache.js";
import { statOf, unreadable } from "./model-file.js";
import type { ModelFile } from "./place.js";

/** How tokenizers are fetched: as models are. */
export const tokenizerKind: FileKind = {
  noun: "tokenizer",
  open: openTokenizer,
  externalData: () => Promise.resolve([]),
};

const direction = z.enum(["Left", "Right"]);
/** What of a tokenizer.json is read here; the tokenizer itself is read by the library. */
const schema = z.object({
  model: z.object({}),
  truncation: z.object({ max_length: z.int(), direction: direction.optional() }).nullish(),
  padding: z.object({ pad_id: z.int(), direction: direction.optional() }).nullish(),
  added_tokens: z.array(z.object({ id: z.int(), content: z.string() })).optional(),
});

/** Texts of padding tokens in files that do not say how to pad: those of BERT and of SentencePiece. */
const paddingTokens: ReadonlySet<string> = new Set(["[PAD]", "<pad>", "<|pad|>", "<PAD>"]);

/** Returns what bindings need to know of a tokenizer's file. @throws JobError MODEL_INVALID for another kind of file */
export async function readTokenizerFacts({ path, name, sha256 }: ModelFile): Promise<TokenizerFacts> {
  const { truncation, padding, added_tokens: added = [] } = parseTokenizer(await read(path), name);
  const padId = padding?.pad_id ?? added.find(({ content }) => paddingTokens.has(content))?.id;
  return {
    sha256,
    maxTokens: truncation?.max_length,
    cut: truncation?.direction === "Left" ? "left" : "right",
    padId,
    side: padding?.direction === "Left" ? "left" : "right",
  };
}

async function openTokenizer(path: string): Promise<ModelFile> {
  const before = await statOf(path, "tokenizer");
  const bytes = await read(path);
  parseTokenizer(bytes, path);
  return {
    path,
    name: path,
    sha256: sha256Of(bytes),
    sizeBytes: bytes.length,
    texts: noTexts,
    traits: unknownTraits,
    async check() {
      if ((await statOf(path, "tokenizer")) !== before) {
        throw new JobError("MODEL_CHANGED", `loading tokenizer ${path}: it was written to while it was being loaded`, {
          hint: "run again when the tokenizer is in place",
        });
      }
    },
  };
}

async function read(path: string): Promise<Uint8Array> {
  return await readFile(path).catch((error: unknown) => {
    throw unreadable(path, error, "tokenizer");
  });
}

function parseTokenizer(bytes: Uint8Array, name: string): z.infer<typeof schema> {
  const parsed = schema.safeParse(parseJson(Buffer.from(bytes).toString("utf8")));
  if (!parsed.success) {
    throw new JobError("MODEL_INVALID", `loading tokenizer ${name}: it is not a tokenizer.json`, {
      hint: "the library that trained the model writes one: AutoTokenizer.from_pretrained(…).save_pretrained(folder)",
    });
  }
  return parsed.data;
}
