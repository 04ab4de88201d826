import { dirname, resolve } from "node:path";
import { reportDecision } from "../../job/reporting.js";
import { type DecisionReport, type DecisionRequest, approveRun, discardRun } from "../../run/decide.js";
import { spellOut } from "../../run/hints.js";
import { JobError } from "../../base/errors.js";
import { alone, openLoaded, readRunSpec } from "../../job/job-context.js";
import type { JobOptions } from "../../job/reading.js";
import type { JobContext } from "../../flow/context.js";
import { rowsOfRunText } from "../../report/report.js";
import { printable } from "../../base/texts.js";
import type { SafeIo } from "../io.js";
import { createWarningLog } from "../logger.js";

interface DecideOptions extends JobOptions {
  readonly reason?: string;
  readonly by?: string;
  readonly run?: string;
  readonly json?: boolean;
  readonly allowOlder?: boolean;
  readonly notNormal?: boolean;
}

export async function approveCommand(spec: string, options: DecideOptions, io: SafeIo): Promise<void> {
  await decide(spec, options, io, "approving", approveRun);
}

export async function discardCommand(spec: string, options: DecideOptions, io: SafeIo): Promise<void> {
  await decide(spec, options, io, "discarding", discardRun);
}

async function decide(
  spec: string,
  options: DecideOptions,
  io: SafeIo,
  act: string,
  work: (context: JobContext, request: DecisionRequest) => Promise<DecisionReport>,
): Promise<void> {
  const loaded = await readRunSpec(spec, options);
  const [fromClock] = loaded.clock;
  if (fromClock !== undefined) {
    const name = fromClock.replace(/^params\./, "");
    throw new JobError(
      "USAGE",
      `${act} a run of ${spec}: ${fromClock} comes from the clock, so it is not certain which run is meant`,
      {
        hint: `name it, as the message of the held run does: --param ${name}=2026-01-31`,
      },
    );
  }
  const log = createWarningLog(io.stderr);
  await using job = await openLoaded(loaded, spec, {
    log,
    attempt: { ...alone, allowOlder: options.allowOlder === true },
  });
  const { by, reason, run: runId, notNormal = false } = options;
  const report = await work(job, { by, reason, runId, notNormal }).catch((error: unknown) => {
    throw spellOut(job, error);
  });
  await reportDecision({ loaded, folder: dirname(resolve(spec)), record: job.record, log, signal: job.signal }, report);
  io.stdout.write(
    options.json === true ? `${reportJson(report, job.sink.target)}\n` : `${reportText(report, job.sink.target)}\n`,
  );
}

function reportJson({ runId, state, already, rows, decision }: DecisionReport, output: string): string {
  const { output: written, rejected, filtered } = rows;
  const counts = { rows: written, rows_rejected: rejected, rows_filtered: filtered };
  return JSON.stringify({
    run_id: runId,
    status: state,
    already,
    ...(state === "published" && counts),
    decision,
    output,
  });
}

function reportText(report: DecisionReport, output: string): string {
  const { runId, state, carriedOut, rows, readers, isNeighbour, held } = report;
  const what =
    state === "published" ? `, ${rowsOfRunText(rows)} -> ${output}` : `; ${readers ?? "nothing of it is published"}`;
  const baseline = isNeighbour ? "; later runs may resemble it" : "";
  return [`${runId}: ${carriedOut ? "" : "already "}${state}${what}${baseline}`, ...held].map(printable).join("\n");
}
