import type { AttemptRecord } from "../attempt-record.js";
import { type Outcome, statusOf } from "../outcome.js";
import { toScoreAgain } from "../report.js";
import { attemptDetails } from "./attempt.js";
import { pageColumns } from "./columns.js";
import { html, type Html, nothing } from "./html.js";
import { comparisonSection, driftTable, historyCharts, outputCards } from "./sections.js";
import {
  asSentence,
  type PageState,
  pageState,
  rolledBackState,
  scoringAgain,
  stateHeading,
  stateSection,
  withTop,
} from "./state.js";
import { style } from "./style.js";

/**
 * Renders a run after an attempt as a self-contained HTML page: no script, font, image or network request. The decision
 * that a person has to make comes first, then the predictions, their drift, the earlier runs, and the work of the
 * attempt.
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

/** Returns the job of a page; undefined: the text is not a page, or its attempt found no run. */
export function pageJob(page: string): string | undefined {
  return /^(.+)-[0-9a-f]{12}(?:-r\d+)?$/.exec(statusLine.exec(page)?.[1] ?? "")?.[1];
}

/** Returns the status in a page; undefined: it is the page of another run, or its attempt failed. */
function pageStatus(page: string, runId: string | undefined): string | undefined {
  const [, pageRunId, status] = statusLine.exec(page) ?? [];
  return runId !== undefined && pageRunId === runId && status !== "failed" ? status : undefined;
}

/**
 * Returns the page after an attempt. If the attempt scored no row, it returns the earlier page of the run with the current
 * state at the top: its rest says what the attempts that scored have done. A person may have decided on the run since.
 */
export function pageAfter(
  earlier: string,
  { record, outcome, endedMs }: { readonly record: AttemptRecord; readonly outcome: Outcome; readonly endedMs: number },
): string {
  const status = pageStatus(earlier, record.run?.runId);
  const isIdle = outcome.kind === "done" && record.counts.spansCommitted === 0;
  if (isIdle && outcome.report.rolledBack !== undefined && record.run !== undefined) {
    const page = rolledBackPage(earlier, record.run.runId, outcome.report.rolledBack.readersHave);
    return page ?? htmlReport(record, outcome, endedMs);
  }
  if (!isIdle || status === undefined || !finalStates.has(status) || !finalStates.has(outcome.report.status)) {
    return htmlReport(record, outcome, endedMs);
  }
  if (publishedStates.has(status) || (status === outcome.report.status && status !== "held")) {
    return earlier; // it may say who decided
  }
  const top = withTop(earlier, stateSection(record, outcome));
  return top === undefined
    ? htmlReport(record, outcome, endedMs)
    : withStatus(top, { status: outcome.report.status, word: pageState(record, outcome).word });
}

const publishedStates: ReadonlySet<string> = new Set(["complete", "already_complete"]);
const finalStates: ReadonlySet<string> = new Set([...publishedStates, "held", "discarded"]);

interface PageDecision {
  readonly runId: string;
  readonly kind: "approved" | "discarded";
  readonly by: string;
  readonly reason: string | null;
  /** Whether later runs are compared with an approved run. */
  readonly asBaseline: boolean;
  /** What readers have, of a run that was discarded; absent: it is not known. */
  readonly readers?: string | undefined;
  /** The command that scores a discarded run again; absent: the run was approved. */
  readonly newRun?: string | undefined;
}

/** Returns the page of a run that a person approved or discarded; undefined: the earlier page is not about this run. */
export function decidedPage(earlier: string, decision: PageDecision): string | undefined {
  const { runId, kind, by, reason, asBaseline, readers, newRun } = decision;
  const isApproved = kind === "approved";
  const discarded =
    readers === undefined ? `Nothing of this run is published: discarded by ${by}` : `Discarded by ${by}`;
  const who = isApproved ? `Approved by ${by}${asBaseline ? "" : ", as not normal"}` : discarded;
  const left = readers === undefined ? "" : ` ${asSentence(readers)}`;
  const sentence = `${who}${reason === null ? "" : `: ${reason}`}.${left}`;
  const state: PageState = {
    word: isApproved ? "PUBLISHED" : "DISCARDED",
    sentence,
    tone: isApproved ? "good" : "bad",
  };
  // The page of an attempt that failed is about the run as well: a person may discard it.
  return statusLine.exec(earlier)?.[1] !== runId
    ? undefined
    : withState(earlier, { status: isApproved ? "complete" : "discarded", state, newRun });
}

/** Returns the page of a run that was rolled back; undefined: the earlier page is not about this run. */
export function rolledBackPage(earlier: string, runId: string, readersHave: string | undefined): string | undefined {
  return pageStatus(earlier, runId) === undefined
    ? undefined
    : withState(earlier, { status: "rolled_back", state: rolledBackState(readersHave) });
}

/** Replaces the state at the top of a page, and the commands that decide by the one that scores again, if it is known. */
function withState(
  page: string,
  {
    status,
    state,
    newRun,
  }: { readonly status: string; readonly state: PageState; readonly newRun?: string | undefined },
): string {
  const again = newRun === undefined ? "" : scoringAgain({ text: toScoreAgain, command: newRun }).markup;
  return withStatus(page, { status, word: state.word })
    .replace(/<header class="\w+"><h1>[^<]*<\/h1>/, () => stateHeading(state).markup)
    .replace(/<section class="deciding">.*?<\/section>\n?/s, () => again);
}

function withStatus(
  page: string,
  { status, word }: { readonly status: string; readonly word: PageState["word"] },
): string {
  return page
    .replace(new RegExp(`(<meta name="${statusName}" content="\\S* )\\w+`), (_, start: string) => start + status)
    .replace(/(<title>)[^:]+/, (_, start: string) => start + word);
}

function predictions(record: AttemptRecord): Html {
  const { review } = record;
  const columns = pageColumns(record);
  const compared =
    review === undefined ? nothing : html`${driftTable(columns, review)}${historyCharts(columns, review)}`;
  return html`${outputCards(columns, review)}${comparisonSection(review)}${compared}`;
}
