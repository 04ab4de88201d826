import { byChecks } from "../../publish/lifecycle.js";
import { decidedMetrics } from "../../report/metrics/metrics-text.js";
import { decidedPage, rolledBackPage } from "../../report/page/page.js";
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
  const { runId, state, carriedOut, decision, readers, newRun } = report;
  if (decision === null || decision.kind === "superseded" || (decision.by === byChecks && !carriedOut)) {
    return;
  }
  const { kind, by, reason, asBaseline, at } = decision;
  const failed = (failure: string): void => {
    log.warn(`writing the decision into the reports: ${failure}`);
  };
  try {
    const { html, metrics } = await placeReports(loaded, { folder, worker: alone.worker });
    const missing = [
      ...(await rewrite("metrics", metrics, {
        changed: (text) => decidedMetrics(text, { runId, state, atMs: Date.parse(at) }),
        failed,
      })),
      ...(await rewrite("html", html, {
        changed: (page) => decidedPage(page, { runId, kind, by, reason, asBaseline, readers, newRun }),
        failed,
      })),
    ];
    if (missing.length > 0) {
      failed(
        `there is no file of ${missing.join(" and ")} here; one on another machine does not show the decision until the job runs there again with the same params, which scores nothing`,
      );
    }
  } catch (error) {
    failed(messageOf(error));
  }
  if (carriedOut) {
    await sendDecision(context, { state, by, reason });
  }
}

/**
 * Says at the top of the HTML pages of a run on this machine that it was rolled back. A failure is only logged.
 * @param about `readersHave`: the run whose rows are there, with its date; undefined: rows that no run wrote
 */
export async function reportRollback(
  { load, folder, log }: Pick<CallContext, "folder" | "log"> & { readonly load: () => Promise<CallContext["loaded"]> },
  { runId, readersHave }: { readonly runId: string; readonly readersHave: string | undefined },
): Promise<void> {
  const failed = (failure: string): void => {
    log.warn(`writing the rollback into the page: ${failure}`);
  };
  try {
    const { html } = await placeReports(await load(), { folder, worker: alone.worker });
    await rewrite("html", html, { changed: (page) => rolledBackPage(page, runId, readersHave), failed });
  } catch (error) {
    failed(messageOf(error));
  }
}

interface Rewriting {
  /** undefined: the report is about another run. */
  readonly changed: (text: string) => string | undefined;
  /** Called for each report that cannot be written. */
  readonly failed: (failure: string) => void;
}

/** Replaces the reports of all workers that are about the run. Returns the key of the spec if there are no reports. */
async function rewrite(
  key: "html" | "metrics",
  path: string | undefined,
  { changed, failed }: Rewriting,
): Promise<string[]> {
  if (path === undefined) {
    return [];
  }
  const files = await reportsOfWorkers(path);
  for (const file of files) {
    const earlier = await readReport(file);
    const text = changed(earlier);
    const failure = text === undefined || text === earlier ? undefined : await writeReport(file, text);
    if (failure !== undefined) {
      failed(`${file}: ${failure}`); // the other reports can be written anyway
    }
  }
  return files.length > 0 ? [] : [`report.${key}`];
}
