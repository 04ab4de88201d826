/**
 * Thrown when another attempt is committing this very span, or has just committed it. The control table then tells
 * which.
 */
export class KeyTakenConcurrently extends Error {
  readonly code = "ECONNABORTED"; // as for a lost transaction: try again

  constructor(options: { cause?: unknown } = {}) {
    super("another attempt was there first", options);
  }
}
