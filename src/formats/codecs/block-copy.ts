/** The two steps that LZ4 and Snappy share: copying literal bytes, and repeating earlier bytes. */

/** Longer runs are copied by the engine. */
const longRun = 32;

/** Copies `length` bytes of `source` from `at`. The range must be within both arrays. */
export function copyLiterals(target: Uint8Array, filled: number, source: Uint8Array, at: number, length: number): void {
  if (length >= longRun) {
    target.set(source.subarray(at, at + length), filled);
    return;
  }
  for (let index = 0; index < length; index += 1) {
    target[filled + index] = source[at + index] as number;
  }
}

/** Repeats `length` bytes that begin `distance` before `filled`. The ranges may overlap. */
export function copyMatch(target: Uint8Array, filled: number, distance: number, length: number): void {
  if (distance >= length && length >= longRun) {
    target.copyWithin(filled, filled - distance, filled - distance + length);
    return;
  }
  for (let index = filled; index < filled + length; index += 1) {
    target[index] = target[index - distance] as number;
  }
}
