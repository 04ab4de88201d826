import { type CommandLine, paramFlag, countOf, jsonFlag, type CommandAnswer } from "../flags.js";
import {
  type RecordedRun,
  decidedText,
  lastErrorFields,
  isInFrontOfReaders,
} from "../../run/lifecycle/recorded-run.js";
import { openLoaded } from "../../job/open.js";
import { type JobOptions, readSpec } from "../../job/reading.js";
import { paramTexts, splitRunId } from "../../run/plan/identity.js";
import type { PlannedModel } from "../../run/plan/plan.js";
import { spanCount } from "../../run/plan/spans.js";
import { byChecks } from "../../run/lifecycle/lifecycle.js";
import { replacedBy } from "../../run/lifecycle/published-run.js";
import { resultLines, warningsText } from "../../run/lifecycle/verdict-text.js";
import { spentText } from "../../report/report.js";
import { rounded, showCount, showShortDuration, count } from "../../base/shown-numbers.js";
import { fitTable, sameValueFirst } from "../../report/table.js";
import { type History, runHistory } from "../../run/status.js";

export const historyCommand: CommandLine = {
  flags: { ...paramFlag, "--last <count>": ["Number of runs to list", countOf(1000), 30], ...jsonFlag },
  examples: ["infer-batch history job.yaml", "infer-batch history job.yaml --last 7 --json"],
  run: history,
};

interface HistoryOptions extends JobOptions {
  readonly last: number;
}

async function history(spec: string, options: HistoryOptions): Promise<CommandAnswer> {
  await using opened = await openLoaded(await readSpec(spec, options, { standIns: "all" }), spec);
  const { name } = opened.job.spec;
  const own = await runHistory(opened.job.spec, opened.sink, options.last);
  return {
    json: () => ({ job: name, more: own.more, runs: own.runs.map(runJson) }),
    text(width) {
      const rows = own.runs.map((run) => cellsOf(run, remarks(run, own)));
      const fit = { right: [3, 4, 5], width, leaveOut: sameValueFirst(rows, dispensable), hasNotes: true };
      const lines = rows.length === 0 ? [] : fitTable([headings, ...rows], fit);
      return [
        ...lines,
        `${count(own.runs.length, "run")} of ${name}${own.more ? ", the latest; --last lists more" : ""}`,
      ];
    },
  };
}

function runJson(run: RecordedRun): object {
  const { runId, plan, rows, rejected, spansCommitted, at, seconds, verdict, decision, failure, pruned } = run;
  return {
    run_id: runId,
    params: plan?.params ?? null,
    output: run.place,
    status: statusOf(run).replaceAll(" ", "_"),
    at,
    rows_planned: plan?.input.rows ?? null,
    rows,
    rows_rejected: rejected,
    spans_planned: plan === undefined ? null : spanCount(plan),
    spans_committed: spansCommitted,
    seconds: rounded(seconds),
    model: plan === undefined ? null : modelJson(plan.model),
    failed: verdict === undefined ? [] : resultLines(verdict, "hold"),
    warnings: verdict === undefined ? [] : resultLines(verdict, "warn"),
    decision: decision ?? null,
    pruned: pruned === undefined ? null : { at: pruned.at, by: pruned.by },
    erasure: plan?.erasure === undefined ? null : { of: plan.erasure.of, at: plan.erasure.at, by: plan.erasure.by },
    spending: run.spending ?? null,
    last_error: lastErrorFields(failure),
  };
}

function modelJson({ uri, version, sha256 }: PlannedModel): object {
  return { uri, version: version ?? null, sha256 };
}

function statusOf({ status, rolledBack = false }: RecordedRun): string {
  return rolledBack && status === "published" ? "rolled back" : status;
}

const headings = ["run", "params", "status", "rows", "rejected", "duration", "model", "since", "note"];

/** A narrow terminal may do without these columns, the least important first. */
const dispensable = ["duration", "model", "since", "rejected", "params"].map((name) => headings.indexOf(name));

function cellsOf(run: RecordedRun, about: string): string[] {
  const { runId, plan, rows, rejected, seconds, at } = run;
  const params = paramTexts(plan?.params ?? {});
  return [
    runId,
    params.join(" "),
    statusOf(run),
    rows === null ? "" : showCount(rows),
    rejected === null ? "" : showCount(rejected),
    seconds === null ? "" : showShortDuration(seconds),
    plan === undefined ? "" : (plan.model.version ?? plan.model.sha256.slice(0, 12)),
    at === null ? "" : `${at.slice(0, 16).replace("T", " ")}Z`,
    about,
  ];
}

function remarks(run: RecordedRun, { runs }: History): string {
  const { spending } = run;
  const paid = spending === undefined ? "" : spentText(spending);
  return [paid, why(run), replacedText(run, runs)].filter((text) => text !== "").join("; ");
}

function replacedText(run: RecordedRun, runs: readonly RecordedRun[]): string {
  const { base, number } = splitRunId(run.runId);
  const later = runs.find((each) => {
    const { base: laterBase, number: laterNumber } = splitRunId(each.runId);
    return isInFrontOfReaders(each) && each.place === run.place && laterBase === base && laterNumber > number;
  });
  const stays = run.plan !== undefined && replacedBy(run.plan.target) === "nothing";
  return later === undefined || stays || !isInFrontOfReaders(run) ? "" : `replaced by ${later.runId}`;
}

function why({ status, plan, spansCommitted, verdict, decision, failure, pruned }: RecordedRun): string {
  if (pruned !== undefined) {
    return `pruned by ${pruned.by}`;
  }
  if (plan?.erasure !== undefined && status !== "superseded" && status !== "discarded") {
    return `${status === "published" ? "" : "unfinished: "}rows of ${plan.erasure.of} erased by ${plan.erasure.by}`;
  }
  if (decision !== undefined && decision.by !== byChecks) {
    return decidedText({ decision, verdict });
  }
  if (status === "held" && verdict !== undefined) {
    return resultLines(verdict, "hold")[0] ?? "";
  }
  const [error] = failure?.message.split("\n") ?? [];
  const isOpen = status === "unfinished" || status === "failed";
  const spans =
    isOpen && plan !== undefined && spansCommitted !== null
      ? [`${showCount(spansCommitted)} of ${count(spanCount(plan), "span")} committed`]
      : [];
  const warnings = status === "published" && verdict !== undefined ? warningsText(verdict) : undefined;
  return [warnings, ...spans, error].filter((text) => text !== undefined).join("; ");
}
