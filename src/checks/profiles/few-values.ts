import { hashBins, hashOfName } from "./value-names.js";

/** The counts of the values of a column that has few different ones. */
export interface FewValues {
  readonly kind: "few";
  readonly counts: ReadonlyMap<string, number>;
  /** The values whose names are left out; default: all are named. */
  readonly rare?: RareValues | undefined;
}

/** Values that are not named, because each of them has few rows. */
export interface RareValues {
  /** How many different ones. */
  readonly values: number;
  /** How many rows they have in each of 256 bins by their hash; of numbers, in one bin. */
  readonly hashed: Float64Array;
}

/** Counts some of the named values by hash, among the rare ones. */
export function moveToRare(few: FewValues, bins: number, isRare: (name: string, rows: number) => boolean): FewValues {
  const counts = new Map(few.counts);
  const hashed = few.rare?.hashed.slice() ?? new Float64Array(bins);
  let values = few.rare?.values ?? 0;
  for (const [name, rows] of few.counts) {
    if (isRare(name, rows)) {
      counts.delete(name);
      const bin = binOf(name, bins);
      hashed[bin] = (hashed[bin] as number) + rows;
      values += 1;
    }
  }
  return values === 0 ? few : { kind: "few", counts, rare: { values, hashed } };
}

function binOf(name: string, bins: number): number {
  return bins === 1 ? 0 : hashOfName(name) % bins;
}

/** The rows of all rare values with the hash of this value. 0: the value is not among the rare ones. */
export function rareRows({ rare }: FewValues, name: string): number {
  return rare?.hashed[binOf(name, rare.hashed.length)] ?? 0;
}

/** The bins that have rare values, with their rows. */
export function rareBins({ rare }: FewValues): (readonly [bin: number, rows: number])[] {
  return [...(rare?.hashed ?? [])].flatMap((rows, bin) => (rows === 0 ? [] : [[bin, rows] as const]));
}

/** The rows of all values whose hash is in a bin, whether they are named or not. */
export function rowsInBin({ counts, rare }: FewValues, bin: number): number {
  let rows = rare?.hashed[bin] ?? 0;
  for (const [name, of] of counts) {
    rows += hashOfName(name) % hashBins === bin ? of : 0;
  }
  return rows;
}

/** The bins of all values, whether they are named or not. */
export function binsOfValues(values: FewValues): ReadonlySet<number> {
  return new Set([
    ...[...values.counts.keys()].map((name) => binOf(name, hashBins)),
    ...rareBins(values).map(([bin]) => bin),
  ]);
}

/**
 * Makes the values of two profiles of one column comparable. A value that one of them names, and that may be among the
 * rare ones of the other, is counted among the rare ones of both.
 */
export function matchNames(one: FewValues, other: FewValues): readonly [FewValues, FewValues] {
  return [matched(one, other), matched(other, one)];
}

function matched(one: FewValues, other: FewValues): FewValues {
  return other.rare === undefined
    ? one
    : moveToRare(one, other.rare.hashed.length, (name) => !other.counts.has(name) && rareRows(other, name) > 0);
}

/** Adds the rare values of two profiles. A value that is rare in both is counted twice in `values`. */
export function mergeRare(one: RareValues | undefined, other: RareValues | undefined): RareValues | undefined {
  if (one === undefined || other === undefined) {
    return one ?? other;
  }
  const hashed = one.hashed.map((rows, bin) => rows + (other.hashed[bin] as number));
  return { values: one.values + other.values, hashed };
}
