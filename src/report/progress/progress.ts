import { SingleBar } from "cli-progress";
import { count, showCount, showDuration, showRate } from "../report.js";
import { barText } from "./bar-text.js";
import { createScoringRate } from "./scoring-rate.js";

/** Receives the progress of scoring. */
export interface Progress {
  /** Called once, with the rows that this attempt will score. */
  start(rows: number): void;
  /** Called with the number of rows that were scored since; they are not yet durable. */
  scored(rows: number): void;
  stop(): void;
}

/** A progress that shows nothing. */
export const silentProgress: Progress = { start() {}, scored() {}, stop() {} };

/** Columns of a terminal that does not say how many it has. */
const usualColumns = 80;

/** A progress bar, for terminals: one line that fits the terminal's width. */
export function barProgress(
  stream: NodeJS.WritableStream & { readonly columns?: number },
  nowMs: () => number,
): Progress {
  let rate = createScoringRate(nowMs);
  let total = 0;
  const bar = new SingleBar({
    stream,
    format: () => barText(rate, total, stream.columns ?? usualColumns),
    hideCursor: true,
    clearOnComplete: true,
    fps: 5,
  });
  return {
    start(rows) {
      rate = createScoringRate(nowMs);
      total = rows;
      bar.start(rows, 0);
    },
    scored(rows) {
      rate.add(rows);
      bar.update(rate.done);
    },
    stop() {
      bar.stop();
    },
  };
}

const lineIntervalMs = 10_000;

/** A progress line every ten seconds, for outputs that are not terminals. */
export function lineProgress(write: (line: string) => void, nowMs: () => number): Progress {
  let rate = createScoringRate(nowMs);
  let lineMs = 0;
  let total = 0;
  return {
    start(rows) {
      total = rows;
      rate = createScoringRate(nowMs);
      lineMs = nowMs();
    },
    scored(rows) {
      rate.add(rows);
      const now = nowMs();
      if (now - lineMs >= lineIntervalMs && rate.done < total) {
        lineMs = now;
        const pace = `${showRate(rate.rowsPerSecond)}, about ${showDuration(rate.secondsLeft(total))} left`;
        write(`${count(rate.done, "row")} of ${showCount(total)} scored, ${pace}`);
      }
    },
    stop() {},
  };
}
