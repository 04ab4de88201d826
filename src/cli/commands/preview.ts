import { type CommandLine, paramFlag, countOf, rowsLimit } from "../flags.js";
import { openJob } from "../../job/open.js";
import type { JobOptions } from "../../job/reading.js";
import { previewCsv, previewJson, previewTable } from "../../report/preview-text.js";
import { summarizeRejects } from "../../report/rejects-text.js";
import { showCount, count } from "../../base/shown-numbers.js";
import { type PreviewedRows, previewRows } from "../../run/preview.js";
import type { Log } from "../../flow/opened-job.js";
import { type SafeIo, terminalWidth } from "../io.js";
import { createWarningLog } from "../logger.js";
import { abortOnSignals } from "../failure.js";

export const previewCommand: CommandLine = {
  flags: {
    ...paramFlag,
    "--limit <n>": ["Most rows", countOf(10_000), 20],
    "--sample <n>": [
      "Number of rows to draw at random from the whole input, each with the same chance, and to score in place of the first rows",
      countOf(10_000),
    ],
    "--seed <number>": ["The same seed draws the same sample", countOf(rowsLimit), 1],
    "--where <sql>": "Only rows for which this condition holds, in addition to input.where",
    "--features <n>": ["Most features to print, in addition to the columns of output.columns", countOf(10_000), 4],
    "--json": "Print one line of JSON for each row",
    "--csv": "Print CSV with a header",
  },
  conflicts: { sample: "limit", json: "csv" },
  examples: [
    "infer-batch preview job.yaml",
    "infer-batch preview job.yaml --sample 50",
    'infer-batch preview job.yaml --where "amount > 1000" --json',
  ],
  run: preview,
};

interface PreviewOptions extends JobOptions {
  readonly limit: number;
  readonly sample?: number;
  readonly seed: number;
  readonly where?: string;
  readonly features: number;
  readonly json?: boolean;
  readonly csv?: boolean;
}

async function preview(spec: string, options: PreviewOptions, io: SafeIo): Promise<void> {
  using stop = abortOnSignals(io, {}, { kept: "nothing was written", hint: "run the same command again" });
  const log = createWarningLog(io.stderr);
  await using opened = await openJob(spec, options, { log, signal: stop.signal });
  const { sample, seed } = options;
  const previewed = await previewRows(opened, {
    ...options,
    sample: sample === undefined ? undefined : { rows: sample, seed },
  });
  const lines =
    options.json === true
      ? previewJson(previewed)
      : options.csv === true
        ? previewCsv(previewed)
        : [previewTable(previewed, terminalWidth(io.stdout))];
  if (lines.length > 0) {
    io.stdout.write(`${lines.join("\n")}\n`);
  }
  warnOfSmallSample(log, previewed, sample);
  if (previewed.rejects.length > 0) {
    const rejected = summarizeRejects();
    for (const row of previewed.rejects) {
      rejected.add(row);
    }
    log.warn([`${count(rejected.rows, "row")} cannot be scored`, ...rejected.lines()].join("\n"));
  }
}

function warnOfSmallSample(log: Log, { drawn, rows, rejects }: PreviewedRows, wanted = 0): void {
  const shownRows = rows.length + rejects.length;
  if (drawn !== undefined && shownRows < Math.min(wanted, drawn.of)) {
    const of =
      drawn.rows === drawn.of ? "of the input" : `drawn from ${showCount(drawn.of)}; --where with --limit finds more`;
    log.warn(
      `the sample has ${count(shownRows, "row")}: the conditions hold for no more of the ${count(drawn.rows, "row")} ${of}`,
    );
  }
}
