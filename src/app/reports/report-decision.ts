import { decidedMetrics } from "../../report/metrics/decided-metrics.js";
import { decidedPage } from "../../report/page/page.js";
import { byChecks } from "../../publish/decision.js";
import type { DecisionReport } from "../../run/decide.js";
import { messageOf } from "../../util/errors.js";
import { alone } from "../job-context.js";
import type { CallContext } from "./call-urls.js";
import { placeReports, readReport, reportsOfWorkers, writeReport } from "./files.js";
import { sendDecision } from "./lineage.js";

/**
 * Puts a decision at the top of the run's HTML pages, and into its metrics, of each worker that has reported on this
 * machine; sends it as lineage events. A failure is only logged: the decision is kept.
 */
export async function reportDecision(context: CallContext, report: DecisionReport): Promise<void> {
  const { loaded, folder, log } = context;
  const { runId, state, carriedOut, decision } = report;
  if (decision === null || decision.kind === "superseded" || (decision.by === byChecks && !carriedOut)) {
    return;
  }
  const { kind, by, reason, at } = decision;
  try {
    const { html, metrics } = await placeReports(loaded, { folder, worker: alone.worker });
    const missing = [
      ...(await rewrite("html", html, (page) => decidedPage(page, { runId, kind, by, reason }))),
      ...(await rewrite("metrics", metrics, (text) => decidedMetrics(text, { runId, state, atMs: Date.parse(at) }))),
    ];
    if (missing.length > 0) {
      log.warn(
        `writing the decision into the reports: there is no file of ${missing.join(" and ")} here; one on the machine that scored run ${runId} says that it is held until the job runs there again with the same params, which scores nothing`,
      );
    }
  } catch (error) {
    log.warn(`writing the decision into the reports: ${messageOf(error)}`);
  }
  if (carriedOut) {
    await sendDecision(context, { state, by, reason });
  }
}

/**
 * Replaces the reports of all workers that are about the run. Returns the key of the spec if there are no reports.
 * @param changed returns undefined for a report that is about another run
 */
async function rewrite(
  key: "html" | "metrics",
  path: string | undefined,
  changed: (text: string) => string | undefined,
): Promise<string[]> {
  if (path === undefined) {
    return [];
  }
  const files = await reportsOfWorkers(path);
  for (const file of files) {
    const earlier = await readReport(file);
    const text = changed(earlier);
    const failed = text === undefined || text === earlier ? undefined : await writeReport(file, text);
    if (failed !== undefined) {
      throw new Error(`${file}: ${failed}`);
    }
  }
  return files.length > 0 ? [] : [`report.${key}`];
}
