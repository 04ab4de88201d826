import type { JobSpec } from "./job-spec.js";
import { JobError } from "../util/errors.js";

type KeySpec = Pick<JobSpec, "checks" | "output" | "reuse">;

interface Candidate {
  readonly from: string;
  readonly columns: readonly string[];
}

/** The row keys that the spec declares, each with the setting that declares it. */
function candidates({ checks, output, reuse }: KeySpec): readonly Candidate[] {
  return [
    { from: "output.postgres.key", columns: output.postgres?.key ?? [] },
    { from: "checks.unique", columns: checks?.unique ?? [] },
    { from: "reuse.key", columns: reuse?.key ?? [] },
  ].filter(({ columns }) => columns.length > 0);
}

/**
 * Returns the columns that identify a row of the output. The key of the table comes first because the database enforces
 * it; the other keys are only declared. Without a key, returns `output.columns`, which may be empty.
 */
export function usualKey(spec: KeySpec): readonly string[] {
  return candidates(spec)[0]?.columns ?? spec.output.columns;
}

/**
 * Returns the key column for a text file of values: the only single-column key in the spec. Without one, returns
 * `usualKey`. Two different candidates are an error, because erased rows cannot be recovered.
 * @throws JobError USAGE if the spec has different single-column keys
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
