import type { Check, Finding } from "../check.js";
import type { ColumnProfiles } from "../profile/run-profile.js";

const missing = "missing";

/** Whether a column of the last run is gone, or of another type: outputs hold, features warn. */
export const columnCheck: Check = {
  name: "column",
  isScaled: false,
  judge({ run, earlier, limits }) {
    const last = earlier.nights.findLast(({ outputs }) => outputs.size > 0); // a run without rows has no columns
    if (last === undefined) {
      return [];
    }
    const compare = (now: ColumnProfiles, before: ColumnProfiles, isFeature: boolean): Finding[] =>
      [...new Set([...before.keys(), ...(isFeature ? now.keys() : [])])].flatMap((column): Finding[] => {
        const [measured, limit] = [now.get(column)?.type ?? missing, before.get(column)?.type ?? missing];
        const isCompared =
          (isFeature ? limits.inputs : limits.outputs).get(column)?.factor !== Number.POSITIVE_INFINITY;
        const level = measured === limit || !isCompared || (run.outputs.size === 0 && run.rows === 0) ? "pass" : "hold";
        const about = { column, measured, limit, against: last.runId, numbers: {} };
        return [
          isFeature
            ? { check: "column", level: level === "hold" ? "warn" : level, isFeature, ...about }
            : { check: "column", level, ...about },
        ];
      });
    const hasFeatures = run.features.size > 0 && last.features.size > 0;
    return [
      ...compare(run.outputs, last.outputs, false),
      ...compare(run.carried, last.carried, false),
      ...(hasFeatures ? compare(run.features, last.features, true).filter(({ level }) => level !== "pass") : []),
    ];
  },
  say({ measured: now, limit: before, against }, { dateOf }) {
    const date = dateOf(against ?? "");
    if (before === missing) {
      return `${date} does not have it, so it is not compared`;
    }
    return `${now === missing ? "it is gone" : `its type is ${now}`}; it was ${before} (${date})`;
  },
};
