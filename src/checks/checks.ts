import {
  type Cause,
  type Check,
  type ComparedColumn,
  comparedNights,
  type Earlier,
  enoughNights,
  type Finding,
  type JudgedNight,
  leastRows,
  type Limits,
  type NightColumn,
  olderNights,
  type Result,
  type Verdict,
} from "./check.js";
import type { ColumnProfiles, RunProfile } from "./profile/run-profile.js";
import { classCheck, constantCheck, nullsCheck, unseenCheck } from "./rules/values.js";
import { columnCheck, rejectsCheck, repeatCheck, rowsCheck, twiceCheck } from "./rules/run.js";
import { directionCheck, farCheck, onlyGrows } from "./rules/place.js";
import { driftCheck, shapeCheck } from "./rules/shape.js";
import { inCheck, rangeCheck, sqlCheck, uniqueCheck } from "./rules/spec.js";

/** All checks, in the order of their results. */
const checks: readonly Check[] = [
  rowsCheck,
  rejectsCheck,
  twiceCheck,
  repeatCheck,
  columnCheck,
  constantCheck,
  rangeCheck,
  inCheck,
  nullsCheck,
  unseenCheck,
  farCheck,
  shapeCheck,
  classCheck,
  directionCheck,
  driftCheck,
  uniqueCheck,
  sqlCheck,
];

export function checkOf({ check }: Pick<Finding, "check">): Check {
  return checks.find(({ name }) => name === check) as Check;
}

/** A longer gap than so many usual ones: what comes after it is judged as first nights are. */
const longGap = 7;

/** What a run is compared with, of earlier runs, the latest last. @param isFile it is the run of a file that a person named */
export function earlierThan(date: string, runs: readonly RunProfile[], isFile = false): Earlier {
  const nights = runs.slice(-comparedNights);
  const dates = [...nights.map((night) => night.date), date].map((text) => Date.parse(text));
  const gaps = dates.slice(1).map((time, index) => time - (dates[index] as number));
  const usual = gaps.toSorted((left, right) => left - right)[Math.floor((gaps.length - 1) / 2)] ?? 0;
  const last = gaps.findLastIndex((gap) => gap > longGap * usual);
  const known = isFile || last < 0 ? nights.length : Math.max(1, nights.length - 1 - last);
  return {
    nights,
    older: isFile ? [] : runs.slice(0, -comparedNights).slice(-olderNights),
    known: Math.min(known, enoughNights),
    isFile,
  };
}

/** What the runs of a day have read so far, and those of earlier days until the same time, the latest last. */
export interface ComparedDay {
  readonly run: RunProfile;
  readonly earlier: readonly RunProfile[];
  readonly signs: DaySigns;
}

/** What was suspicious until the run before it, and how many rows the day had when it first was; 0: the day before had it. */
export type DaySigns = Readonly<Record<string, number>>;

/** A day is looked at many times. So a sign holds a run if it lasts while the rows of the day become so many times as many. */
const lastingTimes = 2;
const notLasting = "it holds a run if it lasts until the rows of the day have doubled, or the next day";

export interface Judged {
  readonly run: RunProfile;
  readonly earlier: Earlier;
  readonly limits: Limits;
  /** Results of checks that need more than profiles. */
  readonly others?: readonly Finding[];
}

export function judge({ run, earlier, limits, others = [] }: Judged): Verdict {
  const compared = comparedColumns(run, earlier, limits);
  const growing = compared.filter(({ nights, now }) => onlyGrows(nights, now));
  const columns = compared.filter((column) => !growing.includes(column) && column.factor < Number.POSITIVE_INFINITY);
  const night: JudgedNight = { run, earlier, limits, columns };
  const findings = checks.flatMap((check) => {
    const own = (check.judge?.(night) ?? []).map((result) => foundBy(check, result));
    return own.concat(others.filter((finding) => finding.check === check.name));
  });
  const slices = new Set(columns.filter(({ role }) => role === "slice").map(({ name }) => name));
  const results = findings
    .filter(({ column, level }) => level !== "pass" || !slices.has(column ?? ""))
    .map((finding) => (slices.has(finding.column ?? "") ? lowered(finding, "a slice") : excused(finding, limits)));
  const holds = limits.onFail === "hold" && results.some(({ level }) => level === "hold");
  return {
    outcome: holds ? "hold" : "publish",
    runId: run.runId,
    date: run.date,
    baseline: earlier.nights.map(({ runId }) => runId),
    known: earlier.known,
    modelChanged:
      earlier.nights.length > 0 && !earlier.nights.some(({ modelSha256 }) => modelSha256 === run.modelSha256),
    results,
    growing: growing.map(({ name }) => name),
  };
}

/** Judges a run of a chain: its own rows by absolute checks, and those of its day so far beside earlier days. */
export function judgeDay(own: Judged, { run, earlier, signs }: ComparedDay): Verdict {
  const alone = judge(own);
  const together = judge({ run, earlier: earlierThan(run.date, earlier), limits: own.limits });
  const ofDay = together.results.filter((result) => !isAbsolute(result));
  const lasting = ofDay.map((result) => unlessNew(result, run.rows, signs));
  const results = [...alone.results.filter((result) => result.level !== "pass" || isAbsolute(result)), ...lasting];
  const holds = own.limits.onFail === "hold" && results.some(({ level }) => level === "hold");
  return { ...together, runId: own.run.runId, outcome: holds ? "hold" : "publish", results };
}

/** What would hold a run only warns until the day has so many more rows; but a column that is gone holds at once. */
function unlessNew(result: Finding, rows: number, signs: DaySigns): Finding {
  if (result.level !== "hold" || typeof result.measured === "string") {
    return result;
  }
  const first = signs[signOf(result)] ?? Math.max(rows, leastRows);
  const sign = { ...result, numbers: { ...result.numbers, first } };
  return rows < lastingTimes * first ? lowered(sign, notLasting) : sign;
}

export function signsIn({ results }: Pick<Verdict, "results">): DaySigns {
  return Object.fromEntries(
    results.flatMap((result) =>
      result.numbers["first"] === undefined ? [] : [[signOf(result), Number(result.numbers["first"])]],
    ),
  );
}

function signOf({ check, column, isFeature }: Finding): string {
  return JSON.stringify([check, column, isFeature === true]);
}

function isAbsolute(finding: Finding): boolean {
  return checkOf(finding).isAbsolute?.(finding) === true;
}

function foundBy({ name: check }: Check, result: Result): Finding {
  return { check, ...result };
}

function lowered(finding: Finding, why: string): Finding {
  return finding.level === "hold" ? { ...finding, level: "warn", lowered: why } : finding;
}

function excused(finding: Finding, { expected, onFail }: Limits): Finding {
  if (expected === undefined || finding.level !== "hold" || isAbsolute(finding)) {
    return finding;
  }
  const excuse = lowered(finding, `expected to differ: ${expected.reason}`);
  return expected.asBaseline || onFail === "warn" ? excuse : { ...excuse, isExcused: true };
}

/** Rows of a slice that is compared. */
const sliceRows = 1000;

type ColumnsOf = (run: RunProfile) => ColumnProfiles | undefined;

function inRuns(
  runs: readonly RunProfile[],
  of: ColumnsOf,
  { name, type }: { readonly name: string; readonly type: string },
): NightColumn[] {
  return runs.flatMap((night) => {
    const column = of(night)?.get(name);
    return column === undefined || column.type !== type || column.rows === 0 ? [] : [{ run: night, column }];
  });
}

function comparedColumns(
  run: RunProfile,
  { nights, older }: Earlier,
  { factor, outputs, inputs }: Limits,
): ComparedColumn[] {
  const of = (role: ComparedColumn["role"], columns: ColumnsOf, slice?: string): ComparedColumn[] =>
    [...(columns(run) ?? [])].map(([name, now]) => ({
      name: slice === undefined ? name : `${slice}: ${name}`,
      role,
      now,
      nights: inRuns(nights, columns, { name, type: now.type }),
      older: role === "output" ? inRuns(older, columns, { name, type: now.type }) : [],
      factor: (role === "feature" ? inputs : outputs).get(name)?.factor ?? factor,
    }));
  return [
    ...of("feature", ({ features }) => features),
    ...of("output", (each) => each.outputs),
    ...of("carried", ({ carried }) => carried),
    ...[...run.slices.keys()].flatMap((slice) =>
      of("slice", ({ slices }) => slices.get(slice), slice).filter(({ now }) => now.rows >= sliceRows),
    ),
  ];
}

export interface PreviousModel {
  readonly modelSha256: string;
  /** The rows of this run that it scored: all, or a sample. */
  readonly rows: number;
  readonly outputs: ColumnProfiles;
}

/** Whether an output of a new model did not pass, so that the model of the last run can tell the cause. */
export function asksForPrevious({ modelChanged, results }: Verdict, { outputs }: RunProfile): boolean {
  return modelChanged && results.some((result) => isOfOutput(result, outputs));
}

function isOfOutput(finding: Finding, outputs: ColumnProfiles): boolean {
  const { level, column, isFeature } = finding;
  const isOfProfile = checkOf(finding).judge !== undefined;
  return level !== "pass" && outputs.has(column ?? "") && isFeature !== true && isOfProfile;
}

/** The cause is the data if the last model's predictions for rows of this run do not pass either. */
export function judgeWithPrevious(
  judged: Judged,
  verdict: Verdict,
  { modelSha256, rows, outputs }: PreviousModel,
): Verdict {
  const before = judge({ ...judged, run: { ...judged.run, outputs } });
  const results = verdict.results.map((result) => {
    if (!isOfOutput(result, outputs)) {
      return result;
    }
    const same = before.results.find(
      ({ check, column, isFeature, against, numbers }) =>
        check === result.check &&
        column === result.column &&
        isFeature === result.isFeature &&
        (against === null) === (result.against === null) &&
        numbers["value"] === result.numbers["value"],
    );
    const isModel = same === undefined || same.level === "pass";
    const cause: Cause = { of: isModel ? "model" : "data", previous: same?.measured ?? "pass", modelSha256, rows };
    return { ...result, cause };
  });
  return { ...verdict, results };
}
