/** Measures rows per second over the last 30 seconds, since a run's first seconds (warm-up) and its pauses mislead. */
export interface ScoringRate {
  /** Counts rows that were scored by now. */
  add(rows: number): void;
  readonly done: number;
  readonly rowsPerSecond: number;
  /** Seconds that the rest of `total` rows takes at this rate. */
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
