type Hook = (call: string) => void | Promise<void>;

export function watchQueries(
  clients: object,
  hooks: {
    readonly before?: Hook;
    readonly after?: Hook;
    /** A query was sent, and its answer is not there yet. */
    readonly sent?: Hook;
    /** All rows of a COPY were sent, and its end was not. */
    readonly inCopy?: Hook;
  },
): () => void;
