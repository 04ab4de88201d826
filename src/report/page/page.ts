import { paramTexts } from "../../run/plan/identity.js";
import { assertNever } from "../../base/errors.js";
import type { AttemptRecord } from "../attempt-record.js";
import { showBytes, showCount, showDuration, showRate, count } from "../../base/shown-numbers.js";
import {
  type DecidingCommands,
  type Outcome,
  type RunReport,
  type ScoreAgain,
  type VerdictReport,
  checksText,
  decidingTexts,
  requestsText,
  spendingText,
  statusOfOutcome,
  toScoreAgain,
} from "../report.js";
import type { ShownEvaluation } from "../evaluation.js";
import { secondsByStage, stages } from "../stage-times.js";
import { pageColumns } from "./columns.js";
import { type Html, folded, html, nothing, showDay } from "./html.js";
import {
  bars,
  comparisonSection,
  driftTable,
  historyCharts,
  outputCards,
  htmlTable,
  throughputChart,
} from "./sections.js";
import { readersText } from "../../run/lifecycle/published-run.js";

/**
 * Self-contained: no script, font, image or network request. The decision that a person has to make comes first, then
 * the predictions, their drift, the earlier runs, and the work of the attempt.
 */
function htmlReport(record: AttemptRecord, outcome: Outcome, endedMs: number): string {
  const { info, run, review } = record;
  const date = review === undefined || review.profile.date === "" ? "" : ` ${review.profile.date}`;
  return document(
    html`<meta name="${statusName}" content="${`${run?.runId ?? ""} ${statusOfOutcome(outcome)}`}">
<title>${pageState(record, outcome).word}: ${info.job}${date}</title>`,
    html`${stateSection(record, outcome)}
${predictionSections(record)}
${attemptDetails(record, outcome, endedMs)}`,
  );
}

function document(head: Html, body: Html): string {
  return html`<!doctype html>
<html lang="en">
<head>
<meta charset="utf-8">
<meta http-equiv="Content-Security-Policy" content="default-src 'none'; style-src 'unsafe-inline'">
<meta name="viewport" content="width=device-width">
${head}
<style>${{ markup: style }}</style>
</head>
<body>
${body}
</body>
</html>
`.markup;
}

/** Renders how right the predictions of a job were as a page of the same style. */
export function evaluationPage({ tables, notes }: ShownEvaluation, job: string): string {
  const sections = tables.map(
    ({ title, rows: [head = [], ...rows] }) => html`<section><h2>${title}</h2>
${htmlTable(head, rows)}</section>
`,
  );
  return document(
    html`<title>${job} judged by labels</title>`,
    html`<h1>${job}</h1>
${notes.map((note) => html`<p>${note}</p>`)}${sections}`,
  );
}

const statusName = "infer-batch";

const statusLine = new RegExp(`<meta name="${statusName}" content="(\\S*) (\\w+)">`);

/** Returns the job of a page; undefined: the text is not a page, or its attempt found no run. */
export function pageJob(page: string): string | undefined {
  return /^(.+)-[0-9a-f]{12}(?:-r\d+)?$/.exec(statusLine.exec(page)?.[1] ?? "")?.[1];
}

/** undefined: it is the page of another run, or its attempt failed. */
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
    : withStatus(top, outcome.report.status, pageState(record, outcome).word);
}

const publishedStates: ReadonlySet<string> = new Set(["complete", "already_complete"]);
const finalStates: ReadonlySet<string> = new Set([...publishedStates, "held", "discarded"]);

interface PageDecision {
  readonly runId: string;
  readonly kind: "approved" | "discarded";
  readonly by: string;
  readonly reason: string | null;
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
    : withState(earlier, isApproved ? "complete" : "discarded", state, newRun);
}

/** Returns the page of a run that was rolled back; undefined: the earlier page is not about this run. */
export function rolledBackPage(earlier: string, runId: string, readersHave: string | undefined): string | undefined {
  return pageStatus(earlier, runId) === undefined
    ? undefined
    : withState(earlier, "rolled_back", rolledBackState(readersHave));
}

function withState(page: string, status: string, state: PageState, newRun?: string): string {
  const again = newRun === undefined ? "" : scoringAgain({ text: toScoreAgain, command: newRun }).markup;
  return withStatus(page, status, state.word)
    .replace(/<header class="\w+"><h1>[^<]*<\/h1>/, () => stateHeading(state).markup)
    .replace(/<section class="deciding">.*?<\/section>\n?/s, () => again);
}

function withStatus(page: string, status: string, word: PageState["word"]): string {
  return page
    .replace(new RegExp(`(<meta name="${statusName}" content="\\S* )\\w+`), (_, start: string) => start + status)
    .replace(/(<title>)[^:]+/, (_, start: string) => start + word);
}

function predictionSections(record: AttemptRecord): Html {
  const { review } = record;
  const columns = pageColumns(record);
  const compared =
    review === undefined ? nothing : html`${driftTable(columns, review)}${historyCharts(columns, review)}`;
  return html`${outputCards(columns, review)}${comparisonSection(review)}${compared}`;
}

interface PageState {
  readonly word: "HELD" | "PUBLISHED" | "ROLLED BACK" | "DISCARDED" | "UNFINISHED" | "FAILED";
  readonly sentence: string;
  readonly tone: "good" | "warned" | "bad";
}

const nothingPublished = "Nothing of this run is published.";

function pageState(record: AttemptRecord, outcome: Outcome): PageState {
  if (outcome.kind === "failed") {
    const [text = outcome.code] = outcome.message.split("\n");
    return { word: "FAILED", sentence: asSentence(text), tone: "bad" };
  }
  const { report } = outcome;
  if (report.rolledBack !== undefined) {
    return rolledBackState(report.rolledBack.readersHave);
  }
  switch (report.status) {
    case "held":
      return { word: "HELD", sentence: readersSentence(record), tone: "bad" };
    case "discarded":
      return { word: "DISCARDED", sentence: discardedSentence(report), tone: "bad" };
    case "partial": {
      const left = report.spansPlanned - report.spansCommitted;
      return { word: "UNFINISHED", sentence: `${count(left, "span")} left to other workers.`, tone: "warned" };
    }
    case "complete":
    case "already_complete":
    case "nothing_new":
      return publishedState(record, report);
    default:
      return assertNever(report.status);
  }
}

/** @param readersHave the run whose rows are there */
function rolledBackState(readersHave: string | undefined): PageState {
  const sentence = `Its rows are not in the table${readersHave === undefined ? "" : `: readers have ${readersHave}`}.`;
  return { word: "ROLLED BACK", sentence, tone: "bad" };
}

function publishedState(record: AttemptRecord, report: RunReport): PageState {
  const warnings = warningsOf(report.verdict).length;
  const { predictions, text } = rowsText(record, report);
  const isDoubtful = warnings > 0 || (predictions === 0 && report.rowsPlanned > 0);
  return { word: "PUBLISHED", sentence: `${text}${checksText(report.verdict)}.`, tone: isDoubtful ? "warned" : "good" };
}

/** `predictions`: undefined if they are not counted. */
function rowsText(
  { review }: AttemptRecord,
  { status, rowsPlanned, rowsScored, rowsRejected, spansResumed }: RunReport,
): { readonly predictions: number | undefined; readonly text: string } {
  const scored = status === "complete" && spansResumed === 0 ? { rows: rowsScored, rejected: rowsRejected } : undefined;
  const counted = review?.profile ?? scored;
  if (counted === undefined) {
    return { predictions: undefined, text: count(rowsPlanned, "input row") };
  }
  const { rows: predictions, rejected } = counted;
  const left = Math.max(rowsPlanned - predictions - rejected, 0);
  const parts = [
    count(predictions, "prediction"),
    ...(rejected === 0 ? [] : [`${count(rejected, "row")} rejected`]),
    ...(left === 0 ? [] : [`${count(left, "row")} filtered out`]),
  ];
  return { predictions, text: parts.join(", ") };
}

function discardedSentence({ decided }: RunReport): string {
  return decided?.readers === undefined ? nothingPublished : asSentence(decided.readers);
}

function readersSentence({ review }: AttemptRecord): string {
  if (review?.readers === undefined) {
    return nothingPublished;
  }
  return asSentence(readersText(review.readers, review.plan, showDay));
}

/** A line each. With `on_fail: warn`, the failed checks come first. */
function warningsOf(verdict: VerdictReport | null): readonly string[] {
  return verdict === null ? [] : [...(verdict.outcome === "publish" ? verdict.failed : []), ...verdict.warnings];
}

const [begin, end] = ["<!-- state -->", "<!-- end of state -->"];

function stateSection(record: AttemptRecord, outcome: Outcome): Html {
  const details = outcome.kind === "failed" ? failure(outcome, record) : findings(outcome.report);
  return html`${{ markup: begin }}
${stateHeading(pageState(record, outcome))}
${about(record, outcome)}${outcome.kind === "failed" ? nothing : reasons(outcome.report)}</header>
${details}${{ markup: end }}`;
}

/** undefined: the page is none of this program. */
function withTop(page: string, top: Html): string | undefined {
  const [from, to] = [page.indexOf(begin), page.indexOf(end)];
  return from < 0 || to < 0 ? undefined : `${page.slice(0, from)}${top.markup}${page.slice(to + end.length)}`;
}

/** Its `header` element stays open. */
function stateHeading({ word, sentence, tone }: PageState): Html {
  return html`<header class="${tone}"><h1>${word}. ${sentence}</h1>`;
}

function about({ info, run, review }: AttemptRecord, outcome: Outcome): Html {
  // An attempt that failed early has no review: its params say which date it is about.
  const params = paramTexts(info.params);
  const date = review?.profile.date ?? params.join(" ");
  const output = outcome.kind === "done" ? outcome.report.output : info.output;
  const texts = [info.job, date, run?.runId ?? "no run was planned", output].filter((text) => text !== "");
  return html`<p>${texts.map((text, index) => html`${index === 0 ? nothing : html` · `}<span>${text}</span>`)}</p>`;
}

function reasons({ verdict }: RunReport): Html {
  const [first] = verdict?.outcome === "hold" ? verdict.failed : [];
  const notes = (verdict?.notes ?? []).map((note) => html`<p>${asSentence(note)}</p>`);
  return html`${first === undefined ? nothing : html`<p class="reason">${first}</p>`}${notes}`;
}

function asSentence(text: string): string {
  return `${capitalized(text)}.`;
}

function capitalized(text: string): string {
  return `${text.charAt(0).toUpperCase()}${text.slice(1)}`;
}

function failure(outcome: Extract<Outcome, { kind: "failed" }>, record: AttemptRecord): Html {
  const { nullFeatures } = record;
  const lines = outcome.message.split("\n").map((line) => html`${line}\n`);
  const hint = outcome.hint === undefined ? nothing : html`<p>${outcome.hint}</p>`;
  return html`<section><pre>${lines}</pre>${hint}</section>
${continuing(outcome, record)}${list("Warnings", "warned", nullFeatures === undefined ? [] : [nullFeatures.text])}`;
}

function continuing(
  { code }: Extract<Outcome, { kind: "failed" }>,
  { info: { command, olderCommand }, run }: AttemptRecord,
): Html {
  if (command === undefined) {
    return nothing;
  }
  const isOlder = code === "OUTPUT_NEWER" && olderCommand !== undefined;
  const older =
    olderCommand === undefined ? "" : " (with --allow-older, if a newer run has published to the table by then)";
  const what = isOlder
    ? "To run it although a newer run has published to the table"
    : `To ${run === undefined ? "run it" : "continue the run"}, after you fix the cause${older}`;
  return html`<section class="deciding"><h2>Commands</h2><p>${what}:</p><pre>${isOlder ? olderCommand : command}</pre></section>\n`;
}

function findings({ verdict, decided, scoreAgain }: RunReport): Html {
  const [, ...others] = verdict?.outcome === "hold" ? verdict.failed : [];
  const commands = decided?.commands === undefined ? nothing : deciding(decided.commands, verdict?.toCorrect);
  const again = scoreAgain === undefined ? nothing : scoringAgain(scoreAgain);
  return html`${commands}${again}${list("Other checks that failed", "failed", others)}${list("Warnings", "warned", warningsOf(verdict))}`;
}

function scoringAgain({ text, command }: ScoreAgain): Html {
  return html`<section class="deciding"><h2>Commands</h2><p>${asSentence(text).replace(/\.$/, ":")}</p><pre>${command}</pre></section>\n`;
}

const openFindings = 5;

function list(title: string, name: string, lines: readonly string[]): Html {
  if (lines.length === 0) {
    return nothing;
  }
  const rest = lines.slice(openFindings);
  const more = rest.length === 0 ? nothing : folded(`${rest.length} more`, bullets(name, rest));
  return html`<section><h2>${title}</h2>${bullets(name, lines.slice(0, openFindings))}${more}</section>\n`;
}

function bullets(name: string, lines: readonly string[]): Html {
  return html`<ul class="${name}">${lines.map((line) => html`<li>${line}</li>`)}</ul>`;
}

function deciding(commands: DecidingCommands, toCorrect = "the input"): Html {
  const { approve, discard, newRun, rejects, joinsBaseline, newer } = commands;
  const texts = decidingTexts(commands);
  const baseline = joinsBaseline ? ` (and with --not-normal, ${texts.notNormal})` : "";
  const steps: (readonly [string, string])[] = [
    ...(rejects === undefined ? [] : [["To see the rejected rows", rejects] as const]),
    [`${capitalized(texts.approve)}${baseline}`, approve],
    [capitalized(texts.discard), discard],
    [`To score again, after you correct ${toCorrect}`, newRun],
  ];
  const warning = newer === undefined ? nothing : html`<p>${asSentence(newer)}</p>`;
  return html`<section class="deciding"><h2>Commands</h2>${warning}${steps.map(([what, command]) => html`<p>${what}:</p><pre>${command}</pre>`)}</section>\n`;
}

function attemptDetails(record: AttemptRecord, outcome: Outcome, endedMs: number): Html {
  const { info, timeline, rejectReasons, counts } = record;
  const worker = info.worker.count === 1 ? nothing : html`, worker ${info.worker.index} of ${info.worker.count}`;
  return html`${rejectReasons.size === 0 ? nothing : html`<section><h2>Rejected rows by reason</h2>${rejectBars(record)}</section>`}
<details><summary>${counts.spansCommitted === 0 ? "Inputs of this attempt, which scored no row" : "Speed, engine and inputs of this attempt"}</summary>
<p>${utc(record.startedMs)} to ${utc(endedMs)}${worker}</p>
${tiles(record, outcome)}
<h3>Rows a second</h3>
${timeline.rows.length === 0 ? html`<p>Nothing was scored.</p>` : throughputChart(timeline)}
<h3>Seconds by stage</h3>
<p>read, decode, pack and wait follow each other in the loop that feeds the model; the other stages run at the same time.</p>
${stageBars(record)}
<h3>Run, model and settings</h3>
${facts(record, outcome)}
</details>
`;
}

type Fact = readonly [name: string, value: string | undefined];

function tiles({ counts, run, engine, seconds, engineBusy }: AttemptRecord, outcome: Outcome): Html {
  const hasTrees = (engine?.trees() ?? null) !== null;
  const done = outcome.kind === "done" ? showCount(outcome.report.spansCommitted) : "?";
  const all: readonly Fact[] = [
    ["rows scored", showCount(counts.rowsScored)],
    ["rate", showRate(seconds > 0 ? counts.rowsScored / seconds : 0)],
    ["seconds", seconds.toFixed(1)],
    ["engine busy", engineBusy === null ? "–" : `${(engineBusy * 100).toFixed(0)}%`],
    ["rows rejected", showCount(counts.rowsRejected)],
    ["rows filtered out", showCount(counts.rowsFiltered)],
    ["rows reused", showCount(counts.rowsReused)],
    ["rows by compiled trees", hasTrees ? showCount(counts.rowsByTrees) : undefined],
    ["spans committed here", showCount(counts.spansCommitted)],
    ["spans of the run", `${done} of ${run?.spans ?? "?"}`],
  ];
  return html`<dl class="tiles">${known(all).map(([name, value]) => html`<div><dt>${name}</dt><dd>${value}</dd></div>`)}</dl>`;
}

function known(all: readonly Fact[]): [string, string][] {
  return all.flatMap(([name, value]) => (value === undefined ? [] : [[name, value]]));
}

function stageBars({ stages: times }: AttemptRecord): Html {
  const seconds = secondsByStage(times);
  return bars(
    stages.map((stage) => ({ name: stage, value: seconds[stage] })),
    " s",
  );
}

function rejectBars({ rejectReasons }: AttemptRecord): Html {
  const rows = [...rejectReasons].map(([name, value]) => ({ name, value }));
  return bars(rows.toSorted((left, right) => right.value - left.value));
}

function named(prefix: string, values: Readonly<Record<string, string>>): Fact[] {
  return Object.entries(values).map(([name, value]) => [`${prefix}${name}`, value]);
}

function facts({ info, run, engine, inputWaitSeconds }: AttemptRecord, outcome: Outcome): Html {
  const all: readonly Fact[] = [
    ...named("param ", info.params),
    ["plan", run?.planId],
    ["model", run?.modelUri],
    ["model sha256", run?.modelSha256],
    ["model version", run?.modelVersion],
    ["trained by run", run?.modelOrigin?.runId],
    ...named("model tag ", run?.modelOrigin?.tags ?? {}),
    ["input", run && `${count(run.rows, "row")} in ${count(run.shards, "shard")}, ${showBytes(run.shardBytes)}`],
    ["commit_rows", run && showCount(run.commitRows)],
    ["provider", engine && [...engine.missing.map((name) => `no ${name}`), engine.provider].join(", ")],
    ["decision trees", engine?.trees() ?? undefined],
    ["sessions", engine && String(engine.sessions)],
    ["batch_size", engine && showCount(engine.batchRows())],
    ["server", engine?.server && requestsText(engine.server())],
    ["spent by the run", engine?.spending && spendingText(engine.spending())],
    ["waited for the input", inputWaitSeconds === 0 ? undefined : showDuration(inputWaitSeconds)],
    ["output", outcome.kind === "done" ? outcome.report.output : info.output],
    ...named("", info.versions),
  ];
  return html`<table class="facts">${known(all).map(([name, value]) => html`<tr><th>${name}</th><td>${value}</td></tr>`)}</table>`;
}

function utc(ms: number): string {
  return `${new Date(ms).toISOString().slice(0, 19).replace("T", " ")} UTC`;
}

/** The style sheet of the page, for wide and narrow windows, light and dark. @public so that tests reach it */
export const style = `
:root { color-scheme: light dark; --ink: #1f2328; --paper: #fff; --quiet: #59636e; --line: #d1d9e0; --now: #6a96d5; --was: #6e2800;
  --good: #1a7f37; --warned: #9a6700; --bad: #cf222e; --shade: #f6f8fa; }
@media (prefers-color-scheme: dark) {
  :root { --ink: #e6edf3; --paper: #0d1117; --quiet: #9198a1; --line: #3d444d; --now: #3263b4; --was: #ffc08a;
    --good: #3fb950; --warned: #d29922; --bad: #ff7b72; --shade: #161b22; }
}
* { box-sizing: border-box; }
body { font: 15px/1.45 system-ui, sans-serif; color: var(--ink); background: var(--paper); max-width: 76rem; margin: 0 auto; padding: 1rem; }
h1 { font-size: 1.5rem; line-height: 1.25; margin: 0; } h2 { font-size: 1.1rem; margin: 1.6rem 0 .5rem; } h3 { font-size: .95rem; margin: 0; overflow-wrap: anywhere; }
p { margin: .4rem 0; overflow-wrap: anywhere; } pre { white-space: pre-wrap; overflow-wrap: anywhere; background: var(--shade); border: 1px solid var(--line); border-radius: 6px; padding: .5rem .7rem; margin: .3rem 0 .8rem; font-size: .85rem; }
header { border-left: .4rem solid var(--quiet); padding: .2rem 0 .2rem .9rem; } header p { color: var(--quiet); font-size: .9rem; } header .reason { color: var(--ink); font-size: 1rem; } header span { overflow-wrap: anywhere; }
header.good { border-color: var(--good); } header.warned { border-color: var(--warned); } header.bad { border-color: var(--bad); }
header.good h1 { color: var(--good); } header.warned h1 { color: var(--warned); } header.bad h1 { color: var(--bad); }
ul { margin: 0; padding-left: 1.2rem; } li { overflow-wrap: anywhere; margin: .2rem 0; } ul.failed li::marker { color: var(--bad); } ul.warned li::marker { color: var(--warned); }
.cards { display: grid; grid-template-columns: repeat(auto-fill, minmax(min(100%, 19rem), 1fr)); gap: .75rem; align-items: start; }
figure { margin: 0; min-width: 0; } .cards figure { border: 1px solid var(--line); border-radius: 6px; padding: .6rem .7rem; }
.cards .warn { border-color: var(--warned); } .cards .hold { border-color: var(--bad); border-width: 2px; }
figcaption, small, .before { color: var(--quiet); font-size: .8rem; } svg { display: block; width: 100%; overflow: visible; }
svg text { font-size: 10.5px; fill: var(--quiet); } path.now { fill: var(--now); } path.was { fill: none; stroke: var(--was); stroke-width: 1.6; vector-effect: non-scaling-stroke; }
path.grid { stroke: var(--line); fill: none; } path.line { fill: none; stroke: var(--quiet); stroke-width: 1.5; vector-effect: non-scaling-stroke; } svg.wide { height: 5rem; }
circle { fill: var(--ink); } .mark.warn { fill: var(--warned); } .mark.hold { fill: var(--bad); } b.warn { color: var(--warned); } b.hold { color: var(--bad); }
.key { font-size: .85rem; } .key .now { border-left: 1rem solid var(--now); padding: 0 1rem 0 .4rem; } .key .was { border-left: 1rem solid transparent; border-image: linear-gradient(transparent 45%, var(--was) 45% 58%, transparent 58%) 1; padding-left: .4rem; }
table { border-collapse: collapse; } th { text-align: left; font-weight: normal; overflow-wrap: anywhere; } td { font-variant-numeric: tabular-nums; }
.scroll { overflow-x: auto; } .drift { width: 100%; max-width: 52rem; font-size: .9rem; } .drift th, .drift td { padding: .25rem .5rem; border-top: 1px solid var(--line); vertical-align: top; }
.drift td { text-align: right; } .drift thead th, .drift thead td { border: 0; color: var(--quiet); font-size: .8rem; vertical-align: bottom; } .drift td:nth-child(2) .before { white-space: nowrap; }
.drift th { min-width: 9rem; } .drift td { min-width: 4rem; } .drift td:nth-child(3) { min-width: 7rem; overflow-wrap: anywhere; }
.drift .warn th { color: var(--warned); } .drift .hold th { color: var(--bad); font-weight: 600; }
.compared { margin-top: 1rem; } .compared details { margin-top: .4rem; } .rows { font-size: .9rem; } .rows th, .rows td { padding: .2rem .8rem .2rem 0; border-top: 1px solid var(--line); } .rows th { white-space: nowrap; } .rows thead th, .rows thead td { border: 0; color: var(--quiet); font-size: .8rem; }
.history { display: grid; grid-template-columns: minmax(6rem, 12rem) repeat(3, minmax(0, 1fr)); gap: .3rem 1.5rem; border-top: 1px solid var(--line); padding: .5rem 0; } .history svg { max-width: 14rem; } .history h3 small { font-weight: normal; }
details { margin-top: 1.2rem; } summary { cursor: pointer; font-weight: 600; } details h3 { margin-top: 1.2rem; } details .cards { margin-top: .6rem; } details .cards h3, details .history h3 { margin: 0; }
.tiles { display: flex; flex-wrap: wrap; gap: .4rem; } .tiles div { border: 1px solid var(--line); border-radius: 6px; padding: .3rem .7rem; } dt { font-size: .8rem; color: var(--quiet); } dd { margin: 0; font-size: 1.05rem; }
dl.values { display: grid; grid-template-columns: 1fr auto minmax(3rem, auto); gap: 0 .7rem; margin: .3rem 0; font-size: .85rem; line-height: 1.3; } .values dt { color: inherit; font-size: inherit; overflow-wrap: anywhere; }
.values dd { font-size: inherit; text-align: right; font-variant-numeric: tabular-nums; white-space: nowrap; } .values { max-width: 30rem; } .values .bar { grid-column: 1 / -1; } .values .bar svg { height: .7rem; margin-bottom: .4rem; }
.facts { table-layout: fixed; width: 100%; } .facts td { overflow-wrap: anywhere; } .facts th { padding-right: 1rem; vertical-align: top; width: 10rem; }
@media (max-width: 34rem) {
  .history { grid-template-columns: repeat(3, minmax(0, 1fr)); gap: .3rem .6rem; } .history h3 { grid-column: 1 / -1; }
  .drift { font-size: .8rem; } .drift th, .drift td { padding: .25rem .3rem; } .drift .before { display: block; font-size: .75rem; } .drift th { min-width: 7rem; } .rows { font-size: .75rem; } .rows th, .rows td { padding-right: .3rem; } .facts th { width: 7.5rem; }
}
`;
