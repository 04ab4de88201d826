import type { ColumnProfile } from "../../profiles/column-profile.js";
import { mergeValues, type ValueCounts } from "../../profiles/value-counts.js";
import { hashOfName } from "../../profiles/value-names.js";
import type { NumberProfile } from "../../profiles/number-profile.js";
import { type AlignedCounts, alignNumbers } from "./numbers.js";
import { type FewValues, matchNames } from "../../profiles/few-values.js";

/** The counts of two profiles of one column, side by side. */
export interface Aligned extends AlignedCounts {
  /** NULL, NaN and infinite values. */
  readonly special: readonly { readonly name: string; readonly before: number; readonly now: number }[];
}

/** undefined: profiles of these kinds have no distribution in common. */
export function alignProfiles(before: ColumnProfile, now: ColumnProfile): Aligned | undefined {
  const nulls = { name: "NULL", before: before.nulls, now: now.nulls };
  if (before.kind === "numbers" && now.kind === "numbers") {
    return { ...alignNumbers(before, now), special: [nulls, ...specialNumbers(before.numbers, now.numbers)] };
  }
  if (before.kind === "values" && now.kind === "values") {
    return { ...alignValues(before.values, now.values), special: [nulls] };
  }
  return undefined;
}

/** NaN and the infinities. */
function specialNumbers(before: NumberProfile, now: NumberProfile): Aligned["special"] {
  return [
    { name: "NaN", before: before.nan, now: now.nan },
    { name: "Infinity", before: before.positiveInfinite, now: now.positiveInfinite },
    { name: "-Infinity", before: before.negativeInfinite, now: now.negativeInfinite },
  ];
}

const noNames = { values: 0, nameBytes: 0 };

function alignValues(before: ValueCounts, now: ValueCounts): AlignedCounts {
  if (before.kind === "few" && now.kind === "few") {
    return alignFew(...matchNames(before, now));
  }
  return {
    before: hashedOf(before),
    now: hashedOf(now),
    name: (from, to) => `values with hash ${from}${from === to ? "" : ` to ${to}`}`,
  };
}

/** The entries of rare values, which have no names, come after the others. */
function alignFew(before: FewValues, now: FewValues): AlignedCounts {
  const names = [...new Set([...before.counts.keys(), ...now.counts.keys()])].toSorted();
  const bins = (before.rare ?? now.rare)?.hashed.length ?? 0;
  const countsOf = ({ counts, rare }: FewValues): Float64Array =>
    Float64Array.from({ length: names.length + bins }, (_, entry) =>
      entry < names.length ? (counts.get(names[entry] as string) ?? 0) : (rare?.hashed[entry - names.length] ?? 0),
    );
  const nameOf = (entry: number): string => names[entry] ?? `rare values with hash ${entry - names.length}`;
  return {
    before: countsOf(before),
    now: countsOf(now),
    name: (from, to) => (from === to ? nameOf(from) : `${nameOf(from)} to ${nameOf(to)}`),
  };
}

function hashedOf(values: ValueCounts): Float64Array {
  const hashed = mergeValues({ kind: "few", counts: new Map([["", 0]]) }, values, noNames, hashOfName);
  return hashed.kind === "many" && hashed.hashed !== undefined ? hashed.hashed : new Float64Array(0);
}
