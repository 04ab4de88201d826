import { deadlineNear, type Lateness, latenessOf, timeOfDayAt } from "../../report/calls/deadline.js";
import { exitCodeOfOutcome, type Outcome } from "../../report/outcome.js";
import type { DueCall } from "../../report/report.js";
import { exitCodes, messageOf } from "../../util/errors.js";
import { type CallContext, callLate } from "./call-urls.js";

/** The attempt whose deadline is watched. */
export interface DeadlineContext extends CallContext {
  /** Milliseconds since 1970. */
  readonly dateMs: () => number;
}

export interface DeadlineWatch {
  /**
   * Ends the watch. An attempt that ended after its deadline is reported now, unless it had nothing to do. Called while
   * the target is open, which records the call; and for an attempt that could not open it, at its end. Safe to repeat.
   */
  end(outcome: Outcome): Promise<void>;
}

const everyMs = 1000;

/**
 * Watches an attempt's deadline, and reports once if it is missed or will be: by a warning, and by the call of
 * `report.on_late`. Never fails. An attempt that starts after the deadline is late when it has rows to score.
 */
export function watchDeadline(context: DeadlineContext, { checkMs = everyMs } = {}): DeadlineWatch {
  const { loaded, record, dateMs } = context;
  const { timezone, report } = loaded.spec;
  const { deadline: time } = report;
  if (time === undefined) {
    return { end: () => Promise.resolve() };
  }
  const startedMs = dateMs();
  const deadlineMs = deadlineNear(startedMs, { time, timeZone: timezone });
  let reported: Promise<LateCall | undefined> | undefined;
  const reportOnce = (lateness: Lateness): void => {
    reported ??= reportLate(context, lateness);
  };
  const timer = setInterval(() => {
    const mayWork = startedMs < deadlineMs || record.rowsToScore !== undefined || record.inputWaitSeconds > 0;
    const lateness = mayWork ? latenessOf(record, { nowMs: dateMs(), deadlineMs }) : undefined;
    if (lateness !== undefined) {
      clearInterval(timer);
      reportOnce(lateness);
    }
  }, checkMs).unref();
  return {
    async end(outcome) {
      clearInterval(timer);
      const failed = await reported;
      await (failed && makeCall(context, failed));
      const hadWork = outcome.kind === "failed" || record.counts.spansCommitted > 0;
      if (hadWork && dateMs() >= deadlineMs) {
        if (record.run === undefined && exitCodeOfOutcome(outcome) !== exitCodes.INPUT_NOT_READY) {
          record.lateCall = undefined; // a run that is planned only after a correction leaves nothing at the target
        }
        reportOnce({ deadlineMs, expectedEndMs: undefined });
      }
      await reported;
      reported &&= Promise.resolve(undefined); // a call that failed now is not made again
    },
  };
}

/** A call of `report.on_late`. */
interface LateCall {
  readonly text: string;
  readonly lateness: Lateness;
  readonly due: DueCall;
}

async function makeCall(context: DeadlineContext, { text, lateness, due }: LateCall): Promise<boolean> {
  const isMade = await callLate(context, text, lateness);
  await (isMade ? due.done() : undefined);
  return isMade;
}

/** Warns, and makes the call if it is due. Returns the call if it failed. */
async function reportLate(context: DeadlineContext, lateness: Lateness): Promise<LateCall | undefined> {
  const { timezone, report } = context.loaded.spec;
  const { expectedEndMs } = lateness;
  const deadline = `report.deadline, ${report.deadline} ${timezone}`;
  const text =
    expectedEndMs === undefined
      ? `the run missed ${deadline}`
      : `the run will miss ${deadline}: it is expected to end at ${timeOfDayAt(expectedEndMs, timezone)}`;
  context.log.warn(text);
  const due = report.on_late === "" ? undefined : await lateCallDue(context, text);
  const call = due && { text, lateness, due };
  return call === undefined || (await makeCall(context, call)) ? undefined : call;
}

/** The longest time in milliseconds that the call waits for the target. */
const recordMs = 5000;
/** A call that no target records. */
const unrecorded: DueCall = { done: () => Promise.resolve() };

/**
 * Records that the run is late. Returns the call that is due; undefined: another attempt or worker of the run has made it.
 * A target that cannot record it does not keep the call from being made.
 */
async function lateCallDue({ record, log }: DeadlineContext, text: string): Promise<DueCall | undefined> {
  let timer: NodeJS.Timeout | undefined;
  const tooLate = new Promise<DueCall>((resolve) => {
    timer = setTimeout(resolve, recordMs, unrecorded);
  });
  const recorded = (record.lateCall?.(text) ?? Promise.resolve(unrecorded)).catch((error: unknown) => {
    log.debug(`noting a call of report: ${messageOf(error)}`);
    return unrecorded;
  });
  const call = await Promise.race([recorded, tooLate]);
  clearTimeout(timer);
  return call;
}
