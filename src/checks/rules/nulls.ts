import { percent } from "../../util/shown-numbers.js";
import { aboutColumn, type Check, type Finding, levelFor, limitFor, nearness } from "../check.js";
import type { ColumnProfile } from "../profile/column.js";
import { emptyShare } from "../profile/shown-values.js";

const least = { usually: 0.08, first: 0.4 };

/** Whether more rows than usual, or than the limit of the spec, have no value. */
export const nullsCheck: Check = {
  name: "nulls",
  isScaled: true,
  judge(night) {
    const { run, limits, columns, earlier } = night;
    const limited = [...run.outputs, ...run.carried].flatMap(([column, now]): Finding[] => {
      const limit = limits.outputs.get(column)?.nulls;
      const facts = factsOf(now);
      if (limit === undefined || facts === undefined) {
        return [];
      }
      const level = now.nulls / now.rows > limit ? "hold" : "pass";
      return [{ check: "nulls", column, level, measured: facts.share, limit, against: null, numbers: facts }];
    });
    const beyond = new Set(limited.filter(({ level }) => level === "hold").map(({ column }) => column));
    const compared = columns.flatMap((column): Finding[] => {
      const { now, nights, factor, role, name } = column;
      const facts = factsOf(now);
      if (facts === undefined || ((role === "output" || role === "carried") && beyond.has(name))) {
        return [];
      }
      const shares = nights.flatMap(({ run: night_, column: before }) => ({
        run: night_,
        of: emptyShare(before) ?? 0,
      }));
      const found = nearness(facts.share, shares, (left, right) => Math.abs(left - right));
      if (found === undefined) {
        return [];
      }
      const limit = limitFor(found.usual, least, { factor, earlier });
      const most = Math.max(...shares.map(({ of }) => of));
      const nearest = shares.find(({ run: night_ }) => night_ === found.nearest)?.of ?? 0;
      return [
        {
          check: "nulls",
          ...aboutColumn(column),
          ...levelFor({ near: found.near, limit }, night),
          measured: found.near,
          limit,
          against: found.nearest.runId,
          numbers: { ...facts, most, nearest },
        },
      ];
    });
    return [...limited, ...compared];
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
