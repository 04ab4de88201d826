/** The folder that the job writes files to. Files in it are never input. */
export interface OutputFolder {
  /** A path, or `s3://bucket/folder`. */
  readonly folder: string;
  /** The name of a part that the run will write there. */
  readonly part: string;
}

/** The hint of errors about input in the output folder. */
export const outputHint = "write the output outside the folders that input.path matches";
