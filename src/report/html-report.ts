import type { AttemptRecord } from "./attempt-record.js";
import { html, type Html, nothing } from "./html.js";
import { bars, scoreChart, throughputChart } from "./html-charts.js";
import { type Outcome, statusOf } from "./outcome.js";
import { showBytes } from "./plan-text.js";
import { count, showCount, showDuration, showRate } from "./report.js";
import { secondsByStage, stages } from "./stage-times.js";

/** An attempt as a self-contained HTML page: no script, font, image or network request. */
export function htmlReport(record: AttemptRecord, outcome: Outcome, endedMs: number): string {
  const { info, run } = record;
  const title = `${info.job}: ${statusOf(outcome).replaceAll("_", " ")}`;
  const page = html`<!doctype html>
<html lang="en">
<head>
<meta charset="utf-8">
<meta http-equiv="Content-Security-Policy" content="default-src 'none'; style-src 'unsafe-inline'">
<meta name="viewport" content="width=device-width">
<meta name="${statusName}" content="${`${run?.runId ?? ""} ${statusOf(outcome)}`}">
<title>${title}</title>
<style>${{ markup: style }}</style>
</head>
<body>
<h1>${title}</h1>
<p>${run?.runId ?? "no run was planned"}, worker ${info.worker.index} of ${info.worker.count}, ${utc(record.startedMs)} to ${utc(endedMs)}</p>
${failure(outcome)}
${tiles(record, outcome)}
<h2>Rows a second</h2>
${record.timeline.rows.length === 0 ? none("Nothing was scored.") : throughputChart(record.timeline)}
<h2>Seconds by stage</h2>
<p>read, decode, pack and wait follow each other in the loop that feeds the model; the others run beside it.</p>
${stageBars(record)}
<h2>Predictions</h2>
${scores(record)}
<h2>Rejects by reason</h2>
${rejects(record)}
<h2>Made of</h2>
${facts(record, outcome)}
</body>
</html>
`;
  return page.markup;
}

const statusName = "infer-batch";

/** Whether a page is about an attempt at this run that did not fail. */
export function isPageOf(page: string, runId: string | undefined): boolean {
  const [, pageRunId, status] = new RegExp(`<meta name="${statusName}" content="(\\S*) (\\w+)">`).exec(page) ?? [];
  return pageRunId !== undefined && pageRunId === runId && status !== "failed" && status !== "held";
}

function failure(outcome: Outcome): Html {
  if (outcome.kind === "done") {
    return nothing;
  }
  const { code, exitCode, message, hint } = outcome;
  const lines = message.split("\n").map((line) => html`${line}\n`);
  const advice = hint === undefined ? nothing : html`<p>${hint}</p>`;
  return html`<section class="failed"><p><b>${code}</b>, exit code ${exitCode}</p><pre>${lines}</pre>${advice}</section>`;
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
    ["rows deduplicated", showCount(counts.rowsDeduplicated)],
    ...(hasTrees ? [["rows by compiled trees", showCount(counts.rowsByTrees)] satisfies [string, string]] : []),
    ["spans committed here", showCount(counts.spansCommitted)],
    ["spans of the run", `${done === undefined ? "?" : showCount(done)} of ${run?.spans ?? "?"}`],
  ];
  return html`<dl>${all.map(([name, value]) => html`<div><dt>${name}</dt><dd>${value}</dd></div>`)}</dl>`;
}

function stageBars({ stages: times }: AttemptRecord): Html {
  const seconds = secondsByStage(times);
  return bars(
    stages.map((stage) => ({ name: stage, value: seconds[stage] })),
    " s",
  );
}

function scores(record: AttemptRecord): Html {
  const all = record.scores();
  return all.length === 0 ? none("None.") : html`${all.map((summary) => scoreChart(summary))}`;
}

function rejects({ rejectReasons }: AttemptRecord): Html {
  const rows = [...rejectReasons].map(([name, value]) => ({ name, value }));
  return rows.length === 0 ? none("None.") : bars(rows.toSorted((one, other) => other.value - one.value));
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
        ];
  const waited: [string, string][] =
    inputWaitSeconds === 0 ? [] : [["waited for the input", showDuration(inputWaitSeconds)]];
  const output: [string, string] = ["output", outcome.kind === "done" ? outcome.report.output : info.output];
  const all = [...params, ...ofRun, ...ofEngine, ...waited, output, ...Object.entries(info.versions)];
  return html`<table>${all.map(([name, value]) => html`<tr><th>${name}</th><td>${value}</td></tr>`)}</table>`;
}

function none(text: string): Html {
  return html`<p>${text}</p>`;
}

function utc(ms: number): string {
  return `${new Date(ms).toISOString().slice(0, 19).replace("T", " ")} UTC`;
}

const style = `
:root { color-scheme: light dark; --bar: #3867b7; --line: #8884; }
body { font: 15px/1.5 system-ui, sans-serif; max-width: 60rem; margin: 2rem auto; padding: 0 1rem; }
h1 { font-size: 1.4rem; } h2 { font-size: 1.1rem; margin-top: 2rem; } h3 { font-size: 1rem; margin-bottom: 0; }
dl { display: flex; flex-wrap: wrap; gap: .5rem; }
dl div { border: 1px solid var(--line); border-radius: 4px; padding: .4rem .8rem; }
dt, figcaption { font-size: .85rem; opacity: .75; } dd { margin: 0; font-size: 1.15rem; }
figure { margin: 0; } figure svg { width: 100%; border-bottom: 1px solid var(--line); } rect { fill: var(--bar); }
table { border-collapse: collapse; } th { text-align: left; font-weight: normal; padding-right: 1.5rem; }
td { font-variant-numeric: tabular-nums; overflow-wrap: anywhere; padding-right: 1rem; }
.bar { width: 20rem; } .bar svg { width: 100%; height: .6rem; }
.failed { border-left: 4px solid #c33; padding-left: 1rem; } pre { white-space: pre-wrap; }
`;
