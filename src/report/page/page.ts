import type { AttemptRecord } from "../attempt-record.js";
import { type Outcome, statusOf } from "../outcome.js";
import { attemptDetails } from "./attempt.js";
import { pageColumns } from "./columns.js";
import { html, type Html, nothing } from "./html.js";
import { driftTable, historyCharts, outputCards } from "./sections.js";
import { type PageState, pageState, stateHeading, stateSection } from "./state.js";
import { style } from "./style.js";

/**
 * A run after an attempt, as a self-contained HTML page: no script, font, image or network request. What a person has to
 * decide comes first, then the predictions, their drift, the runs before, and what the attempt did.
 */
function htmlReport(record: AttemptRecord, outcome: Outcome, endedMs: number): string {
  const { info, run, review } = record;
  const date = review === undefined || review.profile.date === "" ? "" : ` ${review.profile.date}`;
  const page = html`<!doctype html>
<html lang="en">
<head>
<meta charset="utf-8">
<meta http-equiv="Content-Security-Policy" content="default-src 'none'; style-src 'unsafe-inline'">
<meta name="viewport" content="width=device-width">
<meta name="${statusName}" content="${`${run?.runId ?? ""} ${statusOf(outcome)}`}">
<title>${pageState(record, outcome).word}: ${info.job}${date}</title>
<style>${{ markup: style }}</style>
</head>
<body>
${stateSection(record, outcome)}
${predictions(record)}
${attemptDetails(record, outcome, endedMs)}
</body>
</html>
`;
  return page.markup;
}

const statusName = "infer-batch";

const statusLine = new RegExp(`<meta name="${statusName}" content="(\\S*) (\\w+)">`);

/** The job whose run a page is about; undefined: it is no page, or its attempt found no run. */
export function pageJob(page: string): string | undefined {
  return /^(.+)-[0-9a-f]{12}(?:-r\d+)?$/.exec(statusLine.exec(page)?.[1] ?? "")?.[1];
}

/** The status in a page about this run, unless that attempt failed; else undefined. */
function pageStatus(page: string, runId: string | undefined): string | undefined {
  const [, pageRunId, status] = statusLine.exec(page) ?? [];
  return runId !== undefined && pageRunId === runId && status !== "failed" ? status : undefined;
}

/**
 * The page after an attempt. One that scored nothing and read nothing of the run leaves the earlier page of the run as
 * it is, but for the state at its top: the run may have been decided on since.
 */
export function pageAfter(
  earlier: string,
  { record, outcome, endedMs }: { readonly record: AttemptRecord; readonly outcome: Outcome; readonly endedMs: number },
): string {
  const status = pageStatus(earlier, record.run?.runId);
  const isIdle = outcome.kind === "done" && outcome.report.status !== "partial" && record.counts.spansCommitted === 0;
  if (status === undefined || !isIdle || record.review !== undefined) {
    return htmlReport(record, outcome, endedMs);
  }
  const isPublished = status === "complete" || status === "already_complete";
  return isPublished || status === outcome.report.status
    ? earlier
    : withState(earlier, { status: outcome.report.status, state: pageState(record, outcome) });
}

/** The page of a run that a person approved or discarded; undefined: it is no page of this run. */
export function decidedPage(
  earlier: string,
  { runId, kind, by, reason }: { runId: string; kind: "approved" | "discarded"; by: string; reason: string | null },
): string | undefined {
  const isApproved = kind === "approved";
  const sentence = `${isApproved ? "Approved" : "Nothing of this run is published: discarded"} by ${by}${reason === null ? "" : `: ${reason}`}.`;
  const state: PageState = {
    word: isApproved ? "PUBLISHED" : "DISCARDED",
    sentence,
    tone: isApproved ? "good" : "bad",
  };
  return pageStatus(earlier, runId) === undefined
    ? undefined
    : withState(earlier, { status: isApproved ? "complete" : "discarded", state });
}

/** The page with another state at its top, and without the commands that decide. */
function withState(page: string, { status, state }: { readonly status: string; readonly state: PageState }): string {
  return page
    .replace(new RegExp(`(<meta name="${statusName}" content="\\S* )\\w+`), (_, start: string) => start + status)
    .replace(/(<title>)\w+/, (_, start: string) => start + state.word)
    .replace(/<header class="\w+"><h1>[^<]*<\/h1>/, () => stateHeading(state).markup)
    .replace(/<section class="deciding">.*?<\/section>/s, "");
}

function predictions(record: AttemptRecord): Html {
  const { review } = record;
  const columns = pageColumns(record);
  const compared =
    review === undefined ? nothing : html`${driftTable(columns, review)}${historyCharts(columns, review)}`;
  return html`${outputCards(columns, review?.earlier.at(-1))}${compared}`;
}
