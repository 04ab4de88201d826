import { numberedRunId, splitRunId } from "../../plan/identity.js";
import type { RunId } from "../../plan/plan.js";
import { verdictWithoutRows } from "../../publish/erasure.js";
import { withoutRows } from "../../publish/run-comparison.js";
import { comparisonDocument, verdictDocument } from "../../sink/ledger.js";
import type { Sink } from "../../sink/port.js";

/**
 * Removes what the verdicts on a run and on those before it, and their comparisons, say of single rows. For runs whose
 * rows are in files. Safe to repeat.
 */
export async function stripVerdicts({ ledger }: Sink, latest: RunId): Promise<void> {
  const { base, number } = splitRunId(latest);
  for (let earlier = 1; earlier <= number; earlier += 1) {
    const runId = numberedRunId(base, earlier);
    await ledger.change(runId, verdictDocument, (verdict) => verdict && verdictWithoutRows(verdict));
    await ledger.change(runId, comparisonDocument, (result) => result && withoutRows(result));
  }
}
