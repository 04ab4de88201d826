/** Packs numbers as base64: of float32 if none is rounded by it ("f" first), else of float64 ("d" first). */
export function packNumbers(values: Float64Array): string {
  const floats = Float32Array.from(values);
  const isExact = values.every((value, index) => Object.is(floats[index], value));
  return isExact ? `f${toBase64(floats)}` : `d${toBase64(values)}`;
}

/** Reads what `packNumbers` wrote. */
export function unpackNumbers(text: string): Float64Array {
  const bytes = fromBase64(text.slice(1));
  return text.startsWith("f") ? Float64Array.from(new Float32Array(bytes.buffer)) : new Float64Array(bytes.buffer);
}

/** Packs ascending whole numbers as base64: how far each but the first is from the one before. */
export function packSteps(numbers: Float64Array): string {
  return toBase64(Uint32Array.from(numbers.subarray(1), (value, index) => value - (numbers[index] as number)));
}

/** Reads what `packSteps` wrote. @param first the first number; null: there are none */
export function unpackSteps(first: number | null, text: string): Float64Array {
  if (first === null) {
    return new Float64Array(0);
  }
  const steps = new Uint32Array(fromBase64(text).buffer);
  const numbers = new Float64Array(steps.length + 1);
  numbers[0] = first;
  for (const [index, step] of steps.entries()) {
    numbers[index + 1] = (numbers[index] as number) + step;
  }
  return numbers;
}

function toBase64({ buffer, byteOffset, byteLength }: Float32Array | Float64Array | Uint32Array): string {
  return Buffer.from(buffer, byteOffset, byteLength).toString("base64");
}

function fromBase64(text: string): Uint8Array<ArrayBuffer> {
  return new Uint8Array(Buffer.from(text, "base64")); // in a buffer of its own
}
