import { percent } from "../../util/shown-numbers.js";
import { apart, type Check, compared, nearness, type Result } from "../check.js";
import { type ColumnProfile, emptyShare } from "../profile/column.js";

const least = { usually: 0.06, first: 0.4 };

/** Whether more rows than usual, or than the limit of the spec, have no value. */
export const nullsCheck: Check = {
  name: "nulls",
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
        return [compared(night, column, { ...near, least, numbers: { ...facts, most, nearest } })];
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
