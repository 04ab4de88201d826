import type { CheckResult } from "../checks/verdicts/verdict.js";
import { digitsApart, percent, shown } from "./shown-numbers.js";

/** A median at least so many times as large, or as small, as before suggests that a unit changed. */
const unitRatio = 1.9;

/** Describes how a feature moved: "median 4210, usually 4 to 4.3 (×1,000: unit changed?)". */
export function moveText({ numbers }: CheckResult): string {
  const runs = Number(numbers["runs_before"] ?? 0);
  const shares = (["nulls", "nan"] as const).flatMap((name) => {
    const share = numbers[name];
    const before = numbers[`${name}_before`];
    return share === undefined || before === undefined
      ? []
      : [
          `${percent(share)} ${shareNames[name]}, ${before === 0 ? "none" : `at most ${percent(before)}`} in ${runsText(runs)}`,
        ];
  });
  return [...shares, ...medianText(numbers, runs)].join("; ");
}

const shareNames = { nulls: "NULL", nan: "NaN" } as const;

function runsText(runs: number): string {
  return runs === 1 ? "the last run" : `the last ${runs} runs`;
}

function medianText(numbers: CheckResult["numbers"], runs: number): string[] {
  const { median, smallest_median_before: least, largest_median_before: most, times } = numbers;
  if (median === undefined || least === undefined || most === undefined) {
    return [];
  }
  const isUnit = times !== undefined && (Number(times) >= unitRatio || Number(times) <= 1 / unitRatio);
  const isUsual = median >= least && median <= most;
  const digits = digitsApart(median, isUsual ? median : median < least ? least : most);
  const [small, large] = [shown(least, digits), shown(most, digits)];
  const before = small === large ? small : `${small} to ${large}`;
  const usual = runs === 1 ? `${before} in ${runsText(runs)}` : `usually ${before}`;
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
