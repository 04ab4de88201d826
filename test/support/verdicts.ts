import { expect } from "vitest";
import type { CheckResult, UnlistedResults, Verdict } from "#src/checks/verdicts/verdict.js";
import type { RunVerdict } from "#src/publish/run-verdict.js";

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

/** A verdict with these results as a target stores it. The run `daily-1` is of 2026-11-20. */
export function storedVerdict(results: readonly CheckResult[], unlisted: readonly UnlistedResults[] = []): RunVerdict {
  const verdict = {
    outcome: "hold",
    runId: "r",
    date: "",
    baseline: [],
    modelChanged: false,
    results,
    unlisted,
  } as const;
  return { verdict, dates: { "daily-1": "2026-11-20" }, thresholds: {}, writer: "w", at: "" };
}
