import { decidedMetrics } from "../../report/metrics/check-metrics.js";
import { decidedPage } from "../../report/page/page.js";
import { byChecks } from "../../publish/decision.js";
import type { DecisionReport } from "../../run/decide.js";
import { messageOf } from "../../util/errors.js";
import { alone } from "../job-context.js";
import type { CallContext } from "./call-urls.js";
import { placeReports, readReport, writeReport } from "./files.js";
import { sendDecision } from "./lineage.js";

/**
 * Puts a decision at the top of the run's HTML page, and into its metrics, if these files are there; sends it as lineage
 * events. A failure is only logged: the decision is kept.
 */
export async function reportDecision(context: CallContext, report: DecisionReport): Promise<void> {
  const { loaded, folder, log } = context;
  const { runId, state, carriedOut, decision } = report;
  if (decision === null || decision.kind === "superseded" || (decision.by === byChecks && !carriedOut)) {
    return;
  }
  const { kind, by, reason } = decision;
  try {
    const { html, metrics } = await placeReports(loaded, { folder, worker: alone.worker });
    await rewrite(html, (page) => decidedPage(page, { runId, kind, by, reason }) ?? page);
    await rewrite(metrics, (text) => decidedMetrics(text, { runId, state }));
  } catch (error) {
    log.warn(`writing the decision into the reports: ${messageOf(error)}`);
  }
  if (carriedOut) {
    await sendDecision(context, { state, by, reason });
  }
}

/** Replaces a file if its new text differs. */
async function rewrite(path: string | undefined, changed: (text: string) => string): Promise<void> {
  const earlier = path === undefined ? "" : await readReport(path);
  const text = changed(earlier);
  const failed = path === undefined || text === earlier ? undefined : await writeReport(path, text);
  if (failed !== undefined) {
    throw new Error(`${path}: ${failed}`);
  }
}
