import type { RunId } from "../../../plan/plan.js";
import { type RecordedSpending, spendingText } from "../../../publish/recorded-run.js";
import { bestEffort } from "../../../util/best-effort.js";
import type { RunTools } from "../run-tools.js";
import { transact } from "../transaction.js";

/** Records what a run has paid for so far, for `history`. */
export async function recordSpending(tools: RunTools, runId: RunId, spending: RecordedSpending): Promise<void> {
  const { control, writer } = tools;
  const text = `INSERT INTO ${control.table("spending")} (run_id, writer, answers, spending) VALUES ($1, $2, $3, $4)`;
  const values = [runId, writer, spending.answers, spendingText(spending)];
  await bestEffort(() => transact(tools, (session) => session.query({ text, values })));
}
