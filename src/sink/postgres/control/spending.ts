import type { RunId } from "../../../plan/plan.js";
import { type RecordedSpending, spendingText } from "../../../publish/recorded-run.js";
import type { Control } from "./control.js";
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

/** The record of a run that counts, as a subquery. @param run the run's id in the query around it */
export function spendingSql({ table }: Pick<Control, "table">, run: string): string {
  return `(SELECT p.spending FROM ${table("spending")} p WHERE p.run_id = ${run}
    ORDER BY p.answers DESC LIMIT 1)`;
}

/** Reads the record of a run that counts. undefined: there is none, or it cannot be read */
export async function recordedSpendingOf(tools: RunTools, runId: RunId): Promise<RecordedSpending | undefined> {
  let found: RecordedSpending | undefined;
  await bestEffort(async () => {
    const text = `SELECT ${spendingSql(tools.control, "$1")} AS spending`;
    const { rows } = await transact(tools, (session) =>
      session.query<{ spending: RecordedSpending | null }>({ text, values: [runId] }),
    );
    found = rows[0]?.spending ?? undefined;
  });
  return found;
}
