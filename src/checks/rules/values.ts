import { percent, shownValue } from "../../base/shown-numbers.js";
import {
  aboutColumn,
  apart,
  type Check,
  compared,
  type ComparedColumn,
  type Finding,
  type JudgedNight,
  levelOf,
  nearness,
  type Result,
} from "../check.js";
import { mediansOf, mediansText } from "../medians.js";
import {
  areClasses,
  areCounted,
  type ColumnProfile,
  countedRows,
  countedValues,
  emptyShare,
  histogramOf,
  valueText,
} from "../profile/column.js";

/** Where one value had so many of the rows before, all rows having one is no surprise: of features, and of outputs. */
const usualShare = { feature: 0.5, output: 0.9 };
const leastRows = 20;
/** With fewer, a feature that is constant may be so often. */
const fewNights = 5;

function topShare(column: ColumnProfile): number {
  return Math.max(0, ...histogramOf(column).counts) / Math.max(1, column.rows);
}

/** Whether all values of a column are missing, or the same, and never were. An output without a value holds any run. */
export const constantCheck: Check = {
  name: "constant",
  implies: ["nulls", "shape", "class", "unseen"],
  judge(night) {
    return night.columns.flatMap((column) => {
      const { now, nights, role } = column;
      if ((role !== "feature" && role !== "output") || now.kind === "rows" || now.rows < leastRows) {
        return [];
      }
      const isEmpty = countedRows(now) === 0;
      const { keys, shift } = histogramOf(now);
      const isConstant = keys.length === 1 && shift === 0;
      const before = Math.max(0, ...nights.map((each) => topShare(each.column)));
      const isNew = isEmpty
        ? nights.every((each) => countedRows(each.column) > 0)
        : isConstant && nights.length > 0 && before < usualShare[role];
      const isKnown = isEmpty || role === "output" || night.earlier.isFile || night.earlier.known >= fewNights;
      const value = isConstant ? (valueText(now, keys[0] as number) ?? "") : "";
      return [
        {
          ...aboutColumn(column),
          ...(isNew && isEmpty && role === "output" ? { level: "hold" as const } : levelOf(isNew, night, isKnown)),
          measured: isEmpty ? 0 : topShare(now),
          limit: usualShare[role],
          against: null,
          numbers: { empty: isEmpty ? 1 : 0, before, nights: nights.length, value },
        },
      ];
    });
  },
  say({ numbers: { empty, before = 0, value = "", nights } }) {
    if (empty === 1) {
      return `no row has a value${nights === 0 ? "" : "; that never was"}`;
    }
    return `all rows have ${value === "" ? "one value" : `the value ${shownValue(value)}`}; before, one value had at most ${percent(before)} of the rows`;
  },
};

const leastNulls = { usually: 0.06, first: 0.4 };

/** Whether more rows than usual, or than the limit of the spec, have no value. */
export const nullsCheck: Check = {
  name: "nulls",
  isAbsolute: ({ against }) => against === null, // the limit of the spec
  judge(night) {
    const { run, limits, columns } = night;
    const limited = [...run.outputs, ...run.carried].flatMap(([column, now]): Result[] => {
      const limit = limits.outputs.get(column)?.nulls;
      if (limit === undefined || factsOf(now) === undefined) {
        return [];
      }
      const level = now.nulls / now.rows > limit ? "hold" : "pass";
      const share = now.nulls / now.rows; // the limit is of NULLs alone
      return [{ column, level, measured: share, limit, against: null, numbers: { share, noun: "NULL" } }];
    });
    const beyond = new Set(limited.filter(({ level }) => level === "hold").map(({ column }) => column));
    const rest = columns.filter(({ name, role }) => !beyond.has(name) || role === "feature");
    return [
      ...limited,
      ...rest.flatMap((column) => {
        const facts = factsOf(column.now);
        const shares = column.nights.map((earlier) => ({ run: earlier.run, of: emptyShare(earlier.column) ?? 0 }));
        const near = facts && nearness(facts.share, shares, apart);
        if (near === undefined) {
          return [];
        }
        const most = Math.max(...shares.map(({ of }) => of));
        const nearest = shares.find((earlier) => earlier.run === near.nearest)?.of ?? 0;
        return [compared(night, column, { ...near, least: leastNulls, numbers: { ...facts, most, nearest } })];
      }),
    ];
  },
  say({ limit, against, numbers: { share = 0, noun = "NULL", most, nearest = 0 } }, { dateOf }) {
    if (most === undefined) {
      return `${percent(share)} ${noun} (limit ${percent(limit)})`;
    }
    return Number(share) > Number(most)
      ? `${percent(share)} ${noun}; before, at most ${percent(most)}`
      : `${percent(share)} ${noun}; ${percent(nearest)} on the nearest night (${dateOf(against ?? "")})`;
  },
};

function factsOf(column: ColumnProfile): { readonly share: number; readonly noun: string } | undefined {
  const share = emptyShare(column);
  if (share === undefined) {
    return undefined;
  }
  const hasOthers = share * column.rows > column.nulls;
  return { share, noun: column.kind === "vectors" ? "NULL, zero or not finite" : hasOthers ? "NULL or NaN" : "NULL" };
}

const leastOf = {
  numbers: { usually: 0.8, first: 0.95 },
  values: { usually: 0.2, first: 0.4 },
};
/** Numbers that earlier runs may have: of more, new ones are no surprise. */
const mostNumbers = 2000;

function unseenShare(column: ColumnProfile, known: (key: number) => boolean): number {
  const { keys, counts } = histogramOf(column);
  const unseen = keys.reduce((sum, key, index) => sum + (known(key) ? 0 : (counts[index] as number)), 0);
  return unseen / Math.max(1, countedRows(column));
}

/** Whether many rows have values that no earlier run had. */
export const unseenCheck: Check = {
  name: "unseen",
  implies: ["shape", "class"],
  judge: (night) =>
    night.columns.flatMap((column) => {
      const { now } = column;
      const nights = column.nights.filter(({ column: before }) => countedRows(before) > 0);
      if ((now.kind !== "numbers" && now.kind !== "values") || nights.length === 0 || countedRows(now) === 0) {
        return [];
      }
      const runsOf = new Map<number, number>();
      for (const { column: before } of nights) {
        for (const key of histogramOf(before).keys) {
          runsOf.set(key, (runsOf.get(key) ?? 0) + 1);
        }
      }
      const isCounted = [now, ...nights.map((each) => each.column)].every(areCounted);
      if (!isCounted || (now.kind === "numbers" && runsOf.size > mostNumbers)) {
        return [];
      }
      const share = unseenShare(now, (key) => runsOf.has(key));
      const own = nights
        .filter(({ run }) => run.isApproved !== true && nights.length > 1)
        .map((each) => unseenShare(each.column, (key) => runsOf.get(key) !== 1));
      const usual = Math.max(0, ...own);
      const facts = (): Finding["numbers"] => ({ ...examples(column, runsOf), ...mediansOf(column) });
      const numbers = { share, usual };
      return [compared(night, column, { near: share, usual, least: leastOf[now.kind], numbers, facts })];
    }),
  say({ numbers }) {
    const { share = 0, usual = 0, value, gone } = numbers;
    const median = mediansText(numbers, "usually");
    const such = value === undefined ? "" : `, such as ${shownValue(value)}`;
    const left = gone === undefined ? "" : `; no row has ${shownValue(gone)}`;
    return `${median === undefined ? "" : `${median}; `}${percent(share)} of the rows have values that no earlier night had${such}${left}; usually at most ${percent(usual)}`;
  },
};

function topValue(column: ColumnProfile, isMeant: (key: number) => boolean): string | undefined {
  const { keys, counts } = histogramOf(column);
  const ranked = [...keys.keys()].toSorted((left, right) => (counts[right] as number) - (counts[left] as number));
  const index = ranked.find((each) => isMeant(keys[each] as number));
  return index === undefined ? undefined : valueText(column, keys[index] as number);
}

function examples({ now, nights }: ComparedColumn, known: ReadonlyMap<number, number>): Record<string, string> {
  const here = new Set(histogramOf(now).keys);
  const last = nights.at(-1)?.column;
  const value = topValue(now, (key) => !known.has(key));
  const gone = last && topValue(last, (key) => !here.has(key) && known.get(key) === nights.length);
  return { ...(value === undefined ? {} : { value }), ...(gone === undefined ? {} : { gone }) };
}

const leastClass = { usually: 1.2, first: 2 };
/** Rows that a class has, or is due: fewer come and go by chance. */
const leastClassRows = 20;
const mostClasses = 50;

interface ClassRows {
  readonly rows: number;
  readonly all: number;
}

/** Whether a class of an output is far more or far less frequent than usual: a class of 0.1 % may be gone without another sign. */
export const classCheck: Check = {
  name: "class",
  judge(night) {
    const classed = night.columns.filter(
      ({ role, now, nights }) =>
        role === "output" && areClasses(now) && nights.every(({ column }) => countedValues(column) !== undefined),
    );
    return classed.flatMap((column) => classKeys(column).flatMap((key) => judgeClass(night, column, key)));
  },
  say: ({ numbers: { value = "", share = 0, nearest = 0 }, against }, { dateOf }) =>
    `${value === "" ? "a class" : `class ${shownValue(value)}`} has ${percent(share)} of the rows; ${percent(nearest)} on the nearest night (${dateOf(against ?? "")})`,
};

function classKeys({ now, nights }: ComparedColumn): number[] {
  const rows = new Map<number, number>();
  for (const column of [now, ...nights.map((each) => each.column)]) {
    for (const [index, key] of histogramOf(column).keys.entries()) {
      rows.set(key, (rows.get(key) ?? 0) + (histogramOf(column).counts[index] as number));
    }
  }
  const ranked = [...rows].toSorted(([, left], [, right]) => right - left);
  return ranked.slice(0, mostClasses).map(([key]) => key);
}

function judgeClass(night: JudgedNight, column: ComparedColumn, key: number): Result[] {
  const now = rowsOf(column.now, key);
  const nights = column.nights.map(({ run, column: before }) => ({ run, of: rowsOf(before, key) }));
  const distance = nearness(now, nights, (left, right) => Math.abs(logOdds(left) - logOdds(right)));
  const before = nights.find(({ run }) => run === distance?.nearest)?.of;
  if (distance === undefined || before === undefined) {
    return [];
  }
  const due = shareOf(before) * now.all;
  const texts = [column.now, ...column.nights.map((each) => each.column)].map((each) => valueText(each, key));
  const value = texts.find((text) => text !== undefined) ?? "";
  const numbers = { value, rows: now.rows, share: shareOf(now), nearest: shareOf(before) };
  const near = Math.max(due, now.rows) < leastClassRows ? 0 : distance.near;
  return [compared(night, column, { ...distance, near, least: leastClass, numbers })];
}

function rowsOf(column: ColumnProfile, key: number): ClassRows {
  const { keys, counts } = histogramOf(column);
  return { rows: counts[keys.indexOf(key)] ?? 0, all: countedRows(column) };
}

function shareOf({ rows, all }: ClassRows): number {
  return rows / Math.max(1, all);
}

function logOdds({ rows, all }: ClassRows): number {
  return Math.log((rows + 0.5) / (all - rows + 0.5));
}
