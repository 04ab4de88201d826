/** Another attempt is committing, or has just committed, this very span: the control table tells which. */
export class TakenMeanwhile extends Error {
  readonly code = "ECONNABORTED"; // like a transaction that was lost: try again

  constructor(options: { cause?: unknown } = {}) {
    super("another attempt was there first", options);
  }
}
