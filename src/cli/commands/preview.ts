import { openJob } from "../../job/job-context.js";
import type { JobOptions } from "../../job/reading.js";
import { previewCsv, previewJson, previewTable } from "../../report/preview-text.js";
import { summarizeRejects } from "../../report/rejects-text.js";
import { showCount, count } from "../../base/shown-numbers.js";
import { type PreviewedRows, previewRows } from "../../run/preview-rows.js";
import type { Log } from "../../flow/context.js";
import { type SafeIo, terminalWidth } from "../io.js";
import { createWarningLog } from "../logger.js";
import { abortOnSignals } from "../failure.js";

interface PreviewOptions extends JobOptions {
  readonly limit: number;
  readonly sample?: number;
  readonly seed: number;
  readonly where?: string;
  readonly features: number;
  readonly json?: boolean;
  readonly csv?: boolean;
}

/** Scores the first rows of a job, or a sample of all, and prints them. Rows that cannot be scored are reported on stderr. */
export async function previewCommand(spec: string, options: PreviewOptions, io: SafeIo): Promise<void> {
  using stop = abortOnSignals(io, {}, { kept: "nothing was written", hint: "run the same command again" });
  const log = createWarningLog(io.stderr);
  await using job = await openJob(spec, options, { log, signal: stop.signal });
  const { sample, seed } = options;
  const found = await previewRows(job, {
    ...options,
    sample: sample === undefined ? undefined : { rows: sample, seed },
  });
  const lines =
    options.json === true
      ? previewJson(found)
      : options.csv === true
        ? previewCsv(found)
        : [previewTable(found, terminalWidth(io.stdout))];
  if (lines.length > 0) {
    io.stdout.write(`${lines.join("\n")}\n`);
  }
  warnOfSmallSample(log, found, sample);
  if (found.rejects.length > 0) {
    const rejected = summarizeRejects();
    for (const row of found.rejects) {
      rejected.add(row);
    }
    log.warn([`${count(rejected.rows, "row")} cannot be scored`, ...rejected.lines()].join("\n"));
  }
}

/** Says that conditions leave out so many rows that the sample is smaller than the input would allow. */
function warnOfSmallSample(log: Log, { drawn, rows, rejects }: PreviewedRows, wanted = 0): void {
  const found = rows.length + rejects.length;
  if (drawn !== undefined && found < Math.min(wanted, drawn.of)) {
    const of =
      drawn.rows === drawn.of ? "of the input" : `drawn from ${showCount(drawn.of)}; --where with --limit finds more`;
    log.warn(
      `the sample has ${count(found, "row")}: the conditions hold for no more of the ${count(drawn.rows, "row")} ${of}`,
    );
  }
}
