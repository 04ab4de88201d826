import { deadlineNear, latenessOf, type Lateness, timeOfDayAt } from "../../report/deadline.js";
import type { Outcome } from "../../report/outcome.js";
import { type CallContext, callLate } from "./call-urls.js";

/** The attempt whose deadline is watched. */
export interface DeadlineContext extends CallContext {
  /** Milliseconds since 1970. */
  readonly dateMs: () => number;
}

export interface DeadlineWatch {
  /** Ends the watch. An attempt that ended after its deadline is reported now, unless it had nothing to do. */
  end(outcome: Outcome): Promise<void>;
}

const everyMs = 5000;

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
  await callLate(context, text, lateness);
}
