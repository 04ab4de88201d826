import type { DerivedInput, TensorSignature, Tokenizing } from "../columnar/tensor.js";
import { showType } from "../columnar/types.js";
import type { TokensSource } from "../spec/model-spec.js";
import { didYouMean } from "../util/suggest.js";
import { numericMatrix } from "./bind-padded.js";
import type { TextBinding } from "./contract.js";
import { type ContractRequest, findColumn, refuse, sourceOf } from "./contract-request.js";
import { showTensor } from "./side-by-side.js";

/** The greatest number of tokens of a text where neither spec, model nor tokenizer says. */
const defaultMax = 64;

/** An input `[N, S]` of the token ids of a text column, with the masks and token types that are made with them. */
export function bindTokens(input: TensorSignature, source: TokensSource, request: ContractRequest): TextBinding {
  const what = `model.inputs.${input.name}`;
  const dtype = numericMatrix(input, `${what} makes tokens for`, request);
  if (dtype !== "int64" && dtype !== "int32") {
    throw refuse(request, `${what} makes tokens for \`${input.name}\`, which is ${showTensor(input)}`, int64Hint);
  }
  const column = findColumn(source.tokenize, what, request);
  if (column.type !== "utf8") {
    const found = `${what} tokenizes texts, column \`${column.name}\` is ${showType(column.type)}`;
    throw refuse(request, found, "name a text column");
  }
  const facts = request.tokenizers?.get(source.tokenizer);
  if (facts === undefined) {
    throw new RangeError(`the tokenizer ${source.tokenizer} was not read`);
  }
  const fixed = input.shape[1] ?? null;
  const width = source.max ?? fixed ?? facts.maxTokens ?? defaultMax;
  if (fixed !== null && (width !== fixed || source.shrink === true)) {
    const wants = source.shrink === true ? "shrinks" : `makes ${width} tokens`;
    const hint = `leave ${source.shrink === true ? "shrink" : "max"} out, or export the model with that dimension free`;
    throw refuse(request, `${what} ${wants}, the input is ${showTensor(input)}`, hint);
  }
  const masks = madeFrom(input.name, "mask_of", request);
  if (facts.padId === undefined && masks.length === 0) {
    throw refuse(
      request,
      `${source.tokenizer} has no padding token, and no input of the model is a mask of \`${input.name}\``,
      "texts of different lengths need one or the other: export the model with an attention mask",
    );
  }
  const shrink = source.shrink ?? (fixed === null && masks.length > 0);
  const types = madeFrom(input.name, "types_of", request);
  for (const one of [...masks, ...types]) {
    requireWidth(one, { width, shrink, of: input.name }, request);
  }
  const { sha256: tokenizer, cut, side, padId: value = 0 } = facts;
  const sorted = shrink && input.shape[0] === null;
  const derived = {
    masks: masks.map((one) => derivedOf(one, request)),
    types: types.map((one) => derivedOf(one, request)),
  };
  const tokens: Tokenizing = { tokenizer, dtype, width, cut, value, side, shrink, sorted, ...derived };
  return { kind: "text", input: input.name, rank: 1, column, tokens };
}

const int64Hint = "export the model with token ids of int64 or int32";

/** Whether an input is a mask or the types of tokens. @throws JobError CONTRACT for types of another input */
export function isMadeWithTokens(name: string, request: ContractRequest): boolean {
  const source = sourceOf(request, name);
  if (source !== undefined && "types_of" in source) {
    const names = Object.keys(request.inputs ?? {});
    const of = source.types_of;
    if (!isTokens(of, request)) {
      throw refuse(
        request,
        `model.inputs.${name}.types_of names \`${of}\`, which takes no tokens${names.includes(of) ? "" : didYouMean(of, names)}`,
        "only tokens have types: name an input with tokenize",
      );
    }
    return true;
  }
  return source !== undefined && "mask_of" in source && isTokens(source.mask_of, request);
}

function isTokens(name: string, request: ContractRequest): boolean {
  const source = sourceOf(request, name);
  return source !== undefined && "tokenize" in source;
}

function madeFrom(of: string, key: "mask_of" | "types_of", request: ContractRequest): TensorSignature[] {
  return request.signature.inputs.filter(({ name }) => {
    const source = sourceOf(request, name);
    return source !== undefined && JSON.stringify(source) === JSON.stringify({ [key]: of });
  });
}

function derivedOf(input: TensorSignature, request: ContractRequest): DerivedInput {
  return { input: input.name, dtype: numericMatrix(input, `model.inputs.${input.name} is made for`, request) };
}

function requireWidth(
  input: TensorSignature,
  { width, shrink, of }: { readonly width: number; readonly shrink: boolean; readonly of: string },
  request: ContractRequest,
): void {
  const fixed = input.shape[1] ?? null;
  if (fixed !== null && (shrink || fixed !== width)) {
    throw refuse(
      request,
      `input \`${input.name}\` is ${showTensor(input)}, the rows of \`${of}\` have ${width} tokens${shrink ? ", or fewer" : ""}`,
      "set shrink: false, and max to that length; or export the model with that dimension free",
    );
  }
}
