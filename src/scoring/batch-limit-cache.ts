/** The largest batches that fitted into memory in earlier runs. A lost entry only costs time. */
export interface BatchLimitCache {
  find(of: BatchLimitKey): Promise<number | undefined>;
  keep(of: BatchLimitKey, rows: number): Promise<void>;
}

/** The model, device and row width that a limit holds for. */
export interface BatchLimitKey {
  readonly modelSha256: string;
  /** "cuda:0" */
  readonly device: string;
  /** The size of a row's inputs in bytes. It varies for a model that takes lists of any length. */
  readonly rowBytes: number;
}
