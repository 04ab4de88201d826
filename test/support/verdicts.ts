import type { Finding } from "#src/checks/check.js";
import type { RunVerdict } from "#src/run/lifecycle/lifecycle.js";

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
