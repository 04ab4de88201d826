import type { AllRows } from "../profiles/all-rows.js";
import type { ColumnProfile } from "../profiles/column-profile.js";
import type { FewValues } from "../profiles/few-values.js";
import { binEdges } from "../profiles/histogram.js";
import { type NumberProfile, standardDeviation } from "../profiles/number-profile.js";
import { profileJson } from "../profiles/profile-json.js";
import { countedValues } from "./known-values.js";
import type { RunProfile } from "./run-profile.js";
import type { CheckResult } from "./verdict.js";

/** If chance alone makes features the same more often, that says nothing. */
const mostByChance = 1 / 200;

/** Checks whether every feature is the same as in the last run, which suggests that an input table was not refreshed. */
export function checkStale({ features }: RunProfile, last: RunProfile): CheckResult[] {
  let chance = 1;
  for (const [column, now] of features) {
    const before = last.features.get(column);
    const found = sameness(now, before);
    if (before === undefined || found === "other") {
      return [];
    }
    chance *= found === "same" ? chanceOfSame(now, before) : 1;
  }
  if (chance > mostByChance) {
    return [];
  }
  const { file } = last;
  const result: CheckResult = {
    check: "stale",
    column: null,
    level: "warn",
    formula: `features whose profile is that ${file === undefined ? "of the last run" : `in ${file}`}; fewer than all; none where chance makes all the same more often than in one of ${1 / mostByChance} nights`,
    measured: features.size,
    limit: features.size,
    against: last.runId,
    numbers: { features: features.size },
  };
  return [result];
}

/**
 * Compares the profiles of a feature. An exact sum tells numbers apart. Other values need their whole profile: if the samples
 * of the runs have other sizes, or the profile has no values, it is "unknown" whether they are the same.
 */
function sameness(now: ColumnProfile, before: ColumnProfile | undefined): "same" | "unknown" | "other" {
  const [ofNow, ofBefore] = [ofAllRows(now), before && ofAllRows(before)];
  if (ofBefore === undefined || ofNow.rows === 0 || now.type !== before?.type || !isEqual(ofNow, ofBefore)) {
    return "other";
  }
  const { numbers } = ofNow;
  if (numbers !== undefined && numbers.min < numbers.max) {
    return "same";
  }
  if (now.kind === "rows" || now.rows !== before.rows) {
    return "unknown";
  }
  return JSON.stringify(profileJson(before)) === JSON.stringify(profileJson(now)) ? "same" : "other";
}

/**
 * About how often what was compared of a feature would be the same in two nights of so many rows, by chance: the sum of numbers;
 * and the counts of the values, if they are the same, too.
 */
function chanceOfSame(now: ColumnProfile, before: ColumnProfile): number {
  const [values, others] = [countedValues(now), countedValues(before)];
  if (values?.kind !== "few") {
    return 0;
  }
  const ofCounts = others?.kind === "few" && areSame(values, others) ? chanceOfCounts(values) : 1;
  return now.kind === "numbers" ? Math.min(chanceOfSum(now.numbers, values, ofAllRows(now)), ofCounts) : ofCounts;
}

/**
 * A sum of n numbers is near a normal distribution, and the difference of two such sums is 0 with the probability
 * g / (2 s sqrt(pi n)), where s is the standard deviation and g the distance of neighbouring values.
 */
function chanceOfSum(profile: NumberProfile, values: FewValues, { numbers: all }: AllRows): number {
  const chance = gapOf(profile, values) / (2 * standardDeviation(profile) * Math.sqrt(Math.PI * (all?.finite ?? 0)));
  return chance < 1 ? chance : 1;
}

/** Each count but the largest has to be the same. */
function chanceOfCounts({ counts, rare }: FewValues): number {
  const rows = [...counts.values(), ...(rare?.hashed ?? [])].filter((count) => count > 0);
  const others = rows.toSorted((one, other) => other - one).slice(1);
  return others.reduce((chance, count) => chance / (2 * Math.sqrt(Math.PI * count)), 1);
}

function areSame(one: FewValues, other: FewValues): boolean {
  return (
    one.counts.size === other.counts.size &&
    [...one.counts].every(([name, rows]) => other.counts.get(name) === rows) &&
    String(one.rare?.hashed) === String(other.rare?.hashed)
  );
}

/** The smallest distance of neighbouring values, or a lower bound of it. */
function gapOf({ histogram: { keys, shift }, min, max }: NumberProfile, values: FewValues): number {
  const different = values.counts.size + (values.rare?.values ?? 0);
  const edges = [...keys].map((key) => binEdges(key, shift)[0]).toSorted((one, other) => one - other);
  const gaps = edges.slice(1).map((edge, index) => edge - (edges[index] as number));
  return Math.min((max - min) / Math.max(different - 1, 1), ...gaps);
}

/** What a profile says of all rows, also if it is of a sample of them. */
function ofAllRows({ all, rows, nulls, ...profile }: ColumnProfile): AllRows {
  return all ?? { rows, nulls, ...(profile.kind === "numbers" ? { numbers: profile.numbers } : {}) };
}

function isEqual(one: AllRows, other: AllRows): boolean {
  const [numbers, others] = [one.numbers, other.numbers];
  return (
    one.rows === other.rows &&
    one.nulls === other.nulls &&
    numbers?.nan === others?.nan &&
    numbers?.positiveInfinite === others?.positiveInfinite &&
    numbers?.negativeInfinite === others?.negativeInfinite &&
    numbers?.finite === others?.finite &&
    numbers?.min === others?.min &&
    numbers?.max === others?.max &&
    numbers?.sum === others?.sum
  );
}
