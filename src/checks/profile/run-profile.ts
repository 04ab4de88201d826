import type { ColumnProfile } from "./column.js";

/** By the column's name. */
export type ColumnProfiles = ReadonlyMap<string, ColumnProfile>;

/** What checks know of a run: its counts, and a profile of each column. */
export interface RunProfile {
  readonly runId: string;
  /** The run's logical date, "2026-11-23". */
  readonly date: string;
  readonly modelSha256: string;
  /** The model as the plan names it, and its version. */
  readonly model: { readonly uri: string; readonly version?: string | undefined };
  readonly rows: number;
  readonly rejected: number;
  /** Rows that `input.where` left out; undefined: it is not known. */
  readonly filtered?: number | undefined;
  /** The share of rows that are there twice; undefined: it is not known. */
  readonly repeated?: number | undefined;
  /** A person approved it after the checks had held it: later runs may resemble it, but it says nothing of what is usual. */
  readonly isApproved?: true | undefined;
  readonly outputs: ColumnProfiles;
  /** The rows and NULLs of the columns that are carried through. */
  readonly carried: ColumnProfiles;
  readonly features: ColumnProfiles;
  /** The outputs of the rows that have one value of a column, by "country=FR". */
  readonly slices: ReadonlyMap<string, ColumnProfiles>;
}
