import { percent, shownValue } from "../../util/shown-numbers.js";
import { type Check, type ComparedColumn, compared, type Finding } from "../check.js";
import { mediansOf, mediansText } from "../medians.js";
import { areCounted, type ColumnProfile, countedRows, histogramOf, valueText } from "../profile/column.js";

const leastOf = {
  numbers: { usually: 0.8, first: 0.95 },
  values: { usually: 0.2, first: 0.4 },
};
/** Numbers that earlier runs may have: of more, new ones are no surprise. */
const mostNumbers = 2000;

/** The share of rows whose value is not among those that are known. */
function unseenShare(column: ColumnProfile, known: (key: number) => boolean): number {
  const { keys, counts } = histogramOf(column);
  const unseen = keys.reduce((sum, key, index) => sum + (known(key) ? 0 : (counts[index] as number)), 0);
  return unseen / Math.max(1, countedRows(column));
}

/** Whether many rows have values that no earlier run had. */
export const unseenCheck: Check = {
  name: "unseen",
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

/** The most frequent value that is new, and the most frequent one that is gone. */
function examples({ now, nights }: ComparedColumn, known: ReadonlyMap<number, number>): Record<string, string> {
  const here = new Set(histogramOf(now).keys);
  const last = nights.at(-1)?.column;
  const value = topValue(now, (key) => !known.has(key));
  const gone = last && topValue(last, (key) => !here.has(key) && known.get(key) === nights.length);
  return { ...(value === undefined ? {} : { value }), ...(gone === undefined ? {} : { gone }) };
}
