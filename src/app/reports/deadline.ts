import { deadlineNear, latenessOf, type Lateness, timeOfDayAt } from "../../report/calls/deadline.js";
import type { AttemptRecord } from "../../report/attempt-record.js";
import type { Outcome } from "../../report/outcome.js";
import type { DueCall } from "../../report/report.js";
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
  let telling: Promise<void> | undefined;
  const tell = (lateness: Lateness): void => {
    telling ??= reportLate(context, lateness);
  };
  const timer = setInterval(() => {
    const mayWork = startedMs < deadlineMs || record.rowsToScore !== undefined || record.inputWaitSeconds > 0;
    const lateness = mayWork ? latenessOf(record, { nowMs: dateMs(), deadlineMs }) : undefined;
    if (lateness !== undefined) {
      clearInterval(timer);
      tell(lateness);
    }
  }, checkMs).unref();
  return {
    async end(outcome) {
      clearInterval(timer);
      const hadWork = outcome.kind === "failed" || record.counts.spansCommitted > 0;
      if (hadWork && dateMs() >= deadlineMs) {
        tell({ deadlineMs, expectedEndMs: undefined });
      }
      await telling;
    },
  };
}

async function reportLate(context: DeadlineContext, lateness: Lateness): Promise<void> {
  const { timezone, report } = context.loaded.spec;
  const { expectedEndMs } = lateness;
  const deadline = `report.deadline, ${report.deadline} ${timezone}`;
  const text =
    expectedEndMs === undefined
      ? `the run missed ${deadline}`
      : `the run will miss ${deadline}: it is expected to end at ${timeOfDayAt(expectedEndMs, timezone)}`;
  context.log.warn(text);
  if (report.on_late === "") {
    return;
  }
  const call = await dueCall(context.record, text);
  if (call !== undefined && (await callLate(context, text, lateness))) {
    await call.done();
  }
}

/** The longest time in milliseconds that the call waits for the target. */
const recordMs = 5000;
/** A call that no target records. */
const unrecorded: DueCall = { done: () => Promise.resolve() };

/**
 * Records that the run is late. Returns the call that is due; undefined: another attempt or worker of the run has made it.
 * A target that cannot record it does not keep the call from being made.
 */
async function dueCall({ lateCall }: AttemptRecord, text: string): Promise<DueCall | undefined> {
  let timer: NodeJS.Timeout | undefined;
  const tooLate = new Promise<DueCall>((resolve) => {
    timer = setTimeout(resolve, recordMs, unrecorded);
  });
  const recorded = (lateCall?.(text) ?? Promise.resolve(unrecorded)).catch(() => unrecorded);
  const call = await Promise.race([recorded, tooLate]);
  clearTimeout(timer);
  return call;
}
