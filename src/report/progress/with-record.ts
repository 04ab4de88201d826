import type { AttemptRecord } from "../attempt-record.js";
import type { Progress } from "./progress.js";

/** Wraps a progress so that the record counts the same rows. */
export function withRecord(progress: Progress, record: AttemptRecord): Progress {
  return {
    start(rows) {
      record.rowsToScore = rows;
      progress.start(rows);
    },
    scored(rows) {
      record.addRows(rows);
      progress.scored(rows);
    },
    stop() {
      progress.stop();
    },
  };
}
