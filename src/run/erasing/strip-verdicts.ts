import { numberedRunId, splitRunId } from "../../plan/identity.js";
import type { RunId } from "../../plan/plan.js";
import { verdictWithoutRows } from "../../publish/erasure.js";
import type { RunVerdict } from "../../publish/run-verdict.js";
import { verdictDocument } from "../../sink/ledger.js";
import type { Sink } from "../../sink/port.js";

/**
 * Removes what the verdicts on a run and on those before it say of single rows, such as keys that repeat. For runs whose
 * rows are in files. Safe to repeat.
 */
export async function stripVerdicts({ ledger }: Sink, latest: RunId): Promise<void> {
  const { base, number } = splitRunId(latest);
  for (let earlier = 1; earlier <= number; earlier += 1) {
    const change = (verdict: RunVerdict | undefined): RunVerdict | undefined => verdict && verdictWithoutRows(verdict);
    await ledger.change(numberedRunId(base, earlier), verdictDocument, change);
  }
}
