import type { JobSpec } from "../spec/job-spec.js";

/**
 * The columns that identify a row of the output, as far as the spec tells: the key of the table, by which the database
 * itself tells rows apart, before keys that the spec only declares. Empty: the spec names no column.
 */
export function usualKey({ checks, output, reuse }: Pick<JobSpec, "checks" | "output" | "reuse">): readonly string[] {
  const choices = [output.postgres?.key, checks?.unique, reuse?.key, output.columns];
  return choices.find((columns) => columns !== undefined && columns.length > 0) ?? [];
}
