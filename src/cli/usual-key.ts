import type { JobSpec } from "../spec/job-spec.js";
import { JobError } from "../util/errors.js";

type KeySpec = Pick<JobSpec, "checks" | "output" | "reuse">;

interface Candidate {
  readonly from: string;
  readonly columns: readonly string[];
}

/** The keys that the spec names, each with the key of the spec that has it. */
function candidates({ checks, output, reuse }: KeySpec): readonly Candidate[] {
  return [
    { from: "output.postgres.key", columns: output.postgres?.key ?? [] },
    { from: "checks.unique", columns: checks?.unique ?? [] },
    { from: "reuse.key", columns: reuse?.key ?? [] },
  ].filter(({ columns }) => columns.length > 0);
}

/**
 * The columns that identify a row of the output, as far as the spec tells: the key of the table, by which the database
 * itself tells rows apart, before keys that the spec only declares. Empty: the spec names no column.
 */
export function usualKey(spec: KeySpec): readonly string[] {
  return candidates(spec)[0]?.columns ?? spec.output.columns;
}

/**
 * The column that a list of values without a header names rows by, which are then lost for good: the only one that the
 * spec has as a key of its own. Several columns, or none: the spec has no such key.
 * @throws JobError USAGE if keys of one column differ
 */
export function keyOfValues(spec: KeySpec): readonly string[] {
  const single = candidates(spec).filter(({ columns }) => columns.length === 1);
  const names = [...new Set(single.map(({ columns }) => String(columns[0])))];
  if (names.length > 1) {
    const found = single.map(({ columns, from }) => `${columns.join()} (${from})`).join(" or ");
    throw new JobError("USAGE", `reading the keys: they may be values of ${found}`, {
      hint: `name the column: ${names.map((name) => `--key ${name}`).join(" or ")}`,
    });
  }
  return names.length === 1 ? names : usualKey(spec);
}
