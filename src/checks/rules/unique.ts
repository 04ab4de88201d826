import { count } from "../../util/shown-numbers.js";
import type { Check, Finding } from "../check.js";

/** How often the keys of a run's rows repeat. */
export interface KeyCounts {
  /** Rows whose key an earlier row has. */
  readonly repeated: number;
  /** Rows with a NULL in their key: as in a primary key of SQL, it names no row. */
  readonly nulls: number;
  /** A few keys that repeat, as texts. */
  readonly examples: readonly string[];
}

/** Checks that each row of a run has a key of its own. */
export function checkKeys(columns: readonly string[], { repeated, nulls, examples }: KeyCounts): Finding {
  return {
    check: "unique",
    column: columns.join(", "),
    level: repeated + nulls > 0 ? "hold" : "pass",
    measured: repeated + nulls,
    limit: 0,
    against: null,
    numbers: { repeated, nulls, ...(examples.length === 0 ? {} : { examples: examples.join("; ") }) },
  };
}

/** Whether each row has a key of its own. The target counts them. */
export const uniqueCheck: Check = {
  name: "unique",
  judge: () => [],
  say({ numbers: { repeated = 0, nulls = 0, examples } }) {
    const such = examples === undefined ? "" : `, such as ${examples}`;
    const texts = [
      repeated === 0 ? "" : `${count(Number(repeated), "row")} ${repeated === 1 ? "repeats" : "repeat"} a key${such}`,
      nulls === 0
        ? ""
        : `${count(Number(nulls), "row")} ${nulls === 1 ? "has a NULL in its key" : "have a NULL in their key"}`,
    ];
    return texts.filter((text) => text !== "").join("; ") || "each key has one row";
  },
};
