import { dirname, resolve } from "node:path";
import { commandFor, openLoaded, recordOf } from "../../job/job-context.js";
import { type JobOptions, readSpec } from "../../job/reading.js";
import { calling, failedBy, reporting } from "../../job/reporting.js";
import { findWorker } from "../../job/attempt.js";
import type { EarlyThreads } from "../../models/onnx/early-threads.js";
import type { AttemptInfo, AttemptRecord } from "../../report/attempt-record.js";
import { failureFields, reportFields, reportJson, reportText, type RunReport } from "../../report/report.js";
import { runJob } from "../../run/run.js";
import { type EngineSpec, withProviders } from "../../job/jobfile/engine-spec.js";
import type { JobSpec } from "../../job/jobfile/job-spec.js";
import { type LimitedRun, limitedSpec } from "../../job/jobfile/load.js";
import { isObjectUri } from "../../job/jobfile/uri.js";
import { JobError } from "../../base/errors.js";
import { chooseProgress, createLog, type LogOptions } from "../logger.js";
import type { SafeIo } from "../io.js";
import { openProfile, type Profile } from "../profile.js";
import { abortOnSignals } from "../failure.js";

interface RunOptions extends JobOptions, LogOptions {
  readonly worker?: string;
  readonly steal?: boolean;
  readonly newRun?: boolean;
  readonly reuse?: boolean;
  readonly allowDuplicates?: boolean;
  readonly allowOlder?: boolean;
  readonly limit?: number;
  readonly output?: string;
  /** In place of `engine.providers`. */
  readonly provider?: EngineSpec["providers"];
  readonly skipExitCode?: number;
  readonly json?: boolean;
  readonly progress: boolean;
  readonly metricsPort?: number;
  readonly profile?: string;
}

export async function runCommand(spec: string, options: RunOptions, io: SafeIo, early?: EarlyThreads): Promise<void> {
  let record: AttemptRecord | undefined;
  const report = await openAndRun(spec, options, io, early, (begun) => {
    record = begun;
  }).catch((error: unknown) => {
    if (options.json === true) {
      io.stdout.write(`${JSON.stringify(failureFields(failedBy(error), record?.run?.runId))}\n`);
    }
    throw error;
  });
  if (options.logFormat === "json" && options.quiet !== true && ["debug", "info"].includes(options.logLevel)) {
    // What collects logs often does not collect stdout.
    const line = { level: "info", time: new Date().toISOString(), msg: reportText(report), ...reportFields(report) };
    io.stderr.write(`${JSON.stringify(line)}\n`);
  }
  // The summary comes last: Airflow uses the last line of a step's output as its result.
  if (options.json === true) {
    io.stdout.write(`${reportJson(report)}\n`);
  } else if (options.quiet !== true) {
    io.stdout.write(`${reportText(report)}\n`);
  }
  if (report.decided !== undefined) {
    throw report.decided.error;
  }
  if (report.status === "already_complete" && options.skipExitCode !== undefined) {
    io.exitCode = options.skipExitCode;
  }
}

/** @param onBegun called with the record of the attempt once the spec is read */
async function openAndRun(
  spec: string,
  options: RunOptions,
  io: SafeIo,
  early: EarlyThreads | undefined,
  onBegun: (record: AttemptRecord) => void,
): Promise<RunReport> {
  using stop = abortOnSignals(io, options);
  const log = createLog(io.stderr, options);
  const attempt = {
    worker: findWorker(options.worker, process.env),
    steal: options.steal === true,
    newRun: options.newRun === true,
    reuse: options.reuse === true,
    allowDuplicates: options.allowDuplicates === true,
    allowOlder: options.allowOlder === true,
    limited: limitedRun(options),
  };
  const progress = chooseProgress(options, (line) => log.info(line), io.stderr.raw);
  const whole = withProviders(await readSpec(spec, options), options.provider);
  const loaded = attempt.limited === undefined ? whole : limitedSpec(whole, attempt.limited);
  requireReuse(attempt, loaded.spec);
  const folder = dirname(resolve(spec));
  let profile: Profile | undefined;
  const record = recordOf(loaded.spec, {
    worker: attempt.worker,
    ...commandsFor(spec, loaded.spec, attempt),
    onStage: options.profile === undefined ? undefined : (...piece) => profile?.onStage(...piece),
  });
  const about = { loaded, folder, record, log, signal: stop.signal, dateMs: Date.now };
  onBegun(record);
  return await reporting({ ...about, metricsPort: options.metricsPort }, async (deadline) => {
    await using opened = await openProfile(options.profile, { spec: loaded.spec, folder, log });
    profile = opened;
    const parts = { log, progress, signal: stop.signal, attempt, record, early, profileFolder: profile?.folder };
    await using job = await openLoaded(loaded, spec, parts);
    try {
      return await calling(about, deadline, () => runJob(job));
    } finally {
      await profile?.end(record.stages);
    }
  });
}

/** @throws JobError USAGE for `--reuse` where nothing can be reused */
function requireReuse({ newRun, reuse }: { readonly newRun: boolean; readonly reuse: boolean }, spec: JobSpec): void {
  if (reuse && (!newRun || spec.reuse === undefined)) {
    throw new JobError(
      "USAGE",
      `reading --reuse: ${newRun ? "the spec has no `reuse`, so no row has the hash by which it would be found" : "it goes with --new-run"}`,
      {
        hint: newRun
          ? "add reuse: { key: [the columns that name a row] } to the spec; runs that are planned from then on can be reused"
          : "a run reuses by itself what its spec's `reuse` says; leave --reuse out, or add --new-run",
      },
    );
  }
}

/** The command lines of a page for an attempt that failed. */
function commandsFor(
  path: string,
  { params, output }: JobSpec,
  { limited, newRun }: { readonly limited: LimitedRun | undefined; readonly newRun: boolean },
): Pick<AttemptInfo, "command" | "olderCommand"> {
  const command = commandFor(path, params, limited);
  const mayBeRefused = output.postgres !== undefined && output.postgres.mode !== "append";
  return { command, olderCommand: mayBeRefused ? `${command}${newRun ? " --new-run" : ""} --allow-older` : undefined };
}

/** @throws JobError USAGE if one of the two options is given without the other */
function limitedRun({ limit, output }: Pick<RunOptions, "limit" | "output">): LimitedRun | undefined {
  if (limit === undefined && output === undefined) {
    return undefined;
  }
  if (limit === undefined || output === undefined) {
    throw new JobError("USAGE", "reading the options: --limit and --output are given together or not at all", {
      hint: "such as --limit 1000 --output /tmp/try; a whole run writes to the output of the spec",
    });
  }
  return { rows: limit, folder: isObjectUri(output) ? output : resolve(output) };
}
