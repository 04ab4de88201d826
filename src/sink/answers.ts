/** An answer that was paid for, kept before the span of its row is committed. */
export interface KeptAnswer {
  /** Hex SHA-256 of the whole request as it was sent, without headers. */
  readonly request: string;
  /** The answer as JSON text: the parts that are needed (content, finish reason, usage, model), never the prompt. */
  readonly answer: string;
}

/** The answers of a run that its attempts have kept at the target. A cache: losing it costs money, never rows. */
export interface AnswerJournal {
  /** How long an answer waits for others before it is written, in milliseconds, unless the spec says otherwise: longer where a write is dear. */
  readonly pauseMs: number;
  /**
   * Yields all answers that attempts of this run have kept, of all workers. If several attempts have paid for the same
   * request, all of their answers. Damaged records are left out.
   */
  read(): AsyncIterable<KeptAnswer>;
  /**
   * Makes answers durable; resolves when they are. Calls never overlap. Called with none before anything is paid for: a
   * target that cannot keep answers says so then. @throws JobError DISK, OBJECT_STORE, DATABASE; PLAN_CHANGED, DISCARDED
   */
  keep(answers: readonly KeptAnswer[]): Promise<void>;
}
