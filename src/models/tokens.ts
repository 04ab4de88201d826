import { readFile } from "node:fs/promises";
import type { Tokenizer } from "tokenizers";
import {
  decodeTexts,
  type DerivedInput,
  elementCount,
  type NamedTensor,
  type Tensor,
  tensorElement,
  toFloat16Bits,
  type Tokenizing,
} from "../columns/tensor.js";
import { allocate, copyValues, type Values } from "../columns/values.js";
import { sliceRows } from "../flow/pack/packer.js";
import { JobError, messageOf } from "../base/errors.js";
import { createLimit } from "../base/promises.js";
import { sha256Of } from "../base/sha256.js";
import type { CountTokens, RunModel } from "./engine.js";

/** A file of a tokenizer on this machine. */
export interface TokenizerPlace {
  readonly path: string;
  /** The tokenizer as messages name it. */
  readonly uri: string;
  /** Hex digest that the file must have. */
  readonly sha256: string;
}

/** The tokens of a text, special tokens included. */
interface Encoding {
  readonly ids: readonly number[];
  /** Empty where types are not asked for. */
  readonly types: readonly number[];
}

interface EncodeOptions extends Pick<Tokenizing, "width" | "cut"> {
  readonly withTypes: boolean;
}

/** Encodes texts, each by itself. */
export type Encode = (texts: readonly string[], options: EncodeOptions) => Promise<Encoding[]>;

/** A tokenizer that cannot be loaded. */
export class TokenizerError extends Error {
  override readonly name = "TokenizerError";
  readonly uri: string;

  constructor(uri: string, message: string, options?: ErrorOptions) {
    super(message, options);
    this.uri = uri;
  }
}

/** The error for a tokenizer that cannot be loaded. */
export function refusedTokenizer(uri: string, message: string): JobError {
  return new JobError("MODEL_INVALID", `loading tokenizer ${uri}: ${message}`, {
    hint: "check it with Python: tokenizers.Tokenizer.from_file(path); a tokenizer of a newer version may need another version of this program",
  });
}

/** Loads a tokenizer. @throws TokenizerError for a file that is no tokenizer, or that has another digest */
export async function loadTokenizer(place: TokenizerPlace): Promise<Encode> {
  const tokenizer = await open(place);
  const inTurn = createLimit(1); // a new length holds for texts that are being encoded, too
  return (texts, { width, cut, withTypes }) =>
    inTurn(async () => {
      tokenizer.setTruncation(width, { direction: cut });
      const encodings = await tokenizer.encodeBatch([...texts]);
      return encodings.map((encoding) => ({ ids: encoding.getIds(), types: withTypes ? encoding.getTypeIds() : [] }));
    });
}

/** Loads a tokenizer that counts tokens of texts of any length. @throws TokenizerError as `loadTokenizer` */
export async function loadTokenCounter(place: TokenizerPlace): Promise<CountTokens> {
  const tokenizer = await open(place);
  tokenizer.disableTruncation();
  return async (texts, { withSpecial }) => {
    const encodings = await tokenizer.encodeBatch([...texts], { addSpecialTokens: withSpecial });
    return encodings.map((encoding) => encoding.getLength());
  };
}

async function open({ path, uri, sha256 }: TokenizerPlace): Promise<Tokenizer> {
  try {
    const bytes = await readFile(path);
    if (sha256Of(bytes) !== sha256) {
      throw new Error("it was written to while it was being loaded");
    }
    const { Tokenizer } = await import("tokenizers"); // a native library, for specs with a tokenizer only
    const tokenizer = Tokenizer.fromString(bytes.toString("utf8"));
    tokenizer.disablePadding();
    return tokenizer;
  } catch (cause) {
    throw new TokenizerError(uri, messageOf(cause), { cause });
  }
}

type TextTensor = Extract<NamedTensor, { dtype: "string" }> & { readonly tokens: Tokenizing };

/**
 * Tokenizes the texts of each batch that are to be tokenized, and runs the model on their tokens. Texts are sorted by
 * length where that is asked for: the outputs are in the order of the rows again.
 * @param encoders by the digests of their files
 */
export function withTokens(run: RunModel, encoders: ReadonlyMap<string, Encode>, nowMs: () => number): RunModel {
  return async (request) => {
    const texts = request.inputs.filter(isToBeTokenized);
    const [first] = texts;
    if (first === undefined) {
      return await run(request);
    }
    const sinceMs = nowMs();
    const encoded = await Promise.all(texts.map((tensor) => encodeTensor(tensor, encoders)));
    const others = request.inputs.filter((tensor) => !isToBeTokenized(tensor));
    const outputs: Tensor[] = [];
    const rows = first.dims[0] ?? 0;
    for (const group of groupsOf(encoded)) {
      const tokens = encoded.flatMap((one) => tokenTensors(one, group, texts.length > 1));
      const inputs = [...tokens, ...others.map((tensor) => takeRows(tensor, group.rows))];
      const done = await run({ ...request, inputs });
      if (group.rows.length === rows) {
        return { ...done, outputs: inOrder(done.outputs, group.rows), ms: nowMs() - sinceMs };
      }
      for (const [index, output] of done.outputs.entries()) {
        outputs[index] = scatter(outputs[index], output, { group, rows });
      }
    }
    return { outputs, ms: nowMs() - sinceMs };
  };
}

function isToBeTokenized(tensor: NamedTensor): tensor is TextTensor {
  return tensor.dtype === "string" && tensor.tokens !== undefined;
}

interface Encoded {
  readonly tensor: TextTensor;
  readonly encodings: readonly Encoding[];
}

async function encodeTensor(tensor: TextTensor, encoders: ReadonlyMap<string, Encode>): Promise<Encoded> {
  const encoder = encoders.get(tensor.tokens.tokenizer);
  if (encoder === undefined) {
    throw new Error(`the tokenizer ${tensor.tokens.tokenizer} is not loaded`);
  }
  const { width, cut, types } = tensor.tokens;
  const texts = decodeTexts(tensor.data);
  return { tensor, encodings: await encoder(texts, { width, cut, withTypes: types.length > 0 }) };
}

/** Rows are sorted where one column is tokenized: two would have to be of one order. */
function groupsOf(encoded: readonly Encoded[]): RowGroup[] {
  const [{ tensor, encodings }, ...others] = encoded as [Encoded, ...Encoded[]];
  const lengths = encodings.map(({ ids }) => ids.length);
  const { width, shrink, sorted } = tensor.tokens;
  return sorted && others.length === 0 ? groupByLength(lengths) : [oneGroup(lengths, shrink ? undefined : width)];
}

function tokenTensors(
  { tensor, encodings }: Encoded,
  { rows, width: common }: RowGroup,
  isOneOfSeveral: boolean,
): NamedTensor[] {
  const { tokens, name } = tensor;
  const own = tokens.shrink ? oneGroup(encodings.map(({ ids }) => ids.length)).width : tokens.width;
  const width = isOneOfSeveral ? own : common;
  const tensorOf = (
    { input, dtype }: DerivedInput,
    blank: number,
    valuesOf: (row: Encoding) => readonly number[] | 1,
  ) => {
    const data = allocate(tensorElement(dtype), rows.length * width);
    const write = writer(data, dtype);
    for (const [at, row] of rows.entries()) {
      const encoding = encodings[row] as Encoding;
      const length = Math.min(encoding.ids.length, width);
      const start = tokens.side === "left" ? width - length : 0;
      const values = valuesOf(encoding);
      for (let index = 0; index < width; index += 1) {
        const from = index - start;
        const isToken = from >= 0 && from < length;
        write(at * width + index, isToken ? (values === 1 ? 1 : (values[from] ?? 0)) : blank);
      }
    }
    return { name: input, dtype, dims: [rows.length, width], data };
  };
  return [
    tensorOf({ input: name, dtype: tokens.dtype }, tokens.value, ({ ids }) => ids),
    ...tokens.masks.map((mask) => tensorOf(mask, 0, () => 1)),
    ...tokens.types.map((one) => tensorOf(one, 0, ({ types }) => types)),
  ];
}

function writer(data: Values, dtype: DerivedInput["dtype"]): (index: number, value: number) => void {
  if (data instanceof BigInt64Array || data instanceof BigUint64Array) {
    return (index, value) => {
      data[index] = BigInt(value);
    };
  }
  return (index, value) => {
    data[index] = dtype === "float16" ? toFloat16Bits(value) : value;
  };
}

function takeRows(tensor: NamedTensor, rows: Uint32Array): NamedTensor {
  if (isIdentity(rows) && rows.length === tensor.dims[0]) {
    return tensor;
  }
  if (tensor.dtype === "string") {
    const parts = Array.from(rows, (row) => sliceRows(tensor, row, row + 1).data.bytes);
    const offsets = new Uint32Array(rows.length + 1);
    for (const [index, part] of parts.entries()) {
      offsets[index + 1] = (offsets[index] ?? 0) + part.length;
    }
    const bytes = new Uint8Array(offsets.at(-1) ?? 0);
    for (const [index, part] of parts.entries()) {
      bytes.set(part, offsets[index]);
    }
    return { ...tensor, dims: [rows.length, ...tensor.dims.slice(1)], data: { offsets, bytes }, numbered: undefined };
  }
  const width = tensor.data.length / (tensor.dims[0] ?? 1);
  const data = allocate(tensorElement(tensor.dtype), rows.length * width);
  for (const [at, row] of rows.entries()) {
    copyValues(data, at * width, tensor.data, row * width, (row + 1) * width);
  }
  return { ...tensor, dims: [rows.length, ...tensor.dims.slice(1)], data };
}

function isIdentity(rows: Uint32Array): boolean {
  return rows.every((row, index) => row === index);
}

function inOrder(outputs: readonly Tensor[], rows: Uint32Array): readonly Tensor[] {
  const places = new Uint32Array(rows.length);
  for (const [at, row] of rows.entries()) {
    places[row] = at;
  }
  // One that has not a value for each row stays as it is: it is refused later.
  return outputs.map((output) => (output.dims[0] === rows.length ? takeRows({ ...output, name: "" }, places) : output));
}

function scatter(
  whole: Tensor | undefined,
  part: Tensor,
  { group, rows }: { readonly group: RowGroup; readonly rows: number },
): Tensor {
  if (part.dtype === "string" || part.dims[0] !== group.rows.length) {
    throw new Error("the model's output is of texts, or has not a value for each row: write shrink: false");
  }
  const rest = part.dims.slice(1);
  const width = elementCount(rest);
  const into = whole ?? {
    dtype: part.dtype,
    dims: [rows, ...rest],
    data: allocate(tensorElement(part.dtype), rows * width),
  };
  if (into.dtype === "string" || into.data.length !== rows * width) {
    throw new Error("the model's output is as wide as the batch: write shrink: false");
  }
  for (const [at, row] of group.rows.entries()) {
    copyValues(into.data, row * width, part.data, at * width, (at + 1) * width);
  }
  return into;
}

interface RowGroup {
  /** Their indices among the rows of the batch. */
  readonly rows: Uint32Array;
  /** Tokens of the longest of them. */
  readonly width: number;
}

/** A call of the model costs about as much as so many tokens of padding. */
const callTokens = 256;
/** More tokens than these leave the processor's cache between two layers. */
const mostTokens = 8192;

/**
 * Sorts rows by length, and cuts them into groups in which little is padding. No row is of no length.
 * @public so that tests see the groups
 */
export function groupByLength(lengths: readonly number[]): RowGroup[] {
  const order = Uint32Array.from(lengths.keys()).toSorted((one, other) => (lengths[other] ?? 0) - (lengths[one] ?? 0));
  const groups: RowGroup[] = [];
  for (let from = 0; from < order.length; ) {
    const width = Math.max(1, lengths[order[from] ?? 0] ?? 0);
    let to = from;
    for (let padding = 0; to < order.length; to += 1) {
      padding += width - (lengths[order[to] ?? 0] ?? 0);
      if (to > from && (padding > callTokens || (to + 1 - from) * width > mostTokens)) {
        break;
      }
    }
    groups.push({ rows: order.subarray(from, to), width });
    from = to;
  }
  return groups;
}

function oneGroup(lengths: readonly number[], width?: number): RowGroup {
  const longest = lengths.reduce((most, length) => Math.max(most, length), 1);
  return { rows: Uint32Array.from(lengths.keys()), width: width ?? longest };
}
