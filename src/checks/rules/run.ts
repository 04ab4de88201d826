import { count, percent, showCount } from "../../base/shown-numbers.js";
import {
  apart,
  type Check,
  compared,
  enoughNights,
  type Least,
  levelOf,
  limitFor,
  type Nearness,
  nearness,
  type Result,
  sizeOf,
  usualFactor,
} from "../check.js";
import { histogramOf } from "../profile/column.js";
import type { ColumnProfiles, RunProfile } from "../profile/run-profile.js";

/** Numbers of rows differ less than shapes do: so many times the usual distance, where others may have four. */
const timesUsual = 3;
const leastRows = { usually: 0.25, first: 0.5 };
/** A night with so many times fewer rows than the nearest one is held also where only one is known. */
const clearly = 4;
/** Nights of its weekday that a night is compared with, at least. Half of a Tuesday's rows may be a usual Sunday's. */
const leastOfWeekday = 4;
const timesOfWeekday = 2;
const leastRowsOfWeekday = { usually: 0.45, first: 0.9 };

function logSize(run: RunProfile): number {
  return Math.log(Math.max(1, sizeOf(run)));
}

function weekdayOf({ date }: RunProfile): number {
  return new Date(date).getUTCDay();
}

interface NightRows {
  readonly run: RunProfile;
  readonly of: number;
}

/** One with fewer rows than all is compared with the half that has the fewest: ends of months would excuse it. */
function comparedWith(run: RunProfile, nights: readonly NightRows[], known: number): readonly NightRows[] {
  const ascending = nights.toSorted((left, right) => left.of - right.of);
  const isFewest = known >= enoughNights && logSize(run) < (ascending[0]?.of ?? 0);
  return isFewest ? ascending.slice(0, Math.ceil(nights.length / 2)) : nights;
}

/** The night in the middle of those of a weekday by their rows. undefined: they are too few. */
function middleOf(weekday: number, nights: readonly NightRows[]): NightRows | undefined {
  const same = nights.filter(({ run }) => weekdayOf(run) === weekday).toSorted((left, right) => left.of - right.of);
  return same.length < leastOfWeekday ? undefined : same[Math.floor(same.length / 2)];
}

/** More rows than all that passed, no farther above an approved night than that above the middle. Not for few rows. */
function isLikeApproved(size: number, nights: readonly NightRows[]): boolean {
  const sizesOf = (isApproved: boolean): number[] =>
    nights.flatMap(({ run, of }) => ((run.isApproved === true) === isApproved ? [of] : [])).toSorted((a, b) => a - b);
  const passed = sizesOf(false);
  const approved = sizesOf(true).at(-1);
  const [middle, most] = [passed[Math.floor(passed.length / 2)], passed.at(-1)];
  if (approved === undefined || middle === undefined || most === undefined) {
    return false;
  }
  return most < size && size <= approved + Math.min(leastRows.first, approved - middle);
}

/** Whether the number of rows is far from that of each earlier night, or from what is usual on its weekday. */
export const rowsCheck: Check = {
  name: "rows",
  mayBeSpec: ({ numbers: { filtered = 0 } }) => Number(filtered) > 0, // by input.where
  judge(night) {
    const { run, earlier } = night;
    const nights = earlier.isFile ? [] : earlier.nights.map((each) => ({ run: each, of: logSize(each) }));
    const distance = nearness(logSize(run), comparedWith(run, nights, earlier.known), apart);
    if (distance === undefined) {
      return [];
    }
    const size = logSize(run);
    const near = isLikeApproved(size, nights) ? 0 : distance.near;
    const { filtered = 0 } = run;
    const resultOf = (
      measured: Nearness,
      least: Least,
      { times, mayHold }: { times: number; mayHold: boolean },
    ): Result => {
      const { nearest } = measured;
      const { lowered: _, ...result } = compared(night, null, {
        ...measured,
        usual: (measured.usual * times) / usualFactor,
        least,
        numbers: { rows: sizeOf(run), nearest: sizeOf(nearest), ...(filtered === 0 ? {} : { filtered }) },
      });
      // A night with few rows may be few because it has lost the others: those of the nearest night count.
      const isClear = mayHold && clearly * sizeOf(run) < sizeOf(nearest);
      const level = isClear ? ({ level: "hold" } as const) : levelOf(true, { earlier, run: nearest }, mayHold);
      return result.level === "pass" ? result : { ...result, ...level };
    };

    const result = resultOf({ ...distance, near }, leastRows, { times: timesUsual, mayHold: true });
    const weekday = weekdayOf(run);
    const middle = middleOf(weekday, nights);
    if (result.level !== "pass" || middle === undefined) {
      return [result];
    }

    const passed = nights.filter((each) => each.run.isApproved !== true);
    const side = Math.sign(middle.of - size);
    const awayOf = ({ run: each, of }: NightRows): number =>
      side * ((middleOf(weekdayOf(each), nights)?.of ?? of) - of);
    const usual = Math.max(0, ...passed.map(awayOf));
    const ofWeekday = { near: apart(middle.of, size), usual, nearest: middle.run };
    // A holiday looks like half of a table, until one has been published.
    const isKnown = nights.some(
      (each) => awayOf(each) > leastRowsOfWeekday.usually && apart(each.of, size) <= Number(result.limit),
    );
    const differs = resultOf(ofWeekday, leastRowsOfWeekday, { times: timesOfWeekday, mayHold: side > 0 && !isKnown });
    return [differs.level === "pass" ? result : { ...differs, numbers: { ...differs.numbers, weekday } }];
  },
  say({ numbers: { rows = 0, nearest = 0, filtered, weekday }, against }, { dateOf }) {
    const left = filtered === undefined ? "" : ` (${showCount(filtered)} filtered out by input.where)`;
    const share = Number(nearest) === 0 ? "" : `, ${percent(Number(rows) / Number(nearest))} of it`;
    const day = weekday === undefined ? "nearest night" : `usual ${weekdays[Number(weekday)]}`;
    return `${count(Number(rows), "row")}${left}; the ${day} had ${showCount(nearest)} (${dateOf(against ?? "")})${share}`;
  },
};

const weekdays = ["Sunday", "Monday", "Tuesday", "Wednesday", "Thursday", "Friday", "Saturday"];

const leastRejects = { usually: 0.01, first: 0.01 };

function shareOf(run: Pick<RunProfile, "rows" | "rejected">): number {
  return run.rejected / Math.max(1, sizeOf(run));
}

/** Whether more rows are rejected than the limit, and than is usual. */
export const rejectsCheck: Check = {
  name: "rejects",
  isAbsolute: () => true,
  judge({ run, earlier, limits }) {
    const share = shareOf(run);
    const nights = earlier.nights.map((each) => ({ run: each, of: shareOf(each) }));
    const near = nearness(share, nights, apart);
    const isUsual =
      near !== undefined &&
      shareOf(near.nearest) > limits.rejects &&
      near.near <= limitFor(near.usual, leastRejects, { factor: limits.factor, earlier });
    return [
      {
        column: null,
        level: share > limits.rejects && !(isUsual && earlier.known > 1) ? "hold" : "pass",
        measured: share,
        limit: limits.rejects,
        against: near?.nearest.runId ?? null,
        numbers: { rejected: run.rejected, rows: run.rows },
      },
    ];
  },
  say: ({ measured, limit }) => `${percent(measured)} of the rows were rejected (limit ${percent(limit)})`,
};

const leastTwice = { usually: 0.25, first: 0.25 };

/** Whether many rows are there twice. */
export const twiceCheck: Check = {
  name: "twice",
  judge(night) {
    const { repeated: share } = night.run;
    const nights = night.earlier.nights.flatMap((run) =>
      run.repeated === undefined ? [] : [{ run, of: run.repeated }],
    );
    const distance = share === undefined ? undefined : nearness(share, nights, apart);
    if (share === undefined || distance === undefined) {
      return [];
    }
    const near = nights.every(({ of }) => of < share) ? distance.near : 0;
    const numbers = { share, nearest: distance.nearest.repeated ?? 0 };
    return [compared(night, null, { ...distance, near, least: leastTwice, numbers })];
  },
  say: ({ numbers: { share = 0, nearest = 0 }, against }, { dateOf }) =>
    `about ${percent(share, 2)} of the rows repeat another row; ${percent(nearest, 2)} on the nearest night (${dateOf(against ?? "")})`,
};

/** Fewer bins than these in all columns may be equal by chance. */
const leastBins = 20;

/** What a run's rows have in common with those of another run if they are the same rows. */
function contentOf({ rows, rejected, outputs, features }: RunProfile): string | undefined {
  const columns = [...features, ...outputs].map(([name, column]) => {
    const { shift, keys, counts } = histogramOf(column);
    return [name, column.nulls, shift, keys, counts] as const;
  });
  const bins = columns.reduce((sum, [, , , keys]) => sum + keys.length, 0);
  return bins < leastBins ? undefined : JSON.stringify([rows, rejected, columns]);
}

/** Whether the run has exactly the rows of an earlier one, where no two earlier runs have the same. */
export const repeatCheck: Check = {
  name: "repeat",
  judge(night) {
    const { run, earlier } = night;
    const now = contentOf(run);
    const before = earlier.nights.map(contentOf);
    const known = before.filter((each) => each !== undefined);
    if (earlier.nights.length === 0 || earlier.isFile || now === undefined) {
      return [];
    }
    const equal = before.lastIndexOf(now);
    const isNew = new Set(known).size === known.length;
    return [
      {
        column: null,
        ...levelOf(equal >= 0 && isNew, night),
        measured: equal >= 0 ? 1 : 0,
        limit: 0,
        against: earlier.nights[equal]?.runId ?? null,
        numbers: {},
      },
    ];
  },
  say: ({ against }, { dateOf }) => `exactly the rows of ${dateOf(against ?? "")}: was the input refreshed?`,
};

const missing = "missing";

/** Whether a column of the last run is gone, or of another type: outputs hold, features warn. */
export const columnCheck: Check = {
  name: "column",
  judge({ run, earlier, limits }) {
    const last = earlier.nights.findLast(({ outputs }) => outputs.size > 0); // a run without rows has no columns
    if (last === undefined) {
      return [];
    }
    const hasNoRows = run.outputs.size === 0 && run.rows === 0;
    const compare = (now: ColumnProfiles, before: ColumnProfiles, { isFeature = false } = {}): Result[] =>
      [...new Set([...before.keys(), ...(isFeature ? now.keys() : [])])].flatMap((column): Result[] => {
        const [measured, limit] = [now.get(column)?.type ?? missing, before.get(column)?.type ?? missing];
        const { factor } = (isFeature ? limits.inputs : limits.outputs).get(column) ?? {};
        const isSame = measured === limit || factor === Number.POSITIVE_INFINITY || hasNoRows;
        const level = isSame ? "pass" : isFeature ? "warn" : "hold";
        const about = isFeature ? { column, isFeature } : { column };
        return [{ ...about, level, measured, limit, against: last.runId, numbers: {} }];
      });
    const hasFeatures = run.features.size > 0 && last.features.size > 0;
    const features = hasFeatures ? compare(run.features, last.features, { isFeature: true }) : [];
    return [
      ...compare(run.outputs, last.outputs),
      ...compare(run.carried, last.carried),
      ...features.filter(({ level }) => level !== "pass"),
    ];
  },
  say({ measured: now, limit: before, against }, { dateOf }) {
    const date = dateOf(against ?? "");
    return before === missing
      ? `${date} does not have it, so it is not compared`
      : `${now === missing ? "it is gone" : `its type is ${now}`}; it was ${before} (${date})`;
  },
};
