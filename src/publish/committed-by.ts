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
