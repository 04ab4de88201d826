/** Says how many rows a batch has. */
export interface BatchSizer {
  /** Rows of the next batch. */
  readonly rows: number;
  /** What a batch of so many rows took inside the engine, in milliseconds. */
  took(rows: number, ms: number): void;
}

/** The size that was asked for, or that the model has. */
export function fixedSize(rows: number): BatchSizer {
  return { rows, took() {} };
}

/**
 * CPU time of a batch outside `session.run`: messages to the thread and back, tensors made and let go. A table of 4 M
 * rows took this much less for each batch that it was cut into fewer (docs/decisions/models-and-engines.md).
 */
const overheadMs = 0.05;
/** The fastest of this many batches counts as the time of a size, since something else delayed the slower ones. */
const samples = 6;
/** A smaller gain is noise. */
const gain = 0.015;
/** A batch is not made longer than this to save overhead: a stop waits for it. */
const longestMs = 500;
const smallest = 16;

export interface MeasuringOptions {
  /** Rows of the first batch: a power of two. */
  readonly start: number;
  /** The largest size. It is used itself if it is less than the smallest size to try. */
  readonly limit: number;
  /** Called once, with the fastest. */
  readonly onSettled: (rows: number) => void;
}

/**
 * Finds the fastest size on the run's own first batches: doubles it as long as rows become cheaper, else halves it as
 * long as they do. Each size costs `samples` batches, whose results count like any other's.
 */
export function measuringSize({ start, limit, onSettled }: MeasuringOptions): BatchSizer {
  let best = { rows: Math.min(start, limit), cost: Number.POSITIVE_INFINITY };
  let trying: number | undefined = best.rows;
  let factor = 2;
  let seen: number[] = [];
  const settle = (): void => {
    trying = undefined;
    onSettled(best.rows);
  };
  const proceed = (fastestMs: number): void => {
    const wanted = Math.floor(best.rows * factor);
    const tooLong = factor > 1 && fastestMs * factor > longestMs;
    if (wanted <= limit && wanted >= Math.min(smallest, limit) && !tooLong) {
      trying = wanted;
    } else if (factor > 1 && best.rows === start) {
      factor = 0.5;
      proceed(fastestMs);
    } else {
      settle();
    }
  };
  return {
    get rows() {
      return trying ?? best.rows;
    },
    took(rows, ms) {
      if (rows !== trying) {
        return; // the rest of a span, or one that was under way when the size changed
      }
      seen.push(ms);
      if (seen.length < samples) {
        return;
      }
      const fastestMs = Math.min(...seen);
      const cost = (fastestMs + overheadMs) / rows;
      seen = [];
      if (cost < best.cost * (1 - gain)) {
        best = { rows, cost };
        proceed(fastestMs);
      } else if (factor > 1 && best.rows === start) {
        factor = 0.5;
        proceed(fastestMs);
      } else {
        settle();
      }
    },
  };
}

/** Rows of the first batches, where a row takes about `msPerRow`: short batches, so that slow models are no surprise. */
export function startingSize(msPerRow: number, limit: number): number {
  const startMs = 50;
  const rows = 2 ** Math.floor(Math.log2(Math.max(1, startMs / msPerRow)));
  return Math.min(limit, 4096, Math.max(smallest, rows));
}
