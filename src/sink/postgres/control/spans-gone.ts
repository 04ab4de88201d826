import type { RunId } from "../../../plan/plan.js";
import { bestEffort } from "../../../util/best-effort.js";
import type { Session } from "../connections.js";
import { damagedRun, spansMissing } from "../damage.js";
import type { RunTools } from "../run-tools.js";
import { transact } from "../transaction.js";
import type { Control } from "./control.js";

/**
 * Records which of these spans have no control row any more, so that later attempts do not score them again: their rows
 * may be in the table. Never fails.
 */
export async function recordSpansGone(tools: RunTools, runId: RunId, known: Iterable<number>): Promise<void> {
  const { control, writer } = tools;
  const documents = control.table("documents");
  await bestEffort(async () => {
    await tools.ensureControlTables(undefined);
    await transact(tools, (session) =>
      session.query({
        text: `INSERT INTO ${documents} (run_id, name, version, document, writer)
          SELECT $1, 'spans_gone', (SELECT coalesce(max(version), 0) + 1 FROM ${documents} WHERE run_id = $1 AND name = 'spans_gone'),
            json_agg(n ORDER BY n), $2 FROM unnest($3::int4[]) AS n
          WHERE NOT EXISTS (SELECT FROM ${control.table("spans")} WHERE run_id = $1 AND span = n) HAVING count(*) > 0`,
        values: [runId, writer, [...known]],
      }),
    );
  });
}

/** SQL that lets a run score spans again whose control rows are gone. */
export function forgetSpansGone({ table }: Control, runId: RunId): string {
  return `DELETE FROM ${table("documents")} WHERE run_id = '${runId}' AND name = 'spans_gone'`;
}

/**
 * Refuses a run whose control rows are known to be missing. `target`: where their rows are beside those of others;
 * undefined: a new run replaces them. @throws JobError OUTPUT_DAMAGED
 */
export async function refuseSpansGone(
  session: Session,
  control: Control,
  { runId, target }: { readonly runId: RunId; readonly target: string | undefined },
): Promise<void> {
  const { rows } = await session.query<{ span: number; count: number }>({
    text: `SELECT min(n::int4) AS span, count(DISTINCT n)::int4 AS count
      FROM ${control.table("documents")} d, json_array_elements_text(CASE WHEN name = 'spans_gone' THEN document ELSE '[]' END) AS n
      WHERE d.run_id = $1 AND name = 'spans_gone'
        AND NOT EXISTS (SELECT FROM ${control.table("spans")} s WHERE s.run_id = $1 AND s.span = n::int4) HAVING count(*) > 0`,
    values: [runId],
  });
  const [gone] = rows;
  if (gone !== undefined) {
    const more = gone.count > 1 ? ` and ${gone.count - 1} more` : "";
    const found = `reading ${control.schema}.spans: span ${gone.span}${more} of run ${runId} had been committed, and the control rows are gone`;
    throw target === undefined
      ? damagedRun(found, { hint: "restore the control tables from a backup", runId })
      : spansMissing(found, { runId, target, notThere: forgetSpansGone(control, runId) });
  }
}
