/** Row counts over time, in at most 120 steps of equal width, which doubles when they are full. */
export interface Timeline {
  readonly widthMs: number;
  /** The rows of each step. */
  readonly rows: readonly number[];
  /** Adds rows that were done at `atMs`, measured from the start. */
  add(atMs: number, rows: number): void;
}

const maxSteps = 120;
const firstWidthMs = 100;

/** Makes an empty timeline. */
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
      while (atMs >= widthMs * maxSteps) {
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
