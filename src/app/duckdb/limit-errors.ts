import { JobError, messageOf } from "../../util/errors.js";
import { StreamEndedError } from "../../duckdb/stored-rows.js";
import { firstLine } from "../../duckdb/sql.js";

/** What DuckDB says where it reaches a limit of the machine. */
const limits = [
  {
    said: /^Out of Memory Error/,
    code: "MEMORY",
    hint: "raise engine.memory, or set TMPDIR to a folder with more free space",
  },
  { said: /^IO Error.*(No space|write)/i, code: "DISK", hint: "set TMPDIR to a folder with more free space" },
] as const;

/** The error to report where a DuckDB ran out of memory or disk; undefined for other errors. */
export function limitError(error: unknown, doing: string): JobError | undefined {
  const said = firstLine(messageOf(error));
  if (error instanceof StreamEndedError) {
    const hint =
      "run the same command again; if it ends like this again, raise engine.memory, or set TMPDIR to a folder with more free space";
    return new JobError("MEMORY", `${doing}: ${said}`, { hint, cause: error });
  }
  const found = error instanceof JobError ? undefined : limits.find((limit) => limit.said.test(said));
  return found && new JobError(found.code, `${doing}: ${said}`, { hint: found.hint, cause: error });
}
