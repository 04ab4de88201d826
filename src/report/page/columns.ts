import { checkOf } from "../../checks/checks.js";
import { rangeText } from "../../base/shown-numbers.js";
import { type Finding, type Level, roleOf } from "../../checks/check.js";
import {
  areClasses,
  type ColumnProfile,
  countedRows,
  countedValues,
  namesOf,
  quantileOf,
  valueText,
} from "../../checks/profile/column.js";
import { quantile } from "../../checks/profile/histogram.js";
import type { ColumnProfiles, RunProfile } from "../../checks/profile/run-profile.js";
import type { AttemptRecord, RunReview } from "../attempt-record.js";
import { equalSteps, momentsOf } from "../column-stats.js";
import { showNumber } from "./html.js";

/** A column of the run, with the same column of earlier runs. */
export interface PageColumn {
  readonly name: string;
  readonly role: "output" | "feature";
  readonly now: ColumnProfile;
  /** The column in the earlier run that the check of its shape found nearest, or else in the last one; undefined: none. */
  readonly nearest: { readonly run: RunProfile; readonly column: ColumnProfile } | undefined;
  /** The column in each run that this one is compared with, as far as it has it with the same type. */
  readonly earlier: readonly ColumnProfile[];
  /** The column in each run of the small charts, the latest last; undefined: that run has no such column, or its type differs. */
  readonly history: readonly (ColumnProfile | undefined)[];
  readonly level: Level;
  /** How far its shape is from the nearest run, in times of what is allowed; undefined: it is not compared. */
  readonly times: number | undefined;
  /** The values that checks that did not pass name. */
  readonly failing: ReadonlySet<string>;
}

/**
 * The outputs and features of a run; those with the worst results come first. Without a review, it returns the outputs
 * of this attempt.
 */
export function pageColumns(record: AttemptRecord): PageColumn[] {
  const { review } = record;
  const outputs = review?.profile.outputs ?? record.profile()?.columns ?? new Map<string, ColumnProfile>();
  const features = review?.profile.features ?? new Map<string, ColumnProfile>();
  const of = (role: PageColumn["role"], columns: ColumnProfiles): PageColumn[] =>
    [...columns].map(([name, now]) => {
      const results = resultsOf(review, { name, role });
      const shape = results.find(({ check }) => check === "shape");
      const inRun = (run: RunProfile): ColumnProfile | undefined => {
        const before = (role === "output" ? run.outputs : run.features).get(name);
        return before?.type === now.type ? before : undefined;
      };
      const runs = review?.earlier ?? [];
      const run = runs.find(({ runId }) => runId === shape?.against) ?? runs.at(-1);
      const column = run && inRun(run);
      return {
        name,
        role,
        now,
        nearest: run && column && { run, column },
        earlier: runs.flatMap((each) => inRun(each) ?? []),
        history: review === undefined ? [] : runsBefore(review).map(inRun),
        level: levelOf(results),
        times: shape && Number(shape.measured) / Number(shape.limit),
        failing: failingValues(results),
      };
    });
  return [...of("output", outputs), ...of("feature", features)].toSorted(
    (left, right) =>
      levels.indexOf(right.level) - levels.indexOf(left.level) ||
      (left.level === "pass" ? 0 : (right.times ?? 0) - (left.times ?? 0)),
  );
}

function failingValues(results: readonly Finding[]): ReadonlySet<string> {
  const failed = results.filter(({ level }) => level !== "pass");
  return new Set(
    failed.flatMap((finding) => {
      const { value, gone } = finding.numbers;
      const named = [value, gone].flatMap((each) => (each === undefined ? [] : [String(each)]));
      return checkOf(finding).valuesIn?.(finding) ?? named;
    }),
  );
}

/** An output and a feature may have the same name. */
function resultsOf(review: RunReview | undefined, { name, role }: Pick<PageColumn, "name" | "role">): Finding[] {
  const { results = [] } = review?.verdict?.verdict ?? {};
  return results.filter((result) => result.column === name && roleOf(result) === role);
}

/** Returns the published runs of the small charts; where they are not known, those that the run is compared with. */
export function runsBefore({ history, earlier, reference }: RunReview): readonly RunProfile[] {
  return history ?? (reference === undefined ? earlier : []);
}

const levels: readonly Level[] = ["pass", "warn", "hold"];

function levelOf(results: readonly Finding[]): Level {
  return levels.findLast((level) => results.some((result) => result.level === level)) ?? "pass";
}

/** The level of a check that is about the whole run. */
export function levelOfRun({ verdict }: RunReview, check: Finding["check"]): Level {
  return levelOf((verdict?.verdict.results ?? []).filter((result) => result.column === null && result.check === check));
}

/** The values of a column in a run, and in an earlier run if it has the column. */
export type Distribution = NumberDistribution | ValueDistribution;

export interface NumberDistribution {
  readonly kind: "numbers";
  /** The range that the bins divide. Values outside of it count in the first or the last bin. */
  readonly range: readonly [low: number, high: number];
  readonly now: Binned;
  readonly before: Binned | undefined;
}

interface Binned {
  readonly bins: readonly number[];
  readonly total: number;
  readonly min: number;
  readonly max: number;
  readonly mean: number;
  /** NaN: it is not known. */
  readonly deviation: number;
}

export interface ValueDistribution {
  readonly kind: "values";
  /** The most frequent values, or whole numbers in ascending order. */
  readonly values: readonly ValueCount[];
  /** All other values together; undefined: there are none. */
  readonly others: ValueCount | undefined;
  readonly total: number;
  /** The number of values in the earlier run; 0: it has no such column. */
  readonly totalBefore: number;
}

export interface ValueCount {
  readonly name: string;
  readonly now: number;
  readonly before: number;
}

/** If there are more values, the last bar is that of all other values together. */
const mostBars = 10;

/** Returns the distribution of a column; undefined: its values are not profiled, or it has none. */
export function distributionOf({
  now,
  nearest,
  failing,
}: Pick<PageColumn, "now" | "nearest" | "failing">): Distribution | undefined {
  const before = nearest?.column;
  if (countedRows(now) === 0) {
    return undefined;
  }
  if (now.kind === "values" || (isFew(now) && (before === undefined || isFew(before)))) {
    return valuesOf(now, before, failing);
  }
  if (now.kind !== "numbers" && now.kind !== "vectors") {
    return undefined;
  }
  const earlier = before?.kind === now.kind && countedRows(before) > 0 ? before : undefined;
  const range = rangeOf(earlier === undefined ? [now] : [now, earlier]);
  return { kind: "numbers", range, now: binned(now, range), before: earlier && binned(earlier, range) };
}

/** Numbers that are shown one by one, if they are no classes. */
const fewNumbers = 4;

function isFew(column: ColumnProfile): boolean {
  return areClasses(column) || (countedValues(column)?.length ?? Number.POSITIVE_INFINITY) <= fewNumbers;
}

function valuesOf(
  now: ColumnProfile,
  before: ColumnProfile | undefined,
  failing: ReadonlySet<string>,
): ValueDistribution {
  const counts = new Map<string, { readonly name: string; now: number; before: number }>();
  const unnamed = { name: "other values", now: 0, before: 0 };
  for (const [when, column] of [
    ["now", now],
    ["before", before],
  ] as const) {
    const names = new Map([...(before === undefined ? [] : namesOf(before)), ...namesOf(now)]);
    const values = column === undefined ? [] : (countedValues(column) ?? [{ key: -1, rows: countedRows(column) }]);
    for (const { key, rows } of values) {
      const name = names.get(key) ?? (column?.kind === "numbers" ? valueText(column, key) : undefined);
      const count = name === undefined ? unnamed : (counts.get(name) ?? { name, now: 0, before: 0 });
      count[when] += rows;
      if (name !== undefined) {
        counts.set(name, count);
      }
    }
  }
  const [total, totalBefore] = [countedRows(now), before === undefined ? 0 : countedRows(before)];
  const all = [...counts.values()];
  const share = (value: ValueCount): number =>
    Math.max(value.now / Math.max(total, 1), value.before / Math.max(totalBefore, 1));
  const byShare = all.toSorted((left, right) => share(right) - share(left) || (left.name < right.name ? -1 : 1));
  const ranked = byShare.toSorted((left, right) => Number(failing.has(right.name)) - Number(failing.has(left.name)));
  const hasMore = ranked.length > mostBars || unnamed.now + unnamed.before > 0;
  const rest = ranked.slice(hasMore ? mostBars - 1 : mostBars);
  const shown = byShare.filter((value) => !rest.includes(value));
  const sum = (when: "now" | "before"): number => rest.reduce((rows, value) => rows + value[when], unnamed[when]);
  const values =
    now.kind === "numbers" ? shown.toSorted((left, right) => Number(left.name) - Number(right.name)) : shown;
  const others = hasMore ? { name: "other values", now: sum("now"), before: sum("before") } : undefined;
  return { kind: "values", values, others, total, totalBefore };
}

/** How far beyond the middle 98% of values, in their widths: with an outlier on the axis, all others share one bar. */
const farOff = 0.5;

type Numbers = Parameters<typeof momentsOf>[0];

/** The smallest to the largest value, without a few values that are far from all others. */
function rangeOf(profiles: readonly Numbers[]): readonly [number, number] {
  const moments = profiles.map(momentsOf);
  const at = (share: number): number[] => profiles.map(({ values }) => quantile(values, share) ?? 0);
  const [low, high] = [Math.min(...at(0.01)), Math.max(...at(0.99))];
  const [min, max] = [Math.min(...moments.map((each) => each.min)), Math.max(...moments.map((each) => each.max))];
  if (low === high) {
    return [min, max];
  }
  const margin = farOff * (high - low);
  return [min < low - margin ? low : min, max > high + margin ? high : max];
}

function binned(profile: Numbers, [low, high]: readonly [number, number]): Binned {
  return { bins: equalSteps(profile.values, low, high), total: countedRows(profile), ...momentsOf(profile) };
}

/** The median of a column's numbers or of its vectors' norms; for other columns, the most frequent value. */
export function middleOf(profile: ColumnProfile): string | undefined {
  const middle = quantileOf(profile, 0.5);
  if (middle !== undefined) {
    return showNumber(middle);
  }
  const [first] = (countedValues(profile) ?? []).toSorted((left, right) => right.rows - left.rows);
  return first && valueText(profile, first.key);
}

/** The smallest and the largest median of a column; for columns without numbers, its most frequent values. */
export function usualMiddle(columns: readonly ColumnProfile[]): string | undefined {
  const medians = columns.flatMap((column) => quantileOf(column, 0.5) ?? []);
  if (medians.length > 0) {
    return rangeText(medians, showNumber);
  }
  const names = new Set(columns.flatMap((column) => middleOf(column) ?? []));
  return names.size === 0 ? undefined : [...names].slice(0, 3).join(", ");
}
