// Numbers as Parquet keeps levels and places in dictionaries:
// https://github.com/apache/parquet-format/blob/master/Encodings.md#RLE

/** LEB128, of numbers that are not negative. */
export function varint(value: number | bigint): number[] {
  const bytes: number[] = [];
  let rest = BigInt(value);
  for (; rest > 127n; rest >>= 7n) {
    bytes.push(Number(rest & 127n) | 128);
  }
  return [...bytes, Number(rest)];
}

/** Numbers of `width` bits each, at most 24, the lowest bit first; padded with zeros to groups of eight. */
export function packedRun(numbers: readonly number[], width: number): number[] {
  const groups = Math.ceil(numbers.length / 8);
  const bytes = new Uint8Array(groups * width);
  let [held, bits, at] = [0, 0, 0];
  for (const number of numbers) {
    held |= number << bits;
    for (bits += width; bits >= 8; bits -= 8) {
      bytes[at] = held;
      held >>>= 8;
      at += 1;
    }
  }
  if (bits > 0) {
    bytes[at] = held;
  }
  return [...varint(groups * 2 + 1), ...bytes];
}

/** One number, in whole bytes. */
export function repeatedRun(number: number, times: number, width: number): number[] {
  const bytes = Array.from({ length: Math.ceil(width / 8) }, (_, index) => Math.floor(number / 256 ** index) % 256);
  return [...varint(times * 2), ...bytes];
}

/** Runs of numbers below `limit`, and the numbers. */
export function anyRuns(
  random: () => number,
  width: number,
  limit: number,
): { readonly bytes: number[]; readonly numbers: number[] } {
  const below = (most: number): number => Math.floor(random() * most);
  const [bytes, numbers]: [number[], number[]] = [[], []];
  for (let runs = 1 + below(6); runs > 0; runs -= 1) {
    if (random() < 0.5) {
      const times = 1 + below(300);
      const number = below(limit);
      bytes.push(...repeatedRun(number, times, width));
      numbers.push(...Array.from({ length: times }, () => number));
    } else {
      const some = Array.from({ length: runs === 1 ? 1 + below(70) : 8 * (1 + below(9)) }, () => below(limit));
      bytes.push(...packedRun(some, width));
      numbers.push(...some);
    }
  }
  return { bytes, numbers };
}

/** Runs of numbers of one bit, of which some bytes may be changed, with a count that may not be that of the numbers. */
export function damagedBits(random: () => number): { readonly bytes: number[]; readonly count: number } {
  const below = (most: number): number => Math.floor(random() * most);
  const { bytes, numbers } = anyRuns(random, 1, 2);
  const count = Math.max(1, numbers.length + (random() < 0.2 ? below(20) - 10 : 0));
  for (let flips = below(3); random() < 0.5 && flips > 0; flips -= 1) {
    bytes[below(bytes.length)] = below(256);
  }
  return { bytes, count };
}
