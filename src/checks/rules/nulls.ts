import { percent } from "../../util/shown-numbers.js";
import { aboutColumn, type Check, type Finding, levelFor, limitFor, nearness } from "../check.js";
import { emptyShare } from "../profile/shown-values.js";

const least = { usually: 0.08, first: 0.4 };

/** Whether more rows than usual, or than the limit of the spec, have no value. */
export const nullsCheck: Check = {
  name: "nulls",
  keys: ["factor", "outputs.NAME.nulls"],
  judge(night) {
    return night.columns.flatMap((column): Finding[] => {
      const { now, nights, factor, role, name } = column;
      const share = emptyShare(now);
      if (share === undefined) {
        return [];
      }
      const noun =
        now.kind === "vectors" ? "NULL, zero or not finite" : share * now.rows > now.nulls ? "NULL or NaN" : "NULL";
      const facts = { share, noun };
      const wanted = role === "feature" || role === "slice" ? undefined : night.limits.outputs.get(name)?.nulls;
      if (wanted !== undefined && now.nulls / now.rows > wanted) {
        return [
          {
            check: "nulls",
            ...aboutColumn(column),
            level: "hold",
            measured: share,
            limit: wanted,
            against: null,
            numbers: facts,
          },
        ];
      }
      const shares = nights.flatMap(({ run, column: before }) => ({ run, of: emptyShare(before) ?? 0 }));
      const found = nearness(share, shares, (left, right) => Math.abs(left - right));
      if (found === undefined) {
        return wanted === undefined
          ? []
          : [
              {
                check: "nulls",
                ...aboutColumn(column),
                level: "pass",
                measured: share,
                limit: wanted,
                against: null,
                numbers: facts,
              },
            ];
      }
      const limit = limitFor(found.usual, least, { factor, earlier: night.earlier });
      const most = Math.max(...shares.map(({ of }) => of));
      const nearest = shares.find(({ run }) => run === found.nearest)?.of ?? 0;
      const level = levelFor({ near: found.near, limit }, night);
      return [
        {
          check: "nulls",
          ...aboutColumn(column),
          ...level,
          measured: found.near,
          limit,
          against: found.nearest.runId,
          numbers: { ...facts, most, nearest },
        },
      ];
    });
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
