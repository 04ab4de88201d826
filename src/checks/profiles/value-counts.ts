import { type FewValues, matchNames, mergeRare } from "./few-values.js";
import { hashBins } from "./value-names.js";

/**
 * How often each value occurs while there are few different ones; of more, how many values fall into each of 256 bins
 * by their hash (texts), or nothing but that they are many (numbers, which have a histogram). Which of the two it is
 * depends on the set of values alone.
 */
export type ValueCounts = FewValues | { readonly kind: "many"; readonly hashed: Float64Array | undefined };

export interface ValueLimits {
  /** Different values that are counted one by one. */
  readonly values: number;
  /** Of their names together, each with `countBytes` more. */
  readonly nameBytes: number;
}

const encoder = new TextEncoder();
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
  limits: ValueLimits,
  hashOf: ((name: string) => number) | undefined,
): ValueCounts {
  return limitFew({ kind: "few", counts }, limits, hashOf);
}

function limitFew(
  few: FewValues,
  { values, nameBytes }: ValueLimits,
  hashOf: ((name: string) => number) | undefined,
): ValueCounts {
  const { counts } = few;
  let bytes = 0;
  for (const name of counts.keys()) {
    bytes += costOfName(encoder.encode(name).length);
  }
  return counts.size <= values && bytes <= nameBytes ? few : tooMany(few, hashOf);
}

function tooMany(
  { counts, rare }: FewValues,
  hashOf: ((name: string) => number) | undefined,
): Extract<ValueCounts, { kind: "many" }> {
  if (hashOf === undefined) {
    return { kind: "many", hashed: undefined };
  }
  const hashed = rare?.hashed.slice() ?? new Float64Array(hashBins);
  for (const [name, count] of counts) {
    const bin = hashOf(name) % hashBins;
    hashed[bin] = (hashed[bin] as number) + count;
  }
  return { kind: "many", hashed };
}

/** Merges the counts of the values of different rows. */
export function mergeValues(
  one: ValueCounts,
  other: ValueCounts,
  limits: ValueLimits,
  hashOf: ((name: string) => number) | undefined,
): ValueCounts {
  if (one.kind === "few" && other.kind === "few") {
    const [few, more] = matchNames(one, other);
    const counts = new Map(few.counts);
    for (const [name, count] of more.counts) {
      counts.set(name, (counts.get(name) ?? 0) + count);
    }
    const rare = mergeRare(few.rare, more.rare);
    return limitFew({ kind: "few", counts, ...(rare === undefined ? {} : { rare }) }, limits, hashOf);
  }
  const [a, b] = [one, other].map((values) => (values.kind === "many" ? values : tooMany(values, hashOf)));
  const [hashedA, hashedB] = [a?.hashed, b?.hashed];
  return {
    kind: "many",
    hashed:
      hashedA === undefined || hashedB === undefined
        ? undefined
        : hashedA.map((count, bin) => count + (hashedB[bin] as number)),
  };
}
