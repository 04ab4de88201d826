/** The largest batches that fitted into memory in earlier runs. Losing an entry costs time only. */
export interface BatchLimitCache {
  find(of: BatchLimitKey): Promise<number | undefined>;
  keep(of: BatchLimitKey, rows: number): Promise<void>;
}

/** The model, device and row width that a limit holds for. */
export interface BatchLimitKey {
  readonly modelSha256: string;
  /** "cuda:0" */
  readonly device: string;
  /** Bytes of a row's inputs, which differ where a model takes lists of any length. */
  readonly rowBytes: number;
}
