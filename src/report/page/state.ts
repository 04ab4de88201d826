import { paramTexts } from "../../plan/identity.js";
import { readersText } from "../../publish/published-run.js";
import { assertNever } from "../../util/errors.js";
import type { AttemptRecord } from "../attempt-record.js";
import type { Outcome } from "../outcome.js";
import {
  checksText,
  count,
  type DecidingCommands,
  decidingTexts,
  type RunReport,
  type ScoreAgain,
  type VerdictReport,
} from "../report.js";
import { html, type Html, nothing } from "./html.js";
import { showDay } from "./numbers.js";

/** The state of a run at the top of the page. */
export interface PageState {
  readonly word: "HELD" | "PUBLISHED" | "ROLLED BACK" | "DISCARDED" | "UNFINISHED" | "FAILED";
  readonly sentence: string;
  readonly tone: "good" | "warned" | "bad";
}

const nothingPublished = "Nothing of this run is published.";

/** Returns the state of the run after an attempt. */
export function pageState(record: AttemptRecord, outcome: Outcome): PageState {
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
      return publishedState(record, report);
    default:
      return assertNever(report.status);
  }
}

/** The state of a run whose rows a person has taken out of the table. @param readersHave the run whose rows are there */
export function rolledBackState(readersHave: string | undefined): PageState {
  const sentence = `Its rows are not in the table${readersHave === undefined ? "" : `: readers have ${readersHave}`}.`;
  return { word: "ROLLED BACK", sentence, tone: "bad" };
}

function publishedState(record: AttemptRecord, report: RunReport): PageState {
  const warnings = warningsOf(report.verdict).length;
  const { predictions, text } = rowsText(record, report);
  const isDoubtful = warnings > 0 || (predictions === 0 && report.rowsPlanned > 0);
  return { word: "PUBLISHED", sentence: `${text}${checksText(report.verdict)}.`, tone: isDoubtful ? "warned" : "good" };
}

/** The predictions of a run, and what became of its other rows. `predictions`: undefined if they are not counted. */
function rowsText(
  { review }: AttemptRecord,
  { status, rowsPlanned, rowsScored, rowsRejected, spansResumed }: RunReport,
): { readonly predictions: number | undefined; readonly text: string } {
  const scored = status === "complete" && spansResumed === 0 ? { rows: rowsScored, rejected: rowsRejected } : undefined;
  const found = review?.profile ?? scored;
  if (found === undefined) {
    return { predictions: undefined, text: count(rowsPlanned, "input row") };
  }
  const { rows: predictions, rejected } = found;
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

/** Returns the checks that do not hold the run, a line each. With `on_fail: warn`, the failed checks come first. */
function warningsOf(verdict: VerdictReport | null): readonly string[] {
  return verdict === null ? [] : [...(verdict.outcome === "publish" ? verdict.failed : []), ...verdict.warnings];
}

const [begin, end] = ["<!-- state -->", "<!-- end of state -->"];

/** Renders the top of the page: the state, its first reason, the commands that a person can use, and all findings. */
export function stateSection(record: AttemptRecord, outcome: Outcome): Html {
  const found = outcome.kind === "failed" ? failure(outcome, record) : findings(outcome.report);
  return html`${{ markup: begin }}
${stateHeading(pageState(record, outcome))}
${about(record, outcome)}${outcome.kind === "failed" ? nothing : reasons(outcome.report)}</header>
${found}${{ markup: end }}`;
}

/** Replaces the top of a page; undefined: the page is none of this program. */
export function withTop(page: string, top: Html): string | undefined {
  const [from, to] = [page.indexOf(begin), page.indexOf(end)];
  return from < 0 || to < 0 ? undefined : `${page.slice(0, from)}${top.markup}${page.slice(to + end.length)}`;
}

/** Renders the heading. Its `header` element stays open. */
export function stateHeading({ word, sentence, tone }: PageState): Html {
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

/** Renders the first failed check of a held run, and what was not compared. */
function reasons({ verdict }: RunReport): Html {
  const [first] = verdict?.outcome === "hold" ? verdict.failed : [];
  const notes = (verdict?.notes ?? []).map((note) => html`<p>${asSentence(note)}</p>`);
  return html`${first === undefined ? nothing : html`<p class="reason">${first}</p>`}${notes}`;
}

/** Makes a text a sentence. */
export function asSentence(text: string): string {
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

/** Renders the command that scores a published or discarded run again. */
export function scoringAgain({ text, command }: ScoreAgain): Html {
  return html`<section class="deciding"><h2>Commands</h2><p>${asSentence(text).replace(/\.$/, ":")}</p><pre>${command}</pre></section>\n`;
}

/** The findings that are not folded away. */
const openFindings = 5;

function list(title: string, name: string, lines: readonly string[]): Html {
  if (lines.length === 0) {
    return nothing;
  }
  const rest = lines.slice(openFindings);
  const folded =
    rest.length === 0 ? nothing : html`<details><summary>${rest.length} more</summary>${bullets(name, rest)}</details>`;
  return html`<section><h2>${title}</h2>${bullets(name, lines.slice(0, openFindings))}${folded}</section>\n`;
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
