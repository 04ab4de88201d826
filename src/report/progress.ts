import { SingleBar } from "cli-progress";
import { count, showCount, showRate } from "./report.js";

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

/** A progress bar, for terminals. */
export function barProgress(stream: NodeJS.WritableStream, nowMs: () => number): Progress {
  const bar = new SingleBar({
    stream,
    format: "{bar} {percentage}% | {value}/{total} rows | {rate} | ETA {eta_formatted}",
    barsize: 30,
    hideCursor: true,
    clearOnComplete: true,
    fps: 5,
    etaBuffer: 100,
  });
  let startedMs = 0;
  let done = 0;
  return {
    start(rows) {
      startedMs = nowMs();
      bar.start(rows, 0, { rate: "" });
    },
    scored(rows) {
      done += rows;
      bar.update(done, { rate: showRate((done * 1000) / Math.max(1, nowMs() - startedMs)) });
    },
    stop() {
      bar.stop();
    },
  };
}

const lineIntervalMs = 10_000;

/** A progress line every ten seconds, for outputs that are not terminals. */
export function lineProgress(write: (line: string) => void, nowMs: () => number): Progress {
  let startedMs = 0;
  let lineMs = 0;
  let done = 0;
  let total = 0;
  return {
    start(rows) {
      total = rows;
      startedMs = nowMs();
      lineMs = startedMs;
    },
    scored(rows) {
      done += rows;
      const now = nowMs();
      if (now - lineMs >= lineIntervalMs && done < total) {
        lineMs = now;
        const rate = (done * 1000) / (now - startedMs);
        const left = Math.round((total - done) / Math.max(rate, 1e-9));
        write(`${count(done, "row")} of ${showCount(total)} scored, ${showRate(rate)}, about ${left} s left`);
      }
    },
    stop() {},
  };
}
