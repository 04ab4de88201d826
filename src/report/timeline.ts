/** Rows by time in at most `limit` steps of one width, which doubles as time goes by. */
export interface Timeline {
  readonly widthMs: number;
  /** Of each step from the first on. */
  readonly rows: readonly number[];
  /** Rows that were done `atMs` after the beginning. */
  add(atMs: number, rows: number): void;
}

const limit = 120;
const firstWidthMs = 100;

export function createTimeline(): Timeline {
  let widthMs = firstWidthMs;
  let steps: number[] = [];
  return {
    get widthMs() {
      return widthMs;
    },
    get rows() {
      return steps;
    },
    add(atMs, rows) {
      while (atMs >= widthMs * limit) {
        widthMs *= 2;
        steps = Array.from({ length: Math.ceil(steps.length / 2) }, (_, index) => {
          return (steps[2 * index] ?? 0) + (steps[2 * index + 1] ?? 0);
        });
      }
      const step = Math.max(0, Math.floor(atMs / widthMs));
      while (steps.length <= step) {
        steps.push(0);
      }
      steps[step] = (steps[step] ?? 0) + rows;
    },
  };
}
