import type { RunId } from "./plan.js";

/** Hex sha256 of a UTF-8 text; passed in, because this folder has no I/O and no `node:` imports. */
export type Sha256 = (text: string) => string;

/**
 * The id of a job's run with these params: equal job and params give an equal id. Params are sorted by name, so their
 * order in the spec does not matter.
 */
export function runIdOf(job: string, params: Readonly<Record<string, string>>, sha256: Sha256): RunId {
  const canonical = Object.keys(params)
    .toSorted()
    .map((name) => [name, params[name]]);
  return `${job}-${sha256(JSON.stringify(canonical)).slice(0, 12)}` as RunId;
}

/** The first digits of a digest, for people: "0f3c91ab77de…". */
export function shortDigest(sha256: string): string {
  return `${sha256.slice(0, 12)}…`;
}

/** Names the job of a run. @param base the id that `runIdOf` returns */
export function jobOf(base: RunId): string {
  return base.replace(/-[0-9a-f]{12}$/, "");
}

/** Params as the option `--param` takes them: "ds=2026-11-20", one each. */
export function paramTexts(params: Readonly<Record<string, string>>): string[] {
  return Object.entries(params).map(([name, value]) => `${name}=${value}`);
}

/** The id of the `number`-th run with the same job and params: `base`, then `base-r2` and so on, for `--new-run`. */
export function numberedRunId(base: RunId, number: number): RunId {
  return number === 1 ? base : (`${base}-r${number}` as RunId);
}

/** The id of the run that follows a run of the same job and params. */
export function nextRunId(runId: RunId): RunId {
  const { base, number } = splitRunId(runId);
  return numberedRunId(base, number + 1);
}

/** Whether a text has the form of a run id. */
export function isRunId(text: string): boolean {
  return /-[0-9a-f]{12}(-r[1-9]\d{0,8})?$/.test(text);
}

/** Splits a run id into that of the first run and its number; the inverse of `numberedRunId`. */
export function splitRunId(runId: RunId): { base: RunId; number: number } {
  const [, base, number] = /^(.+-[0-9a-f]{12})-r([1-9]\d{0,8})$/.exec(runId) ?? [];
  return base === undefined ? { base: runId, number: 1 } : { base: base as RunId, number: Number(number) };
}

type Params = Readonly<Record<string, string>>;

/** A calendar date, month, ISO week or timestamp: 2026-11-23, 20261123, 2026-11, 2026-W48, 2026-11-23T02:00. */
const dateText = /^\d{4}(-?W\d{2}|([-/.]?)(0[1-9]|1[0-2])(\2(0[1-9]|[12]\d|3[01])([T _].*)?)?)$/;

/**
 * Whether two runs of a job belong to one series: all params are equal, except those that are dates in both. Runs of one
 * series write the same rows, such as yesterday's and today's; region=EU and region=US do not.
 */
export function sameSeries(one: Params, other: Params): boolean {
  const names = new Set([...Object.keys(one), ...Object.keys(other)]);
  return [...names].every((name) => {
    const [a, b] = [one[name], other[name]];
    return a === b || (a !== undefined && b !== undefined && isDateText(a) && isDateText(b));
  });
}

/** Whether two runs have the same params. */
export function sameParams(one: Params, other: Params): boolean {
  return [...new Set([...Object.keys(one), ...Object.keys(other)])].every((name) => one[name] === other[name]);
}

/** Whether a text is a calendar date, a month, an ISO week or a timestamp. */
export function isDateText(given: string): boolean {
  return dateText.test(given);
}

/** Whether a text is a calendar date, "2026-11-23". */
export function isCalendarDate(given: string): boolean {
  const ms = /^\d{4}-\d{2}-\d{2}$/.test(given) ? Date.parse(`${given}T00:00:00Z`) : Number.NaN;
  return !Number.isNaN(ms) && new Date(ms).toISOString().startsWith(given);
}
