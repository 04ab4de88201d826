import type { AttemptRecord, RunInfo } from "../attempt-record.js";
import type { Outcome } from "../outcome.js";
import { showBytes } from "../plan-text.js";
import { count, showCount, showDuration, showRate } from "../report.js";
import { serverText } from "../server-report.js";
import { spendingText } from "../spending/spending-text.js";
import { secondsByStage, stages } from "../stage-times.js";
import { bars, throughputChart } from "./charts.js";
import { html, type Html, nothing } from "./html.js";

/** Renders the work of the attempt, its engine and its inputs, folded away because few readers need them. */
export function attemptDetails(record: AttemptRecord, outcome: Outcome, endedMs: number): Html {
  const { info, timeline, rejectReasons, counts } = record;
  const worker = info.worker.count === 1 ? nothing : html`, worker ${info.worker.index} of ${info.worker.count}`;
  return html`${rejectReasons.size === 0 ? nothing : html`<section><h2>Rejected rows by reason</h2>${rejects(record)}</section>`}
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

function tiles({ counts, run, engine, seconds, engineBusy }: AttemptRecord, outcome: Outcome): Html {
  const hasTrees = (engine?.trees() ?? null) !== null;
  const done = outcome.kind === "done" ? outcome.report.spansCommitted : undefined;
  const all: [string, string][] = [
    ["rows scored", showCount(counts.rowsScored)],
    ["rate", showRate(seconds > 0 ? counts.rowsScored / seconds : 0)],
    ["seconds", seconds.toFixed(1)],
    ["engine busy", engineBusy === null ? "–" : `${(engineBusy * 100).toFixed(0)}%`],
    ["rows rejected", showCount(counts.rowsRejected)],
    ["rows filtered out", showCount(counts.rowsFiltered)],
    ["rows reused", showCount(counts.rowsReused)],
    ...(hasTrees ? [["rows by compiled trees", showCount(counts.rowsByTrees)] satisfies [string, string]] : []),
    ["spans committed here", showCount(counts.spansCommitted)],
    ["spans of the run", `${done === undefined ? "?" : showCount(done)} of ${run?.spans ?? "?"}`],
  ];
  return html`<dl class="tiles">${all.map(([name, value]) => html`<div><dt>${name}</dt><dd>${value}</dd></div>`)}</dl>`;
}

function stageBars({ stages: times }: AttemptRecord): Html {
  const seconds = secondsByStage(times);
  return bars(
    stages.map((stage) => ({ name: stage, value: seconds[stage] })),
    " s",
  );
}

function rejects({ rejectReasons }: AttemptRecord): Html {
  const rows = [...rejectReasons].map(([name, value]) => ({ name, value }));
  return bars(rows.toSorted((one, other) => other.value - one.value));
}

function facts({ info, run, engine, inputWaitSeconds }: AttemptRecord, outcome: Outcome): Html {
  const trees = engine?.trees() ?? null;
  const params = Object.entries(info.params).map(([name, value]): [string, string] => [`param ${name}`, value]);
  const ofRun: [string, string][] =
    run === undefined
      ? []
      : [
          ["plan", run.planId],
          ["model", run.modelUri],
          ["model sha256", run.modelSha256],
          ...modelFacts(run),
          ["input", `${count(run.rows, "row")} in ${count(run.shards, "shard")}, ${showBytes(run.shardBytes)}`],
          ["commit_rows", showCount(run.commitRows)],
        ];
  const ofEngine: [string, string][] =
    engine === undefined
      ? []
      : [
          ["provider", [...engine.missing.map((name) => `no ${name}`), engine.provider].join(", ")],
          ...(trees === null ? [] : [["decision trees", trees] satisfies [string, string]]),
          ["sessions", String(engine.sessions)],
          ["batch_size", showCount(engine.batchRows())],
          ...(engine.server === undefined ? [] : [["server", serverText(engine.server())] satisfies [string, string]]),
          ...(engine.spending === undefined
            ? []
            : [["spent by the run", spendingText(engine.spending())] satisfies [string, string]]),
        ];
  const waited: [string, string][] =
    inputWaitSeconds === 0 ? [] : [["waited for the input", showDuration(inputWaitSeconds)]];
  const output: [string, string] = ["output", outcome.kind === "done" ? outcome.report.output : info.output];
  const all = [...params, ...ofRun, ...ofEngine, ...waited, output, ...Object.entries(info.versions)];
  return html`<table class="facts">${all.map(([name, value]) => html`<tr><th>${name}</th><td>${value}</td></tr>`)}</table>`;
}

function utc(ms: number): string {
  return `${new Date(ms).toISOString().slice(0, 19).replace("T", " ")} UTC`;
}

function modelFacts({ modelVersion, modelOrigin: origin }: RunInfo): [string, string][] {
  const version: [string, string][] = modelVersion === undefined ? [] : [["model version", modelVersion]];
  const trained: [string, string][] = origin?.runId === undefined ? [] : [["trained by run", origin.runId]];
  const tags = Object.entries(origin?.tags ?? {}).map(([name, value]): [string, string] => [
    `model tag ${name}`,
    value,
  ]);
  return [...version, ...trained, ...tags];
}
