import { expect } from "vitest";
import type { Finding, Verdict } from "#src/checks/check.js";
import type { RunVerdict } from "#src/publish/run-verdict.js";

/** Results that are not passed, as "check column level". */
export function told({ results }: Verdict): string[] {
  return results
    .filter(({ level }) => level !== "pass")
    .map(({ check, column, level }) => `${check} ${column} ${level}`);
}

export function only(verdict: Verdict, check: string, column: string | null = null): Finding {
  const found = verdict.results.filter((result) => result.check === check && result.column === column);
  expect(found).toHaveLength(1);
  return found[0] as Finding;
}

/** A verdict with these results as a target stores it. The run `daily-1` is of 2026-11-20. */
export function storedVerdict(results: readonly Finding[]): RunVerdict {
  const verdict = {
    outcome: "hold",
    runId: "r",
    date: "",
    baseline: [],
    modelChanged: false,
    results,
    known: 14,
    growing: [],
  } as const;
  return { verdict, dates: { "daily-1": "2026-11-20" }, thresholds: {}, writer: "w", at: "" };
}
