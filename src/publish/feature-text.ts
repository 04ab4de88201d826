import { isNewUnit } from "../checks/verdicts/feature-moves.js";
import type { CheckResult } from "../checks/verdicts/verdict.js";
import { printable } from "../util/printable.js";
import { digitsApart, percent, shown, shownValue } from "./shown-numbers.js";

/** Columns that only warn and are named; of more, the others are counted. */
const mostNamed = 10;

/**
 * Names the columns that only warn, of a run that others hold: the cause may be among them. "2 more columns only warn: age
 * (PSI 0.854), score (`ranks`)". undefined: there are none.
 */
export function warnedText(results: readonly CheckResult[]): string | undefined {
  const holding = new Set(results.filter(({ level }) => level === "hold").map(columnKey));
  const byColumn = new Map<string, CheckResult>();
  for (const result of results.filter(({ level, column }) => level === "warn" && column !== null)) {
    const [key, known] = [columnKey(result), byColumn.get(columnKey(result))];
    if (!holding.has(key) && (known === undefined || psiOf(result) > psiOf(known))) {
      byColumn.set(key, result);
    }
  }
  const warned = [...byColumn.values()].toSorted((one, other) => psiOf(other) - psiOf(one));
  const names = warned
    .slice(0, mostNamed)
    .map(({ column, check, measured }) => `${column} (${check === "psi" ? `PSI ${shown(measured)}` : `\`${check}\``})`);
  const more = warned.length > mostNamed ? `, and ${warned.length - mostNamed} others` : "";
  const count = warned.length === 1 ? "1 more column only warns" : `${warned.length} more columns only warn`;
  return warned.length === 0 ? undefined : printable(`${count}: ${names.join(", ")}${more}`);
}

/** Distinguishes columns. An output and a feature may have the same name. */
export function columnKey({ column, isFeature }: Pick<CheckResult, "column" | "isFeature">): string {
  return JSON.stringify([isFeature === true, column]);
}

/** The PSI of a result, and less than any PSI for a result of another check. */
export function psiOf(result: CheckResult | undefined): number {
  return result?.check === "psi" ? Number(result.measured) : -1;
}

/**
 * Describes how a feature moved: "median 4210, usually 4 to 4.3 (×1,000: unit changed?)". `file`: that of `checks.baseline`,
 * with which it is compared; undefined: with earlier runs.
 */
export function moveText({ numbers, bins }: CheckResult, file?: string): string {
  const runs = Number(numbers["runs_before"] ?? 0);
  const source = file ?? (runs === 1 ? "the last run" : `the last ${runs} runs`);
  const shares = (["nulls", "nan"] as const).flatMap((name) => {
    const share = numbers[name];
    const was = numbers[`${name}_before`];
    return share === undefined || was === undefined
      ? []
      : [
          `${percent(share)} ${shareNames[name]}, ${was === 0 ? "none" : `${runs === 1 ? "" : "at most "}${percent(was)}`} in ${source}`,
        ];
  });
  // Where most rows became NULL or NaN, all other shares fell.
  const isOfValues = numbers["median"] === undefined && shares.length === 0;
  const moved = isOfValues ? fallenText(bins, file) : medianText(numbers, { runs, source });
  return [...shares, ...moved].join("; ");
}

/** A smaller fall of a share is no explanation. */
const leastFall = 0.01;

/** Names the value whose share fell most: "IT in 0% of the rows, 15.2% before". */
function fallenText(bins: CheckResult["bins"] = [], file?: string): string[] {
  const [allNow, allBefore] = bins.reduce(([now, before], bin) => [now + bin.now, before + bin.before], [0, 0]);
  const shares = bins
    .filter(({ values }) => values !== "NULL" && !values.includes("values with hash "))
    .map(({ values, now, before }) => ({ values, now: now / allNow, before: before / allBefore }))
    .toSorted((one, other) => other.before - other.now - (one.before - one.now));
  const [most] = shares;
  return most === undefined || !(most.before - most.now >= leastFall)
    ? []
    : [
        `${shownValue(most.values)} in ${percent(most.now)} of the rows, ${percent(most.before)} ${file === undefined ? "before" : `in ${file}`}`,
      ];
}

const shareNames = { nulls: "NULL", nan: "NaN" } as const;

function medianText(
  numbers: CheckResult["numbers"],
  { runs, source }: { readonly runs: number; readonly source: string },
): string[] {
  const { median, smallest_median_before: least, largest_median_before: most, times } = numbers;
  if (median === undefined || least === undefined || most === undefined) {
    return [];
  }
  const isUnit = times !== undefined && isNewUnit(Number(times));
  const isUsual = median >= least && median <= most;
  const digits = digitsApart(median, isUsual ? median : median < least ? least : most);
  const [small, large] = [shown(least, digits), shown(most, digits)];
  const before = small === large ? small : `${small} to ${large}`;
  const usual = runs === 1 ? `${before} in ${source}` : `usually ${before}`;
  const what = numbers["of"] === "norms" ? "median norm" : "median";
  return [`${what} ${shown(median, digits)}, ${usual}${isUnit ? ` (${timesText(Number(times))}: unit changed?)` : ""}`];
}

/** Ratios of usual units; a ratio close to one of them is shown as that one. */
const usualRatios = [10, 100, 1000, 1e6, 1e9, 24, 60, 3600];
const nearly = 1.05;

/** "×1,000", "÷1,000". */
function timesText(times: number): string {
  const ratio = times >= 1 ? times : 1 / times;
  const usual = usualRatios.find((each) => ratio / each < nearly && each / ratio < nearly);
  const text = (usual ?? Number(ratio.toPrecision(2))).toLocaleString("en-US");
  return `${times >= 1 ? "×" : "÷"}${text}`;
}
