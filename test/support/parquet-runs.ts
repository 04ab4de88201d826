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
  const bytes = Array.from({ length: groups * width }, () => 0);
  for (const [index, number] of numbers.entries()) {
    for (let bit = 0; bit < width; bit += 1) {
      const at = index * width + bit;
      bytes[at >> 3] = (bytes[at >> 3] ?? 0) | (((number >> bit) & 1) << (at & 7));
    }
  }
  return [...varint(groups * 2 + 1), ...bytes];
}

/** One number, in whole bytes. */
export function repeatedRun(number: number, times: number, width: number): number[] {
  const bytes = Array.from({ length: Math.ceil(width / 8) }, (_, index) => Math.floor(number / 256 ** index) % 256);
  return [...varint(times * 2), ...bytes];
}
