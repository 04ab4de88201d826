import type { Check, Result } from "../check.js";
import type { ColumnProfiles } from "../profile/run-profile.js";

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
