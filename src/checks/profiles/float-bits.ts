/** Float64 numbers and the same bytes as words of 32 bits. */
export interface FloatBits {
  readonly values: Float64Array;
  readonly words: Uint32Array;
}

export function createFloatBits(length: number): FloatBits {
  const values = new Float64Array(length);
  return { values, words: new Uint32Array(values.buffer) };
}

const probe = createFloatBits(1);
probe.values[0] = 1;

/** Which word of each two has the sign and the exponent: 1 on little-endian machines. */
export const upperWord = probe.words[1] === 0 ? 0 : 1;
