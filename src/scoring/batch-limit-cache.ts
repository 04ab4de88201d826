/** What earlier runs found out about memory. To lose it costs time only. */
export interface BatchLimitCache {
  find(of: BatchLimitKey): Promise<number | undefined>;
  keep(of: BatchLimitKey, rows: number): Promise<void>;
}

/** What a ceiling holds for. */
export interface BatchLimitKey {
  readonly modelSha256: string;
  /** "cuda:0" */
  readonly device: string;
  /** Bytes of a row's inputs, which differ where a model takes lists of any length. */
  readonly rowBytes: number;
}
