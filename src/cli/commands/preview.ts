import { openJob } from "../../app/job-context.js";
import type { JobOptions } from "../../app/reading/read-spec.js";
import { previewCsv, previewJson, previewTable } from "../../report/preview-text.js";
import { summarizeRejects } from "../../report/rejects-text.js";
import { count } from "../../report/report.js";
import { previewRows } from "../../run/previewing/preview-rows.js";
import type { SafeIo } from "../io.js";
import { createWarningLog } from "../logger.js";
import { abortOnSignals } from "../signals.js";

interface PreviewOptions extends JobOptions {
  readonly limit: number;
  readonly where?: string;
  readonly features: number;
  readonly json?: boolean;
  readonly csv?: boolean;
}

/** Scores the first rows of a job and prints them. Rows that cannot be scored are reported on stderr. */
export async function previewCommand(spec: string, options: PreviewOptions, io: SafeIo): Promise<void> {
  using stop = abortOnSignals(io, {}, { kept: "nothing was written", hint: "run the same command again" });
  const log = createWarningLog(io.stderr);
  await using job = await openJob(spec, options, { log, signal: stop.signal });
  const found = await previewRows(job, options);
  const lines =
    options.json === true ? previewJson(found) : options.csv === true ? previewCsv(found) : [previewTable(found)];
  if (lines.length > 0) {
    io.stdout.write(`${lines.join("\n")}\n`);
  }
  if (found.rejects.length > 0) {
    const rejected = summarizeRejects();
    for (const row of found.rejects) {
      rejected.add(row);
    }
    log.warn([`${count(rejected.rows, "row")} cannot be scored`, ...rejected.lines()].join("\n"));
  }
}
