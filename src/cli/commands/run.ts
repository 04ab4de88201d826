import { barProgress, lineProgress, type Progress, silentProgress } from "../../report/progress.js";
import { reportJson, reportText } from "../../report/report.js";
import type { Log } from "../../run/job.js";
import { runJob } from "../../run/run.js";
import { type JobOptions, openJob } from "../job-context.js";
import { createLog, wantsColor } from "../logger.js";
import { abortOnSignals } from "../signals.js";
import { findWorker } from "../worker.js";

interface RunOptions extends JobOptions {
  readonly worker?: string;
  readonly steal?: boolean;
  readonly newRun?: boolean;
  readonly allowDuplicates?: boolean;
  readonly json?: boolean;
  readonly quiet?: boolean;
  readonly progress: boolean;
  readonly logLevel: "debug" | "info" | "warn" | "error";
  readonly logFormat: "pretty" | "json";
}

export async function runCommand(spec: string, options: RunOptions): Promise<void> {
  using stop = abortOnSignals();
  const log = createLog({
    level: options.quiet === true ? "error" : options.logLevel,
    format: options.logFormat,
    color: wantsColor(process.stderr),
  });
  const attempt = {
    worker: findWorker(options.worker, process.env),
    steal: options.steal === true,
    newRun: options.newRun === true,
    allowDuplicates: options.allowDuplicates === true,
  };
  const progress = chooseProgress(options, log);
  await using job = await openJob(spec, options, { log, progress, signal: stop.signal, attempt });
  const report = await runJob(job);
  // The summary comes last: Airflow takes the last line of a step's output for its result.
  if (options.json === true) {
    process.stdout.write(`${reportJson(report)}\n`);
  } else if (options.quiet !== true) {
    process.stdout.write(`${reportText(report)}\n`);
  }
}

function chooseProgress({ progress, quiet }: RunOptions, log: Log): Progress {
  if (!progress || quiet === true) {
    return silentProgress;
  }
  if (process.stderr.isTTY) {
    return barProgress(process.stderr, monotonicMs);
  }
  return lineProgress((line) => {
    log.info(line);
  }, monotonicMs);
}

function monotonicMs(): number {
  return performance.now();
}
