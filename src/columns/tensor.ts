import type { ColumnType } from "./types.js";
import { type ElementType, type Values, allocate } from "./values.js";

/** ONNX element types that bindings serve. */
export type TensorType = ElementType | "bool" | "float16" | "string";

/** A tensor's values; `dims` multiply to their number. */
export type Tensor =
  | {
      readonly dtype: Exclude<TensorType, "string">;
      readonly dims: readonly number[];
      /** bool: uint8, 0 or 1. float16: uint16, the bits. */
      readonly data: Values;
    }
  | {
      readonly dtype: "string";
      readonly dims: readonly number[];
      readonly data: Texts;
      /** The texts are to be tokenized: the model takes their tokens. */
      readonly tokens?: Tokenizing | undefined;
    };

/** The number of values in a shape. */
export function elementCount(dims: readonly number[]): number {
  return dims.reduce((product, size) => product * size, 1);
}

/** How texts become inputs of a model. */
export interface Tokenizing {
  /** Hex digest of the tokenizer's file. */
  readonly tokenizer: string;
  /** The type of the token ids. */
  readonly dtype: "int32" | "int64";
  /** The greatest number of tokens of a text, special tokens included. Longer texts are truncated. */
  readonly width: number;
  /** The side on which longer texts are cut. */
  readonly cut: "left" | "right";
  /** What shorter texts are padded with, and on which side. */
  readonly value: number;
  readonly side: "left" | "right";
  /** Each call of the model is only as wide as its longest text. */
  readonly shrink: boolean;
  /** The texts of a batch are sorted by length, and scored in several calls. */
  readonly sorted: boolean;
  /** Inputs that are 1 where a text has a token, else 0. */
  readonly masks: readonly DerivedInput[];
  /** Inputs of token types. */
  readonly types: readonly DerivedInput[];
}

/** An input that is made with the token ids. */
export interface DerivedInput {
  readonly input: string;
  readonly dtype: Exclude<TensorType, "string">;
}

export type NamedTensor = Tensor & { readonly name: string };

/**
 * Texts as bytes, since an array of strings is slow to send to another thread. UTF-8: text i is
 * `bytes[offsets[i], offsets[i + 1])`, and all of them are all of `bytes`.
 */
export interface Texts {
  readonly offsets: Uint32Array<ArrayBuffer>;
  readonly bytes: Uint8Array<ArrayBuffer>;
}

/** What a model takes or gives, as the engine reports it. */
export interface TensorSignature {
  readonly name: string;
  /** ONNX element type ("float32", "int64", "string" …); undefined for sequences and maps. */
  readonly dtype: string | undefined;
  /** null: a dimension that may vary. */
  readonly shape: readonly (number | null)[];
}

/** Names of a model's inputs and outputs of texts. */
export interface TextTensors {
  readonly inputs: readonly string[];
  readonly outputs: readonly string[];
}

export interface ModelSignature {
  readonly inputs: readonly TensorSignature[];
  readonly outputs: readonly TensorSignature[];
}

const stored: Readonly<Record<Exclude<TensorType, "string">, ElementType>> = {
  int8: "int8",
  int16: "int16",
  int32: "int32",
  int64: "int64",
  uint8: "uint8",
  uint16: "uint16",
  uint32: "uint32",
  uint64: "uint64",
  float32: "float32",
  float64: "float64",
  bool: "uint8",
  float16: "uint16",
};

export const numericTensorTypes = Object.keys(stored) as readonly Exclude<TensorType, "string">[];

/** The array that holds a tensor of this type. */
export function tensorElement(dtype: Exclude<TensorType, "string">): ElementType {
  return stored[dtype];
}

/** Fills a tensor with ones. */
export function fillOnes(data: Values, dtype: Exclude<TensorType, "string">): void {
  if (data instanceof BigInt64Array || data instanceof BigUint64Array) {
    data.fill(1n);
  } else {
    data.fill(dtype === "float16" ? toFloat16Bits(1) : 1);
  }
}

export function isTensorType(dtype: string | undefined): dtype is TensorType {
  return dtype === "string" || (dtype !== undefined && Object.hasOwn(stored, dtype));
}

/** The column type that a tensor's values become: float16 widens to float32, which holds it exactly. */
export function columnTypeOfTensor(dtype: TensorType): ColumnType & string {
  return dtype === "string" ? "utf8" : dtype === "float16" ? "float32" : dtype;
}

/** The buffers of tensors of numbers. */
export function numericBuffers(tensors: readonly Tensor[]): ArrayBuffer[] {
  return tensors.flatMap((tensor) => (tensor.dtype === "string" ? [] : [tensor.data.buffer]));
}

/** More than this is decoded text by text: a string has a longest length, and long texts gain nothing. Bytes. */
const decodedAtOnce = 1 << 24;

export function decodeTexts({ offsets, bytes }: Texts): string[] {
  const decoder = new TextDecoder("utf-8", { ignoreBOM: true }); // a text may begin with U+FEFF
  const all = bytes.length <= decodedAtOnce ? decoder.decode(bytes) : "";
  const texts: string[] = [];
  for (let index = 1; index < offsets.length; index += 1) {
    const from = offsets[index - 1] ?? 0;
    const to = offsets[index] ?? 0;
    // As long as its bytes, all of it is a character a byte: offsets into one are offsets into the other.
    texts.push(all.length === bytes.length ? all.slice(from, to) : decoder.decode(bytes.subarray(from, to)));
  }
  return texts;
}

export function encodeTexts(texts: readonly string[]): Texts {
  const encoder = new TextEncoder();
  const offsets = new Uint32Array(texts.length + 1);
  let bytes = new Uint8Array(texts.length * 16);
  let at = 0;
  for (const [index, text] of texts.entries()) {
    const textLimit = text.length * 3; // UTF-8 takes at most 3 bytes a UTF-16 unit
    if (at + textLimit > bytes.length) {
      const larger = new Uint8Array(Math.max(at + textLimit, bytes.length * 2));
      larger.set(bytes);
      bytes = larger;
    }
    at += writeAscii(text, bytes, at) ? text.length : encoder.encodeInto(text, bytes.subarray(at)).written;
    offsets[index + 1] = at;
  }
  return { offsets, bytes: bytes.slice(0, at) };
}

/** A call of the encoder takes as long as this many characters here, or more: labels of classes are shorter. */
const shortText = 64;

/** Writes a short text that is a byte a character; false: it is another, and nothing counts. */
function writeAscii(text: string, bytes: Uint8Array, at: number): boolean {
  if (text.length > shortText) {
    return false;
  }
  for (let index = 0; index < text.length; index += 1) {
    const code = text.charCodeAt(index);
    if (code > 127) {
      return false;
    }
    bytes[at + index] = code;
  }
  return true;
}

/** IEEE 754 binary16 bits of a number, rounded once: to nearest, ties to even. */
export function toFloat16Bits(value: number): number {
  scratchFloat[0] = value;
  const low = scratchBits[0] ?? 0;
  const high = scratchBits[1] ?? 0;
  const sign = (high >>> 16) & 0x8000;
  const magnitude = high & 0x7fffffff;
  if (magnitude >= 0x7ff00000) {
    return sign | 0x7c00 | (magnitude > 0x7ff00000 || low !== 0 ? 0x200 : 0);
  }
  if (magnitude < 0x3f100000) {
    // Below 2^-14: subnormal, in units of 2^-24.
    return sign | roundHalfEven(Math.abs(value) * 2 ** 24);
  }
  // The low word only says whether the value is above a tie.
  const sticky = magnitude | (low === 0 ? 0 : 1);
  const rounded = sticky - 0x3f000000 + 0x1ff + ((sticky >>> 10) & 1);
  return sign | Math.min(rounded >>> 10, 0x7c00);
}

export function fromFloat16Bits(bits: number): number {
  const sign = (bits & 0x8000) === 0 ? 1 : -1;
  const exponent = (bits >>> 10) & 0x1f;
  const fraction = bits & 0x3ff;
  if (exponent === 0x1f) {
    return fraction === 0 ? sign * Number.POSITIVE_INFINITY : Number.NaN;
  }
  return sign * (exponent === 0 ? fraction * 2 ** -24 : (1 + fraction / 1024) * 2 ** (exponent - 15));
}

const scratchFloat = new Float64Array(1);
const scratchBits = new Uint32Array(scratchFloat.buffer);

function roundHalfEven(value: number): number {
  const floor = Math.floor(value);
  const rest = value - floor;
  return rest > 0.5 || (rest === 0.5 && floor % 2 === 1) ? floor + 1 : floor;
}

/** Rows of zeros and empty texts, with one element where a size may vary. undefined: no tensor has an input's type. */
export function blankRows(inputs: readonly TensorSignature[], rows: number): NamedTensor[] | undefined {
  const blank = inputs.flatMap((input) => blankTensor(input, rows));
  return blank.length < inputs.length ? undefined : blank;
}

/** Blank rows for each input that is a tensor: so many, where the model does not fix their number. */
export function blankBatch({ inputs }: Pick<ModelSignature, "inputs">, rows = 1): NamedTensor[] {
  return inputs.flatMap((input) => blankTensor(input, input.shape[0] ?? rows));
}

/** Names of the outputs that are tensors. */
export function tensorOutputs({ outputs }: Pick<ModelSignature, "outputs">): string[] {
  return outputs.flatMap(({ name, dtype }) => (dtype === undefined ? [] : [name]));
}

function blankTensor({ name, dtype, shape }: TensorSignature, rows: number): NamedTensor[] {
  if (!isTensorType(dtype)) {
    return [];
  }
  const dims = shape.map((size, index) => (index === 0 ? rows : (size ?? 1)));
  const count = elementCount(dims);
  return dtype === "string"
    ? [{ name, dtype, dims, data: { offsets: new Uint32Array(count + 1), bytes: new Uint8Array() } }]
    : [{ name, dtype, dims, data: allocate(tensorElement(dtype), count) }];
}
