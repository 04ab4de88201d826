import { InvalidArgumentError } from "commander";
import { type CommandLine, paramFlag, providerFlag, countOf, quietFlag, logFlags, rowsLimit } from "../flags.js";
import { dirname, resolve } from "node:path";
import { commandFor, openLoaded, recordOf } from "../../job/open.js";
import { type JobOptions, readSpec } from "../../job/reading.js";
import { calling, failedBy, reporting } from "../../job/reporting.js";
import { findWorker } from "../../job/attempt.js";
import { earlyThreads } from "../../models/onnx/early-threads.js";
import { hasRoomForThreads, usableCores } from "../../job/machine.js";
import { scoringWorker } from "../../job/threads/worker-threads.js";
import type { AttemptInfo, AttemptRecord, RecordOptions } from "../../report/attempt-record.js";
import { failureFields, reportFields, reportJson, reportText, type RunReport } from "../../report/report.js";
import { runJob } from "../../run/run.js";
import { type EngineSpec, withProviders } from "../../job/jobfile/engine-spec.js";
import type { JobSpec } from "../../job/jobfile/job-spec.js";
import { type LimitedRun, type LoadedSpec, limitedSpec } from "../../job/jobfile/load.js";
import { ofNextRun, type RunOfChain } from "../../job/chain.js";
import { isObjectUri } from "../../job/jobfile/uri.js";
import { JobError, exitCodes } from "../../base/errors.js";
import { chooseProgress, createLog, type LogOptions } from "../logger.js";
import type { SafeIo } from "../io.js";
import type { Profile } from "../profile.js";
import { abortOnSignals } from "../failure.js";

export const runCommand: CommandLine = {
  flags: {
    ...paramFlag,
    "--worker <i/n>":
      "Be worker i of n that share the run, counted from 0. Default: from the environment of a Kubernetes Indexed Job or an AWS Batch array job, else 0/1",
    "--steal": "After this worker's own share, score the spans that other workers have not committed",
    "--new-run":
      "If the run of this spec is complete, held, discarded or damaged, its table refuses its rows, or its input, model or spec changed, plan a new run; otherwise continue the run",
    "--reuse":
      "Let --new-run take the predictions of unchanged rows from the run that it replaces, as the spec's reuse says. Default: a new run scores all rows",
    "--allow-duplicates":
      "Allow --new-run to add to rows that stay; rows may then be there twice (mode append, or input.since)",
    "--allow-older": "Allow this run to overwrite the rows of a newer run of this job (Postgres: upsert, replace)",
    ...providerFlag,
    "--skip-exit-code <code>": [
      "Exit code when nothing was left to do, such as 99, which marks an Airflow task as skipped",
      skipExitCode,
    ],
    "--limit <n>": [
      "Try the job: score only the first n rows, into --output, without checks, reports and pings",
      countOf(rowsLimit),
    ],
    "--output <folder>": "Folder for the Parquet parts of --limit, relative to the current folder or in a store",
    "--json": "Print the result as one line of JSON on stdout",
    ...quietFlag,
    "--no-progress": "Print no progress",
    "--metrics-port <port>": [
      "Serve Prometheus metrics at http://127.0.0.1:<port>/metrics during the run; 0 takes a free port",
      portOf,
    ],
    "--profile <file>": "Write a trace of timings for the trace viewer Perfetto; log the time by stage",
    ...logFlags,
  },
  examples: [
    "infer-batch run job.yaml",
    "infer-batch run job.yaml --param ds=2026-01-31",
    "infer-batch run job.yaml --worker 0/4 --steal",
  ],
  run: run,
};

interface RunOptions extends JobOptions, LogOptions {
  readonly worker?: string;
  readonly steal?: boolean;
  readonly newRun?: boolean;
  readonly reuse?: boolean;
  readonly allowDuplicates?: boolean;
  readonly allowOlder?: boolean;
  readonly limit?: number;
  readonly output?: string;
  readonly provider?: EngineSpec["providers"];
  readonly skipExitCode?: number;
  readonly json?: boolean;
  readonly progress: boolean;
  readonly metricsPort?: number;
  readonly profile?: string;
}

async function run(spec: string, options: RunOptions, io: SafeIo): Promise<void> {
  let record: AttemptRecord | undefined;
  const report = await openAndRun(spec, options, io, (begun) => {
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
  if (["already_complete", "nothing_new"].includes(report.status) && options.skipExitCode !== undefined) {
    io.exitCode = options.skipExitCode;
  }
}

/** @param onBegun called with the record of the attempt once the spec is read */
async function openAndRun(
  spec: string,
  options: RunOptions,
  io: SafeIo,
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
  const progress = await chooseProgress(options, (line) => log.info(line), io.stderr.raw);
  const whole = withProviders(await readSpec(spec, options), options.provider);
  const folder = dirname(resolve(spec));
  const about = (loaded: LoadedSpec, record: AttemptRecord): Omit<Parameters<typeof reporting>[0], "metricsPort"> => {
    return { loaded, folder, record, log, signal: stop.signal, dateMs: Date.now };
  };
  const recordFor = (
    { loaded: { spec: ofRun }, chain }: RunOfChain,
    more: Pick<RecordOptions, "onStage"> = {},
  ): AttemptRecord =>
    recordOf(ofRun, { worker: attempt.worker, ...commandsFor(spec, ofRun, { ...attempt, chain }), ...more });

  let next: RunOfChain;
  try {
    next =
      attempt.limited === undefined
        ? await ofNextRun(whole, spec, { ...attempt, tidies: true, log, signal: stop.signal })
        : { loaded: limitedSpec(whole, attempt.limited), chain: undefined };
  } catch (error) {
    const failing = { ...about(whole, recordFor({ loaded: whole, chain: undefined })), metricsPort: undefined };
    return await reporting(failing, () => Promise.reject(error));
  }
  const { loaded, chain } = next;
  requireReuse(attempt, loaded.spec);
  let profile: Profile | undefined;
  const record = recordFor(
    next,
    options.profile === undefined ? {} : { onStage: (...piece) => profile?.onStage(...piece) },
  );
  const reported = about(loaded, record);
  onBegun(record);
  return await reporting({ ...reported, metricsPort: options.metricsPort }, async (deadline) => {
    await using openedProfile =
      options.profile === undefined
        ? undefined
        : await (await import("../profile.js")).openProfile(options.profile, { spec: loaded.spec, folder, log });
    profile = openedProfile;
    await using early = hasRoomForThreads() ? earlyThreads(scoringWorker, usableCores()) : undefined;
    const parts = { log, progress, signal: stop.signal, attempt, record, chain, early, profileFolder: profile?.folder };
    await using opened = await openLoaded(loaded, spec, parts);
    try {
      return await calling(reported, deadline, () => runJob(opened));
    } finally {
      await profile?.end(record.stages);
    }
  });
}

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

function commandsFor(
  path: string,
  { params, output }: JobSpec,
  { newRun, ...named }: Parameters<typeof commandFor>[2] & { readonly newRun: boolean },
): Pick<AttemptInfo, "command" | "olderCommand"> {
  const command = commandFor(path, params, named);
  const mayBeRefused = output.postgres !== undefined && output.postgres.mode !== "append";
  return { command, olderCommand: mayBeRefused ? `${command}${newRun ? " --new-run" : ""} --allow-older` : undefined };
}

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

/** 0: any free port. */
function portOf(value: string): number {
  const port = Number(value);
  if (!/^\d{1,5}$/.test(value) || port > 65_535) {
    throw new InvalidArgumentError("expected a number from 0 to 65535");
  }
  return port;
}

// Shells and container runtimes give 126 to 255 their own meaning; 1 and 2 stand for too many failures.
const minCode = 3;
const maxCode = 125;
const usedCodes = new Set<number>(Object.values(exitCodes));

/** @throws InvalidArgumentError if not from 3 to 125, or of other outcomes @public so that tests try all codes */
export function skipExitCode(text: string): number {
  const code = /^\d{1,3}$/.test(text) ? Number(text) : Number.NaN;
  if (usedCodes.has(code)) {
    throw new InvalidArgumentError(`Exit code ${code} means something else here; 99 is free.`);
  }
  if (!(code >= minCode && code <= maxCode)) {
    throw new InvalidArgumentError(`Expected a number from ${minCode} to ${maxCode}, such as 99.`);
  }
  return code;
}
