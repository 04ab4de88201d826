import { SingleBar } from "cli-progress";
import { type Progress, barText, createScoringRate } from "./progress.js";

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
