/** The job's own output, where it writes files: what lies there is no input. */
export interface OutputFolder {
  /** A path, or `s3://bucket/folder`. */
  readonly folder: string;
  /** The name of a file that the run will write there. */
  readonly part: string;
}

/** The hint of messages about it. */
export const outputHint = "write the output outside the folders that input.path matches";
