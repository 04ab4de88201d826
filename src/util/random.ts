/**
 * Numbers in [0, 1) with 53 random bits, the same ones for a seed on every machine: two steps of xoshiro128** (Blackman
 * and Vigna) each, whose state splitmix32 makes from the seed.
 */
export function randomNumbers(seed: number): () => number {
  let mixed = seed;
  const word = (): number => {
    mixed = (mixed + 0x9e3779b9) | 0;
    let bits = Math.imul(mixed ^ (mixed >>> 16), 0x21f0aaad);
    bits = Math.imul(bits ^ (bits >>> 15), 0x735a2d97);
    return bits ^ (bits >>> 15);
  };
  let [a, b, c, d] = [word(), word(), word(), word()];
  const next = (): number => {
    const result = Math.imul(rotated(Math.imul(b, 5), 7), 9) >>> 0;
    const shifted = b << 9;
    c ^= a;
    d ^= b;
    b ^= c;
    a ^= d;
    c ^= shifted;
    d = rotated(d, 11);
    return result;
  };
  return () => {
    const high = next() >>> 5;
    return (high * 2 ** 26 + (next() >>> 6)) / 2 ** 53;
  };
}

function rotated(word: number, bits: number): number {
  return (word << bits) | (word >>> (32 - bits));
}
