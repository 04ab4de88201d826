/** What came of a run, row by row. */
export interface Audit {
  readonly lost: number;
  readonly empty: number;
  readonly doubled: number;
  readonly wrong: number;
  readonly refused: number;
  readonly broken: number;
}

/** Counts the rows of the Parquet files in `folder`. */
export function auditOutput(
  folder: string,
  rows: number,
  world: { readonly seed: number; readonly faults: { readonly poison?: number } },
): Promise<Audit>;

/** What a server was paid. */
export interface AuditedPayments {
  readonly paid: number;
  readonly again: number;
  readonly undelivered: number;
  readonly limited: number;
  readonly share: number | undefined;
}

/** Reads the books of a server. */
export function auditBooks(server: { get(path: string): Promise<string> }): Promise<AuditedPayments>;
