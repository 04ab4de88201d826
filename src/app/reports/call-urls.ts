import { attemptJson, type AttemptRecord } from "../../report/attempt-record.js";
import { type Lateness, ping } from "../../report/calls.js";
import {
  decidingTexts,
  exitCodeOfOutcome,
  failureFields,
  type Outcome,
  reportFields,
  reportText,
  type RunReport,
} from "../../report/report.js";
import type { Log } from "../../scoring/context.js";
import type { LoadedSpec } from "../../spec/load.js";
import type { ReportSpec } from "../../spec/report-spec.js";
import { isPlainUrl } from "../../spec/uri.js";
import { messageOf } from "../../util/errors.js";
import { readSecret } from "../reading/given-files.js";

/** An attempt whose spec may name URLs to call. */
export interface CallContext {
  readonly loaded: Pick<LoadedSpec, "spec" | "where">;
  /** The folder of the spec. */
  readonly folder: string;
  readonly record: AttemptRecord;
  readonly log: Log;
  readonly signal: AbortSignal;
}

/** The keys of `report` that hold a URL to call. */
type CallKey = "on_success" | "on_failure" | "on_held" | "on_late";

/** The time limit of calls after a signal. It is short, because the process may be killed soon. */
const stoppedPingMs = 2000;
const pingTries = 3;

/**
 * Whether the run is complete. A run that waits for other workers does not count as complete, because one of them may
 * fail.
 */
export function succeeded(outcome: Outcome): boolean {
  return outcome.kind === "done" && ["complete", "already_complete"].includes(outcome.report.status);
}

/**
 * Returns the key of the URL to call. Nothing more is called for a held run if `on_held` is set; else exit code 67 counts
 * as a failure.
 */
function callOf({ on_held: onHeld }: ReportSpec, outcome: Outcome): "on_success" | "on_failure" | undefined {
  if (outcome.kind === "done" && outcome.report.decided !== undefined && onHeld !== "") {
    return undefined;
  }
  return succeeded(outcome) ? "on_success" : exitCodeOfOutcome(outcome) === 0 ? undefined : "on_failure";
}

/** Calls the URL that the spec names for this outcome, if it names one. */
export async function callFor(context: CallContext, outcome: Outcome): Promise<void> {
  const key = callOf(context.loaded.spec.report, outcome);
  if (key !== undefined) {
    await callUrl(context, key, () => pingBody(context.record, outcome));
  }
}

/** Calls `report.on_held` if this attempt is to call it, and has the target note that. The target must still be open. */
export async function callHeld(context: CallContext, report: RunReport): Promise<void> {
  const { heldCall } = report.decided ?? {};
  if (
    heldCall !== undefined &&
    (await callUrl(context, "on_held", () => pingBody(context.record, { kind: "done", report })))
  ) {
    await heldCall.done();
  }
}

/** Calls the URL of the attempt's deadline, if the spec names one. Returns whether it was called. */
export async function callLate(context: CallContext, text: string, lateness: Lateness): Promise<boolean> {
  const { record } = context;
  const { deadlineMs, expectedEndMs } = lateness;
  const body = {
    job: record.info.job,
    text: `${record.info.job}: ${text}`,
    run_id: record.run?.runId ?? null,
    status: "late",
    deadline: new Date(deadlineMs).toISOString(),
    expected_end: expectedEndMs === undefined ? null : new Date(expectedEndMs).toISOString(),
    attempt: attemptJson(record),
  };
  return await callUrl(context, "on_late", () => JSON.stringify(body));
}

async function callUrl(context: CallContext, key: CallKey, body: () => string): Promise<boolean> {
  const { loaded, log, signal } = context;
  const { method, timeout } = loaded.spec.report;
  const value = loaded.spec.report[key];
  const url = value === "" ? undefined : await plainUrlAt(context, [key], value);
  if (url === undefined) {
    return false;
  }
  const stopped = signal.aborted;
  const found = await ping({
    key: `report.${key}`,
    url,
    body: method === "post" ? body() : undefined,
    timeoutMs: stopped ? Math.min(stoppedPingMs, timeout * 1000) : timeout * 1000,
    tries: stopped ? 1 : pingTries,
  });
  if (found !== undefined) {
    log.warn(found);
  }
  return found === undefined;
}

/** Reads a URL of `report` that may be a secret; undefined if it cannot be read, which is logged without it. */
export async function plainUrlAt(
  { loaded: { where }, folder, log }: Pick<CallContext, "loaded" | "folder" | "log">,
  path: readonly string[],
  value: string,
): Promise<string | undefined> {
  const key = ["report", ...path];
  try {
    const url = await readSecret(value, { folder, key: where(key) });
    if (isPlainUrl(url)) {
      return url;
    }
    log.warn(`calling ${key.join(".")}: the file does not hold an http(s) URL`);
  } catch (error) {
    log.warn(`calling ${key.join(".")}: ${messageOf(error)}`);
  }
  return undefined;
}

function pingBody(record: AttemptRecord, outcome: Outcome): string {
  const { info, run } = record;
  const fields =
    outcome.kind === "done"
      ? {
          exit_code: exitCodeOfOutcome(outcome),
          text: pingText(outcome.report),
          ...reportFields(outcome.report),
        }
      : { text: `${info.job}: failed: ${outcome.message}`, ...failureFields(outcome, run?.runId) };
  return JSON.stringify({ job: info.job, ...fields, attempt: attemptJson(record) });
}

function pingText(report: RunReport): string {
  const lines = [reportText(report), ...(report.verdict?.failed ?? [])];
  const commands = report.decided?.commands;
  if (commands !== undefined) {
    const texts = decidingTexts(commands);
    lines.push(`${texts.approve}: ${commands.approve}`, `${texts.discard}: ${commands.discard}`);
  }
  return lines.join("\n");
}
