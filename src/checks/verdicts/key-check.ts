import type { CheckResult } from "./verdict.js";

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
export function checkKeys(columns: readonly string[], { repeated, nulls, examples }: KeyCounts): CheckResult {
  return {
    check: "unique",
    column: columns.join(", "),
    level: repeated + nulls > 0 ? "hold" : "pass",
    formula: "rows whose key an earlier row has, and rows with a NULL in their key; more than 0",
    measured: repeated + nulls,
    limit: 0,
    against: null,
    numbers: { repeated, nulls, ...(examples.length === 0 ? {} : { examples: examples.join("; ") }) },
  };
}
