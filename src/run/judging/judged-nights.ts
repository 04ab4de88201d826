import {
  comparedNights,
  defaultLimits,
  type Finding,
  type Limits,
  olderNights,
  timesLimit,
  type Verdict,
} from "../../checks/check.js";
import { earlierThan, judge } from "../../checks/checks.js";
import { limitsOf } from "../../publish/verdict-text.js";
import { normalAndOthers } from "../../publish/published-run.js";
import type { JobContext } from "../../scoring/context.js";
import { JobError } from "../../util/errors.js";
import { mapBounded } from "../../util/promises.js";
import { readPinned, readsAtOnce } from "./baseline.js";

/** What the checks of a spec say of published runs. */
export interface JudgedNights {
  readonly factor: number;
  /** The latest last. */
  readonly nights: readonly Verdict[];
  /** The columns that would have held a night, or warned of one, the one that held the most nights first. */
  readonly columns: readonly JudgedColumn[];
}

export interface JudgedColumn {
  readonly held: number;
  readonly warned: number;
  /** The farthest of its results, which tells the column, and the date of its night. */
  readonly farthest: Finding;
  readonly date: string;
}

/**
 * Judges the last published runs of a series as if each were tonight, by their stored profiles. Writes nothing.
 * @throws JobError USAGE for a job whose runs have no order, or that has published none
 */
export async function judgeNights(context: JobContext, last: number): Promise<JudgedNights> {
  const { spec, sink, dateParam, command } = context;
  const doing = `judging the last runs of ${spec.name}`;
  if (dateParam === undefined) {
    throw new JobError("USAGE", `${doing}: no param is a date, so runs have no order`, {
      hint: "add one to the spec: ds: { type: date }, or ds: ${today}",
    });
  }
  const series = { job: spec.name, params: spec.params, dateParam };
  const published = normalAndOthers(await sink.published("everywhere"), series);
  if (published.length === 0) {
    throw new JobError("USAGE", `${doing}: none is published`, { hint: `${command(spec.params)} scores one` });
  }
  const read = published.slice(-(last + comparedNights + olderNights));
  const profiles = await mapBounded(read, readsAtOnce, (run) => readPinned(context, run));
  const limits = (date: string): Limits =>
    spec.checks === undefined
      ? defaultLimits
      : limitsOf(spec.checks, { staged: true, params: { ...spec.params, [dateParam]: date } });
  const nights = profiles.slice(-last).map((run) => {
    const before = profiles.filter(({ date }, index) => date < run.date && read[index]?.isNormal === true);
    return judge({ run, earlier: earlierThan(run.date, before), limits: { ...limits(run.date), onFail: "hold" } });
  });
  return {
    factor: spec.checks?.factor ?? defaultLimits.factor,
    nights,
    columns: columnsOf(nights),
  };
}

function columnsOf(nights: readonly Verdict[]): JudgedColumn[] {
  const byColumn = new Map<string, { readonly date: string; readonly finding: Finding }[]>();
  for (const { date, results } of nights) {
    for (const finding of results.filter(({ level }) => level !== "pass")) {
      const key = JSON.stringify([finding.isFeature === true, finding.column]);
      byColumn.set(key, [...(byColumn.get(key) ?? []), { date, finding }]);
    }
  }
  const columns = [...byColumn.values()].map((signs): JudgedColumn => {
    const datesOf = (level: Finding["level"]): Set<string> =>
      new Set(signs.filter(({ finding }) => finding.level === level).map(({ date }) => date));
    const held = datesOf("hold");
    const warned = [...datesOf("warn")].filter((date) => !held.has(date)).length;
    const [{ finding: farthest, date } = signs[0] as (typeof signs)[0]] = signs.toSorted(
      (left, right) => timesLimit(right.finding) - timesLimit(left.finding),
    );
    return { held: held.size, warned, farthest, date };
  });
  return columns.toSorted((left, right) => right.held - left.held || right.warned - left.warned);
}
