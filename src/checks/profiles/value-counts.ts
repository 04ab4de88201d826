/**
 * How often each value occurs while there are few different ones; of more, how many values fall into each of 256 bins
 * by their hash (texts), or nothing but that they are many (numbers, which have a histogram). Which of the two it is
 * depends on the set of values alone.
 */
export type ValueCounts =
  | { readonly kind: "few"; readonly counts: ReadonlyMap<string, number> }
  | { readonly kind: "many"; readonly hashed: Float64Array | undefined };

export interface ValueLimits {
  /** Different values that are counted one by one. */
  readonly values: number;
  /** Of their names together, each with `countBytes` more. */
  readonly nameBytes: number;
}

export const hashBins = 256;
/** What a count takes in JSON, with what is around it. */
const countBytes = 16;

export const noValues: ValueCounts = { kind: "few", counts: new Map() };
/** The counts of a column of many numbers, which has a histogram instead. */
export const manyNumbers: ValueCounts = { kind: "many", hashed: undefined };

/** Bytes of a name, as limits count it. */
export function costOfName(bytes: number): number {
  return bytes + countBytes;
}

/** The counts, or that there are too many of them. `hashOf`: where values have no histogram. */
export function limitValues(
  counts: ReadonlyMap<string, number>,
  { values, nameBytes }: ValueLimits,
  hashOf: ((name: string) => number) | undefined,
): ValueCounts {
  let bytes = 0;
  for (const name of counts.keys()) {
    bytes += costOfName(encoder.encode(name).length);
  }
  return counts.size <= values && bytes <= nameBytes ? { kind: "few", counts } : tooMany(counts, hashOf);
}

function tooMany(
  counts: ReadonlyMap<string, number>,
  hashOf: ((name: string) => number) | undefined,
): Extract<ValueCounts, { kind: "many" }> {
  if (hashOf === undefined) {
    return { kind: "many", hashed: undefined };
  }
  const hashed = new Float64Array(hashBins);
  for (const [name, count] of counts) {
    const bin = hashOf(name) % hashBins;
    hashed[bin] = (hashed[bin] as number) + count;
  }
  return { kind: "many", hashed };
}

/** The values of both. */
export function mergeValues(
  one: ValueCounts,
  other: ValueCounts,
  limits: ValueLimits,
  hashOf: ((name: string) => number) | undefined,
): ValueCounts {
  if (one.kind === "few" && other.kind === "few") {
    const counts = new Map(one.counts);
    for (const [name, count] of other.counts) {
      counts.set(name, (counts.get(name) ?? 0) + count);
    }
    return limitValues(counts, limits, hashOf);
  }
  const [a, b] = [one, other].map((values) => (values.kind === "many" ? values : tooMany(values.counts, hashOf)));
  const [hashedA, hashedB] = [a?.hashed, b?.hashed];
  return {
    kind: "many",
    hashed:
      hashedA === undefined || hashedB === undefined
        ? undefined
        : hashedA.map((count, bin) => count + (hashedB[bin] as number)),
  };
}

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
