import { expect, test } from "vitest";
import type { ContractRequest } from "#src/models/binding/bind-contract.js";
import type { TokenizerFacts } from "#src/models/binding/model-facts.js";
import type { InputSource } from "#src/job/jobfile/model-spec.js";
import { bind, tensor, typed, withInputs } from "../../support/contracts.js";

const sha256 = "ab".repeat(32);
const facts: TokenizerFacts = { sha256, maxTokens: undefined, cut: "right", padId: 3, side: "right" };
const text = (more: object = {}): InputSource => ({ tokenize: "body", tokenizer: "t.json", ...more });
const mask: InputSource = { mask_of: "ids" };
const kinds: InputSource = { types_of: "ids" };
const ids = tensor("ids", "int64", null, null);
const free = [tensor("mask", "float32", null, null), ids, tensor("kinds", "int32", null, null)];
const fixed = [tensor("ids", "int32", null, 16), tensor("mask", "int64", null, 16)];

const given = ({ tokenizer = {}, ...more }: Partial<ContractRequest> & { tokenizer?: Partial<TokenizerFacts> }) => ({
  columns: [typed("id", "int64"), typed("body", "utf8"), typed("length", "int32")],
  tokenizers: new Map([["t.json", { ...facts, ...tokenizer }]]),
  ...withInputs(...free),
  ...more,
});
const tokensOf = (request: Parameters<typeof given>[0]): unknown =>
  bind(given(request)).inputs.map((input) => (input.kind === "text" ? input.tokens : input));

test("an input of tokens has its mask and its types with it, and is sorted and shrunk where it has a mask", () => {
  expect(bind(given({ inputs: { ids: text({ max: 32 }), mask, kinds } })).inputs).toEqual([
    {
      kind: "text",
      input: "ids",
      rank: 1,
      column: { name: "body", path: ["body"], type: "utf8" },
      tokens: {
        tokenizer: sha256,
        dtype: "int64",
        width: 32,
        cut: "right",
        value: 3,
        side: "right",
        shrink: true,
        sorted: true,
        masks: [{ input: "mask", dtype: "float32" }],
        types: [{ input: "kinds", dtype: "int32" }],
      },
    },
  ]);
});

test("texts have as many tokens as the spec says, else the model, else the tokenizer's file, else 64", () => {
  const one = { inputs: { ids: text(), mask, kinds } };
  expect(tokensOf(one)).toMatchObject([{ width: 64 }]);
  expect(tokensOf({ ...one, tokenizer: { maxTokens: 48, cut: "left", side: "left" } })).toMatchObject([
    { width: 48, cut: "left", side: "left" },
  ]);
  const ofModel = { ...withInputs(...fixed), tokenizer: { maxTokens: 48 } };
  expect(tokensOf({ ...ofModel, inputs: { ids: text(), mask } })).toMatchObject([
    { width: 16, dtype: "int32", shrink: false, sorted: false },
  ]);
});

test("texts are not shrunk without a mask, nor sorted where batches have a fixed number of rows", () => {
  expect(tokensOf({ ...withInputs(ids), inputs: { ids: text() } })).toMatchObject([{ shrink: false, sorted: false }]);
  const batches = [tensor("ids", "int64", 8, null), tensor("mask", "int64", 8, null)];
  expect(tokensOf({ ...withInputs(...batches), inputs: { ids: text(), mask } })).toMatchObject([
    { shrink: true, sorted: false },
  ]);
});
