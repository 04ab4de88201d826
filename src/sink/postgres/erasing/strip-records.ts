import { parseJson } from "../../../plan/parse-plan.js";
import { profileWithoutRows, verdictWithoutRows } from "../../../publish/erasure.js";
import { parseRunVerdict } from "../../../publish/run-verdict.js";
import { documentText } from "../control/documents.js";
import type { Session } from "../connections.js";
import type { RunTools } from "../run-tools.js";

/** A profile is 64 KiB at most. */
const rowsPerQuery = 64;

/** Removes what profiles and verdicts of the target's runs say of single rows. */
export async function stripRecords(session: Session, { control: { table } }: RunTools, target: string): Promise<void> {
  const ofTarget = `run_id IN (SELECT run_id FROM ${table("runs")} WHERE target = $1)`;
  for (let after = ["", -1]; ; ) {
    const { rows } = await session.query<{ run_id: string; span: number; profile: string }>({
      text: `SELECT run_id, span, profile FROM ${table("spans")} WHERE ${ofTarget} AND profile LIKE '%"agreement":%'
        AND (run_id, span) > ($2, $3) ORDER BY run_id, span LIMIT ${rowsPerQuery}`,
      values: [target, ...after],
    });
    for (const { run_id: runId, span, profile } of rows) {
      const stripped = profileWithoutRows(profile);
      if (stripped !== profile) {
        await session.query({
          text: `UPDATE ${table("spans")} SET profile = $3 WHERE run_id = $1 AND span = $2`,
          values: [runId, span, stripped],
        });
      }
    }
    const last = rows.at(-1);
    if (last === undefined || rows.length < rowsPerQuery) {
      break;
    }
    after = [last.run_id, last.span];
  }
  const { rows } = await session.query<{ run_id: string; verdict: string }>({
    text: `SELECT run_id, document::text AS verdict FROM ${table("documents")} WHERE name = 'verdict' AND ${ofTarget}
      AND (document::text LIKE '%"challenger":%' OR document::text LIKE '%"examples":%')`,
    values: [target],
  });
  for (const { run_id: runId, verdict: text } of rows) {
    const verdict = parseRunVerdict(parseJson(text));
    const stripped = verdict === undefined ? text : documentText(verdictWithoutRows(verdict));
    if (stripped !== text) {
      await session.query({
        text: `UPDATE ${table("documents")} SET document = $2 WHERE run_id = $1 AND name = 'verdict'`,
        values: [runId, stripped],
      });
    }
  }
}
