import { assertNever } from "../../util/errors.js";
import type { AttemptRecord } from "../attempt-record.js";
import type { Outcome } from "../outcome.js";
import { count, type DecidingCommands, type RunReport, type VerdictReport } from "../report.js";
import { html, type Html, nothing } from "./html.js";
import { showDay } from "./numbers.js";

/** The state of a run at the top of the page. */
export interface PageState {
  readonly word: "HELD" | "PUBLISHED" | "DISCARDED" | "UNFINISHED" | "FAILED";
  readonly sentence: string;
  readonly tone: "good" | "warned" | "bad";
}

/** Returns the state of the run after an attempt. */
export function pageState(record: AttemptRecord, outcome: Outcome): PageState {
  if (outcome.kind === "failed") {
    return { word: "FAILED", sentence: `${outcome.code}, exit code ${outcome.exitCode}.`, tone: "bad" };
  }
  const { report } = outcome;
  switch (report.status) {
    case "held":
      return { word: "HELD", sentence: readersText(record), tone: "bad" };
    case "discarded":
      return { word: "DISCARDED", sentence: "Nothing of this run is published.", tone: "bad" };
    case "partial": {
      const left = report.spansPlanned - report.spansCommitted;
      return { word: "UNFINISHED", sentence: `${count(left, "span")} left to other workers.`, tone: "warned" };
    }
    case "complete":
    case "already_complete":
      return publishedState(report);
    default:
      return assertNever(report.status);
  }
}

function publishedState({ verdict, rowsPlanned }: RunReport): PageState {
  const warnings = warningsOf(verdict).length;
  return warnings === 0
    ? { word: "PUBLISHED", sentence: `${count(rowsPlanned, "input row")}.`, tone: "good" }
    : { word: "PUBLISHED", sentence: `With ${count(warnings, "warning")}.`, tone: "warned" };
}

function readersText({ review }: AttemptRecord): string {
  const date = review?.readersHave;
  return date === undefined ? "Nothing of this run is published." : `Readers still have the run of ${showDay(date)}.`;
}

/** Returns the checks that do not hold the run, a line each. With `on_fail: warn`, the failed checks come first. */
function warningsOf(verdict: VerdictReport | null): readonly string[] {
  return verdict === null ? [] : [...(verdict.outcome === "publish" ? verdict.failed : []), ...verdict.warnings];
}

/** Renders the top of the page: the state, its reason, and the commands that a person can use. */
export function stateSection(record: AttemptRecord, outcome: Outcome): Html {
  return html`${stateHeading(pageState(record, outcome))}
${about(record, outcome)}</header>
${outcome.kind === "failed" ? failure(outcome) : findings(outcome.report)}`;
}

/** Renders the heading. Its `header` element stays open. */
export function stateHeading({ word, sentence, tone }: PageState): Html {
  return html`<header class="${tone}"><h1>${word}. ${sentence}</h1>`;
}

function about({ info, run, review }: AttemptRecord, outcome: Outcome): Html {
  const date = review?.profile.date ?? "";
  const output = outcome.kind === "done" ? outcome.report.output : info.output;
  const texts = [info.job, date, run?.runId ?? "no run was planned", output].filter((text) => text !== "");
  return html`<p>${texts.map((text, index) => html`${index === 0 ? nothing : html` · `}<span>${text}</span>`)}</p>`;
}

function failure({ message, hint }: Extract<Outcome, { kind: "failed" }>): Html {
  const lines = message.split("\n").map((line) => html`${line}\n`);
  return html`<section><pre>${lines}</pre>${hint === undefined ? nothing : html`<p>${hint}</p>`}</section>`;
}

function findings({ verdict, decided }: RunReport): Html {
  const isHeld = verdict?.outcome === "hold";
  const warnings = warningsOf(verdict);
  const failed = isHeld ? list("Checks that failed", "failed", verdict.failed) : nothing;
  const commands = decided?.commands === undefined ? nothing : deciding(decided.commands);
  return html`${failed}${commands}${list("Warnings", "warned", warnings)}`;
}

function list(title: string, name: string, lines: readonly string[]): Html {
  return lines.length === 0
    ? nothing
    : html`<section><h2>${title}</h2><ul class="${name}">${lines.map((line) => html`<li>${line}</li>`)}</ul></section>\n`;
}

/** Renders the commands that decide on a held run. */
function deciding({ approve, discard, newRun }: DecidingCommands): Html {
  const steps: (readonly [string, string])[] = [
    ["To publish these predictions (with --as-baseline, later runs are compared with them)", approve],
    ["To discard them", discard],
    ["To score again, after you correct the input", newRun],
  ];
  return html`<section class="deciding"><h2>Commands</h2>${steps.map(([what, command]) => html`<p>${what}:</p><pre>${command}</pre>`)}</section>\n`;
}
