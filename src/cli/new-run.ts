import { JobError } from "../errors.js";
import type { JobSpec } from "../spec/job-spec.js";

/**
 * Nothing takes the rows back that a run has added to a table with mode: append; a new run would add them again.
 * @throws JobError USAGE
 */
export function checkNewRun(
  { newRun, allowDuplicates = false }: { readonly newRun: boolean; readonly allowDuplicates?: boolean },
  { output: { postgres } }: JobSpec,
): void {
  if (newRun && !allowDuplicates && postgres?.mode === "append") {
    throw new JobError(
      "USAGE",
      `reading --new-run: output.postgres.mode is append, and ${postgres.table} keeps the rows of the runs before`,
      {
        hint: "mode upsert or replace take new runs; or delete those rows, or accept every row twice, and add --allow-duplicates",
      },
    );
  }
}
