/** Facts about an attempt that are recorded with each span it commits. They inform people, and are never compared. */
export interface AttemptFacts {
  /** Index of this worker among `workers`, from 0. */
  readonly worker: number;
  readonly workers: number;
  readonly program: string;
  readonly provider: string;
  readonly onBadRow: "fail" | "reject";
}

/** The attempt that committed a span. */
export interface CommittedBy extends AttemptFacts {
  /** Rows of one inference call. */
  readonly batchSize: number;
  /** Names the attempt: host, process id and a random number. */
  readonly writer: string;
}

/** What is stored of a committed span. Its rows are in the output, rejected, left out by `input.where`, or erased. */
export interface SpanRecord {
  /** Rows in the output. */
  readonly rows: number;
  readonly rejected: number;
  readonly filtered: number;
  readonly maker: CommittedBy;
}

/** What became of the rows of a run that are committed. Those that were erased are none of these. */
export interface RowsOfRun {
  /** Rows in the output. */
  readonly output: number;
  readonly rejected: number;
  /** Rows that `input.where` left out. */
  readonly filtered: number;
}

export function rowsOf(spans: ReadonlyMap<number, Omit<SpanRecord, "maker">>): RowsOfRun {
  const sum = { output: 0, rejected: 0, filtered: 0 };
  for (const { rows, rejected, filtered } of spans.values()) {
    sum.output += rows;
    sum.rejected += rejected;
    sum.filtered += filtered;
  }
  return sum;
}
