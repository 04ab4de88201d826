import type { ColumnType, ElementType, Values } from "./types.js";

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
  | { readonly dtype: "string"; readonly dims: readonly number[]; readonly data: readonly string[] };

export type NamedTensor = Tensor & { readonly name: string };

/** What a model takes or gives, as the engine reports it. */
export interface TensorSignature {
  readonly name: string;
  /** ONNX element type ("float32", "int64", "string" …); undefined for sequences and maps. */
  readonly dtype: string | undefined;
  /** null: a dimension that may vary. */
  readonly shape: readonly (number | null)[];
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

export function isTensorType(dtype: string | undefined): dtype is TensorType {
  return dtype === "string" || (dtype !== undefined && Object.hasOwn(stored, dtype));
}

/** The column type that a tensor's values become: float16 widens to float32, which holds it exactly. */
export function columnTypeOfTensor(dtype: TensorType): ColumnType & string {
  return dtype === "string" ? "utf8" : dtype === "float16" ? "float32" : dtype;
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
  // The low word only tells whether the value lies above a tie.
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
