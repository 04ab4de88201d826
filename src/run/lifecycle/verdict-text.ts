import { checkOf } from "../../checks/checks.js";
import {
  type Finding,
  type Level,
  type Limits,
  type Verdict,
  enoughNights,
  roleOf,
  timesLimit,
} from "../../checks/check.js";
import { printable } from "../../base/texts.js";
import { count, showCount } from "../../base/shown-numbers.js";
import { type RunVerdict, comparedFile } from "./lifecycle.js";
import type { Plan } from "../plan/plan.js";
import type { ChecksSpec } from "../../job/jobfile/checks-spec.js";

/** Lines about columns; of more, the others are named in one line. */
const mostColumns = 10;
const mostFindings = 4;

/**
 * The results of a level for people, a line for each cause: "score: median 0.12, seen 0.17 to 0.36". Features come before
 * outputs, since a drift of the predictions often has its cause there, and the farthest column before the others. Where a
 * column fails for a reason, its other signs follow it. Names of columns and values may contain anything.
 */
export function resultLines(verdict: RunVerdict, level: Level): string[] {
  const { results } = verdict.verdict;
  const groups = groupsOf(results.filter((finding) => finding.level === level));
  const shown = groups.slice(0, mostColumns);
  const lines = shown.map((group, index) => {
    const why = group[0]?.lowered;
    const before = shown.slice(0, index).some(([first]) => first?.lowered === why);
    const reason = why === undefined ? "" : `; only a warning${before ? ", too" : `: ${why}`}`;
    return `${line(group, verdict, results)}${reason}`;
  });
  const rest = groups.slice(mostColumns).map(([first]) => first?.column ?? first?.check ?? "");
  return [
    ...lines,
    ...(rest.length === 0
      ? []
      : [`${rest.length} more: ${rest.slice(0, 20).join(", ")}${rest.length > 20 ? ", …" : ""}`]),
  ].map(printable);
}

/** The findings of the run, then those of each column: features first, and of these those that are the farthest. */
function groupsOf(findings: readonly Finding[]): Finding[][] {
  const groups = new Map<string, Finding[]>();
  for (const finding of findings) {
    const key = columnKey(finding);
    groups.set(key, [...(groups.get(key) ?? []), finding]);
  }
  return [...groups.values()].toSorted((left, right) => rank(left) - rank(right) || farthest(right) - farthest(left));
}

function rank([first]: readonly Finding[]): number {
  return first === undefined ? 0 : ["run", "feature", "output"].indexOf(roleOf(first));
}

/** Distinguishes columns: an output and a feature may have the same name. What is about the run has a line for each check. */
function columnKey(finding: Finding): string {
  return JSON.stringify([roleOf(finding), finding.column ?? finding.check]);
}

function farthest(findings: readonly Finding[]): number {
  return Math.max(...findings.map(timesLimit));
}

function line(group: readonly Finding[], verdict: RunVerdict, all: readonly Finding[]): string {
  const [{ column, cause } = {} as Finding] = group;
  const implied = new Set(group.flatMap((finding) => checkOf(finding).implies ?? []));
  const own = group.filter(({ check }) => !implied.has(check));
  const texts = own
    .slice(0, mostFindings)
    .map((finding) => checkOf(finding).say(finding, { dateOf: (runId) => verdict.dates[runId] ?? runId }));
  const more = own.length > mostFindings ? [`${own.length - mostFindings} more`] : [];
  const model = cause === undefined ? "" : modelText(cause, comparedFile(verdict));
  const isOfValues = group.some((finding) => finding.isFeature !== true && checkOf(finding).judge !== undefined);
  const moved = column !== null && isOfValues ? movedText(all) : "";
  return `${column === null ? "" : `${column}: `}${[...texts, ...more].join("; ")}${model}${moved}`;
}

function movedText(all: readonly Finding[]): string {
  const features = groupsOf(all.filter(({ level, isFeature }) => level !== "pass" && isFeature === true)).map(
    ([first]) => first?.column ?? "",
  );
  return features.length === 0 ? "" : `; ${features.slice(0, 2).join(" and ")} moved, too`;
}

function modelText({ of, rows, modelSha256 }: NonNullable<Finding["cause"]>, file: string | undefined): string {
  const before = `the model of ${file ?? "the last run"} (${modelSha256.slice(0, 12)})`;
  return of === "model"
    ? `; caused by the new model: ${before} predicts as usual for ${showCount(rows)} of these rows`
    : `; caused by the data: ${before} predicts otherwise than usual, too`;
}

/** "2 warnings: age: median 1.01, …" by causes. undefined: there are none, or the checks held the run. */
export function warningsText(verdict: RunVerdict): string | undefined {
  const { outcome, results } = verdict.verdict;
  const groups = groupsOf(results.filter(({ level }) => level !== "pass"));
  if (outcome === "hold" || groups.length === 0) {
    return undefined;
  }
  const failed = resultLines(verdict, "hold").map((text) => `${text}; only a warning: on_fail is warn`);
  const [first] = [...failed, ...resultLines(verdict, "warn")];
  return `${count(groups.length, "warning")}: ${first}`;
}

/** Names the columns that only warn, of a run that others hold: the cause may be among them. undefined: there are none. */
export function warnedText({ results }: Verdict): string | undefined {
  const holding = new Set(results.filter(({ level }) => level === "hold").map(columnKey));
  const groups = groupsOf(
    results.filter(
      (finding) => finding.level === "warn" && finding.column !== null && !holding.has(columnKey(finding)),
    ),
  );
  const names = groups.slice(0, mostColumns).map(([first]) => first?.column ?? "");
  const more = groups.length > mostColumns ? `, and ${groups.length - mostColumns} others` : "";
  const what = groups.length === 1 ? "1 more column only warns" : `${groups.length} more columns only warn`;
  return groups.length === 0 ? undefined : printable(`${what}: ${names.join(", ")}${more}`);
}

/** How many earlier nights are known, where the rule is not as strict as it gets: "3 of 14 nights known". */
export function knownText({ known }: Verdict, file: string | undefined): string | undefined {
  return known >= enoughNights || file !== undefined
    ? undefined
    : `${known} of ${enoughNights} nights known: what differs little is not noticed yet${known < 2 ? ", and most comparisons only warn" : ""}`;
}

export function countResults({ results }: Verdict, level?: Level): number {
  return results.filter((finding) => level === undefined || finding.level === level).length;
}

/** Counts the results of a verdict: "67 checks passed", "64 checks passed, 3 warned", "30 checks passed, 3 failed". */
export function countsText(verdict: Verdict): string {
  const passed = countResults(verdict, "pass");
  const others = [
    ["warn", "warned"],
    ["hold", "failed"],
  ] as const;
  const texts = others.flatMap(([level, what]) => {
    const results = countResults(verdict, level);
    return results === 0 ? [] : [`, ${showCount(results)} ${what}`];
  });
  return `${showCount(passed)} ${passed === 1 ? "check" : "checks"} passed${texts.join("")}`;
}

/** What a person may have to correct before a held run is scored again, by the causes of the checks that hold it. */
export function toCorrect({ modelChanged, results }: Verdict): string {
  const holding = results.filter(({ level }) => level === "hold");
  const causes = new Set(holding.map(({ cause }) => cause?.of));
  const isModel = causes.has("model");
  const isInput = causes.has("data") || causes.has(undefined) || !isModel;
  const parts = [
    ...(isInput ? ["the input"] : []),
    ...(isModel || modelChanged ? ["the model"] : []),
    ...(holding.some((finding) => checkOf(finding).mayBeSpec?.(finding) === true) ? ["the spec"] : []),
  ];
  return [parts.slice(0, -1).join(", "), ...parts.slice(-1)].filter((part) => part !== "").join(" or ");
}

export function columnNotes({ growing }: Verdict): string[] {
  return growing.length === 0
    ? []
    : [
        printable(
          `${growing.join(", ")} ${growing.length === 1 ? "has" : "have"} only grown from run to run, so ${growing.length === 1 ? "it is" : "they are"} not compared`,
        ),
      ];
}

/** The limits of a spec, for the verdict on a run. A run that is not staged cannot be held: it only warns. */
export function limitsOf(checks: ChecksSpec, { staged, params }: Pick<Plan, "staged" | "params">): Limits {
  const { on_fail: onFail, factor, rejects, outputs, inputs, expect } = checks;
  const expected = expect.find((entry) =>
    Object.entries(entry.params).every(([name, value]) => params[name] === value),
  );
  return {
    onFail: staged ? onFail : "warn",
    factor,
    rejects,
    outputs: new Map(
      Object.entries(outputs).map(([column, wanted]) =>
        wanted === "ignore"
          ? [column, factorOf(wanted)]
          : [column, { range: wanted.range, in: wanted.in, nulls: wanted.nulls, ...factorOf(wanted.factor) }],
      ),
    ),
    inputs: new Map(
      Object.entries(inputs).map(([column, wanted]) => [
        column,
        factorOf(wanted === "ignore" ? wanted : wanted.factor),
      ]),
    ),
    expected: expected && { reason: expected.reason, asBaseline: expected.asBaseline },
  };
}

function factorOf(wanted: number | "ignore" | undefined): { readonly factor?: number } {
  return wanted === undefined ? {} : { factor: wanted === "ignore" ? Number.POSITIVE_INFINITY : wanted };
}
