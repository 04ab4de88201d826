/**
 * How the memory of a job (`engine.memory`) is shared out among those that hold rows on their way from a shard to the
 * target. Each part bounds what it holds by its share, in bytes; so all of them together stay below the whole.
 */
export interface MemoryBudget {
  readonly bytes: number;
  /**
   * A page of a column, or a dictionary, unpacked. The packed one is in memory as well, and if it is one value, that as
   * a batch and as the span's. DuckDB writes pages of up to 100 MB.
   */
  readonly pageBytes: number;
  /** Pages that workers hold open at once, of columns with long values. */
  readonly openPagesBytes: number;
  /** Rows that go from one thread to another at once. */
  readonly batchBytes: number;
  /** Rows that all workers together have sent and the main thread has not yet received. */
  readonly heldBytes: number;
  /** Rows of a span that are held until they are encoded: where it has more, they are encoded while it is open. */
  readonly pieceBytes: number;
  /** Rows that DuckDB reads at once: it holds them some eight times over while it does. */
  readonly vectorBytes: number;
  /** Rows of an earlier run whose predictions are reused: those that take more are not read. */
  readonly storedBytes: number;
  /**
   * The memory limit of a DuckDB instance. It is not in addition to the other shares: memory of DuckDB counts as
   * theirs, too.
   */
  readonly duckDbBytes: number;
}

/** The share of the whole budget, one of so many, that is `storedBytes`. */
export const storedShare = 4;

export function mebibytes(count: number): number {
  return count * 1024 * 1024;
}

/** @param storedBytes see `MemoryBudget`; at least a quarter of the whole, and more is in addition to it */
export function memoryBudget(bytes: number, storedBytes = 0): MemoryBudget {
  const share = (parts: number): number => Math.floor(bytes / parts);
  return {
    bytes,
    pageBytes: share(4),
    openPagesBytes: share(2),
    batchBytes: share(64),
    heldBytes: share(8),
    pieceBytes: share(16),
    vectorBytes: share(32),
    storedBytes: Math.max(share(storedShare), storedBytes),
    duckDbBytes: bytes,
  };
}
