import type { AttemptRecord } from "./attempt-record.js";
import { showCount, showDuration, showRate, count } from "../base/shown-numbers.js";

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

const longestBar = 30;
const shortestBar = 5;

/** The line of a progress bar: what does not fit into `columns` is left out, the bar first, then the rate. */
export function barText(rate: ScoringRate, total: number, columns: number): string {
  const share = total === 0 ? 1 : Math.min(1, rate.done / total);
  const percent = `${Math.floor(share * 100)}%`;
  const rows = `${showCount(rate.done)}/${count(total, "row")}`;
  const pace = rate.done === 0 ? [] : [showRate(rate.rowsPerSecond)];
  const left = rate.done === 0 ? [] : [`${showDuration(rate.secondsLeft(total))} left`];
  const fits = (parts: readonly string[]): boolean => parts.join(" | ").length < columns;
  const whole = [percent, rows, ...pace, ...left];
  const parts = [whole, [percent, rows, ...left], [percent, ...left]].find(fits) ?? [percent];
  const text = parts.join(" | ");
  const size = Math.min(longestBar, columns - text.length - 2); // a space, and the last column stays free
  if (size < shortestBar) {
    return text;
  }
  const complete = Math.round(share * size);
  return `${"█".repeat(complete)}${"░".repeat(size - complete)} ${text}`;
}

/** Measures rows per second over the last 30 seconds, since a run's first seconds (warm-up) and its pauses mislead. */
interface ScoringRate {
  add(rows: number): void;
  readonly done: number;
  readonly rowsPerSecond: number;
  secondsLeft(total: number): number;
}

const windowMs = 30_000;
/** The time between two marks of the window; so it has some thirty. */
const markMs = 1_000;

export function createScoringRate(nowMs: () => number): ScoringRate {
  /** Oldest first. As soon as there is a mark before the window, the first one is the last such mark. */
  const marks: { readonly ms: number; readonly done: number }[] = [{ ms: nowMs(), done: 0 }];
  let done = 0;
  const rowsPerSecond = (): number => {
    const [{ ms, done: before } = { ms: 0, done: 0 }] = marks;
    return ((done - before) * 1000) / Math.max(1, nowMs() - ms);
  };
  return {
    add(rows) {
      const now = nowMs();
      done += rows;
      if (now - (marks.at(-1)?.ms ?? 0) >= markMs) {
        marks.push({ ms: now, done });
      }
      while (marks[1] !== undefined && now - marks[1].ms >= windowMs) {
        marks.shift();
      }
    },
    get done() {
      return done;
    },
    get rowsPerSecond() {
      return rowsPerSecond();
    },
    secondsLeft: (total) => Math.max(0, total - done) / Math.max(rowsPerSecond(), 1e-9),
  };
}

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
