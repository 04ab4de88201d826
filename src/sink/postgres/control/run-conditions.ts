import type { Decision } from "../../../publish/decision.js";

/** SQL for conditions on a row `r` of the table of runs. */
export function runConditions(table: (name: "finishes" | "verdicts" | "decisions") => string): {
  readonly isUnfinished: string;
  readonly isDecided: (kind: Decision["kind"]) => string;
  readonly isHeld: string;
} {
  return {
    isUnfinished: `NOT EXISTS (SELECT 1 FROM ${table("finishes")} f WHERE f.run_id = r.run_id)`,
    isDecided: (kind) =>
      `EXISTS (SELECT 1 FROM ${table("decisions")} d WHERE d.run_id = r.run_id AND d.kind = '${kind}')`,
    isHeld: `(r.staged AND EXISTS (SELECT 1 FROM ${table("verdicts")} v WHERE v.run_id = r.run_id AND v.outcome = 'hold')
      AND NOT EXISTS (SELECT 1 FROM ${table("decisions")} d WHERE d.run_id = r.run_id))`,
  };
}
