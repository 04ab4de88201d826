/** The bins in which values are counted by their hash. */
export const hashBins = 256;

const encoder = new TextEncoder();

/** Texts of up to this many bytes are their own names. A longer one is named by as many of its bytes, and its hash. */
const namedBytes = 64;
const decoder = new TextDecoder();

/** The name of a text, under which it is counted. Texts that agree in 64 bytes and in their hash have one name. */
export function nameOfText(bytes: Uint8Array): string {
  return bytes.length <= namedBytes
    ? decoder.decode(bytes)
    : `${decoder.decode(bytes.subarray(0, namedBytes))}…#${hashBytes(bytes, 0, bytes.length).toString(16).padStart(8, "0")}`;
}

/** The hash of the text that has this name. */
export function hashOfName(name: string): number {
  const bytes = encoder.encode(name);
  const hash = bytes.length > namedBytes ? /…#([0-9a-f]{8})$/.exec(name)?.[1] : undefined;
  return hash === undefined ? hashBytes(bytes, 0, bytes.length) : Number.parseInt(hash, 16);
}

/** Four bytes at a time, as FNV-1a takes one; then as MurmurHash3 ends (public domain, A. Appleby). */
export function hashBytes(bytes: Uint8Array, from: number, to: number): number {
  let hash = 0x811c9dc5 ^ (to - from);
  let at = from;
  for (; at + 3 < to; at += 4) {
    const low = (bytes[at] as number) | ((bytes[at + 1] as number) << 8);
    const high = (bytes[at + 2] as number) | ((bytes[at + 3] as number) << 8);
    hash = Math.imul(hash ^ low ^ (high << 16), 0x01000193);
    hash ^= hash >>> 15;
  }
  for (; at < to; at += 1) {
    hash = Math.imul(hash ^ (bytes[at] as number), 0x01000193);
  }
  return mixHash(hash);
}

export function mixHash(hash: number): number {
  const first = Math.imul(hash ^ (hash >>> 16), 0x85ebca6b);
  const second = Math.imul(first ^ (first >>> 13), 0xc2b2ae35);
  return (second ^ (second >>> 16)) >>> 0;
}
