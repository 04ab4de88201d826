import { expect } from "vitest";
import type { CheckResult, Verdict } from "#src/checks/verdicts/verdict.js";

/** Results that are not passed, as "check column level". */
export function told({ results }: Verdict): string[] {
  return results
    .filter(({ level }) => level !== "pass")
    .map(({ check, column, level }) => `${check} ${column} ${level}`);
}

export function only(verdict: Verdict, check: string, column: string | null = null): CheckResult {
  const found = verdict.results.filter((result) => result.check === check && result.column === column);
  expect(found).toHaveLength(1);
  return found[0] as CheckResult;
}
