import type { Tensor } from "../../columnar/tensor.js";

/** What a row of features consists of. */
export type RowType = "float32" | "float64" | "int32" | "int64";
export type RowValues =
  | Float32Array<ArrayBuffer>
  | Float64Array<ArrayBuffer>
  | Int32Array<ArrayBuffer>
  | BigInt64Array<ArrayBuffer>;
export type Floats = Float32Array<ArrayBuffer> | Float64Array<ArrayBuffer>;

/**
 * The values of rows as an ensemble compares them: doubles as they are, anything else as float32. ONNX Runtime compares
 * whole numbers with float32 thresholds, so it rounds them, ties to even. undefined: rows of another type.
 */
export function floatsOf({ dtype, data, dims }: Tensor, isDouble: boolean): Floats | undefined {
  const floats = dtype === "string" ? undefined : isDouble ? doubles(data) : singles(data);
  return floats?.length === (dims[0] ?? 0) * (dims[1] ?? 0) ? floats : undefined;
}

function doubles(data: unknown): Floats | undefined {
  return data instanceof Float64Array ? (data as Float64Array<ArrayBuffer>) : undefined;
}

function singles(data: unknown): Floats | undefined {
  if (data instanceof Float32Array) {
    return data as Float32Array<ArrayBuffer>;
  }
  if (data instanceof Int32Array) {
    return new Float32Array(data);
  }
  return data instanceof BigInt64Array ? roundLongs(data) : undefined;
}

const firstWordIsLow = new Uint32Array(BigUint64Array.of(1n).buffer)[0] === 1;

/** The float32 next to each. A BigInt for each value would take ten times as long as its two words. */
function roundLongs(data: BigInt64Array): Float32Array<ArrayBuffer> {
  const words = new Uint32Array(data.buffer, data.byteOffset, data.length * 2);
  const [low, high] = firstWordIsLow ? [0, 1] : [1, 0];
  const floats = new Float32Array(data.length);
  for (let index = 0; index < data.length; index += 1) {
    const upper = (words[2 * index + high] as number) | 0;
    let lower = words[2 * index + low] as number;
    if (upper >= 0x200000 || upper < -0x200000) {
      // Beyond 2^53 a float64 rounds, and two roundings may differ from one. Of the bits below 2^12, which are far
      // below the last one of a float32 there, it matters only whether there are any.
      lower = (lower & 0xfff) === 0 ? lower : ((lower & ~0xfff) | 0x800) >>> 0;
    }
    floats[index] = upper * 2 ** 32 + lower;
  }
  return floats;
}
