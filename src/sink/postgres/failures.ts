import { DatabaseError } from "pg";
import { errnoOf, type ErrorCode, isCertificateError, JobError, messageOf } from "../../util/errors.js";
import { connectionErrors, type RetryRules, type RetryTools, tryAgain, type Work } from "../../util/retry.js";
import { lacksPassword, PasswordRefused } from "./connections.js";

/** The kind of a failed call: a transient error, a permanent one, or a bug. */
type Failure =
  | { readonly kind: "transient"; readonly found: string }
  | { readonly kind: "permanent"; readonly code: ErrorCode; readonly found: string; readonly hint?: string }
  | { readonly kind: "bug" };

/** Messages of `pg` for a lost connection, which have no code. */
const lostConnection =
  /^(Connection terminated|timeout expired|timeout exceeded when trying to connect|Client has encountered a connection error|Client was closed|Connection ended)/;

/**
 * SQLSTATEs, or their classes, of transient errors: of the connection, of the server and its resources, and of a
 * transaction or session in a wrong state. Unknown states count as permanent: they come from a trigger, a limit or a
 * damaged table, and each attempt would retry them for `retry.max_seconds`.
 * https://www.postgresql.org/docs/current/errcodes-appendix.html
 */
const transientStates = /^(08|25|26|40|53|58|72|HV|XX000|55P03|55006|57014|57P01|57P02|57P03|57P05)/;

interface Known {
  readonly states: RegExp;
  readonly code: ErrorCode;
  readonly hint: string;
}

const permanentStates: readonly Known[] = [
  {
    states: /^28/,
    code: "PERMISSION",
    hint: "check user and password: output.postgres.url and password, PGPASSWORD or .pgpass",
  },
  { states: /^3D000|^57P04/, code: "PERMISSION", hint: "check the database's name in the URL" },
  { states: /^42501/, code: "PERMISSION", hint: "docs/postgres.md lists what a role needs for each mode" },
  {
    states: /^23505/,
    code: "DUPLICATE_KEY",
    hint: "mode: upsert updates rows whose key is there already; or correct the input or the table; committed spans are kept",
  },
  {
    states: /^(42P01|3F000)/,
    code: "OUTPUT_DAMAGED",
    hint: "a table of the target, of output.postgres.control_schema, or one that a trigger or rule of the target names, was removed; restore it from a backup. Without one, drop the control schema with all its tables, and run the same command again, which scores all rows. With mode append, rows that were written may be there all the same: look for them before rows are scored again",
  },
  {
    states: /^22P05/,
    code: "OUTPUT_REFUSED",
    hint: "the database's encoding cannot hold this character, of a param, a name or a file's path; use a database with encoding UTF8",
  },
  {
    states: /^0A/,
    code: "OUTPUT_MISMATCH",
    hint: "Postgres does not support this for the table: a trigger, a rule or row-level security of it may be the reason",
  },
  // 22P03, 08P01: a COPY whose bytes do not fit a column's type.
  {
    states: /^(42|3F|2B|22P03|08P01)/,
    code: "OUTPUT_MISMATCH",
    hint: "the table has changed since it was checked",
  },
];
const refused: Omit<Known, "states"> = {
  code: "OUTPUT_REFUSED",
  hint: "correct the input or the table; committed spans are kept",
};

const undefinedTable = "42P01";

/** Whether a statement failed because a table that it names does not exist. */
export function isMissingTable(error: unknown): boolean {
  return error instanceof DatabaseError && error.code === undefinedTable;
}

export function classify(error: unknown): Failure {
  if (error instanceof PasswordRefused) {
    const hint = "run the same command again: it takes the password anew, and committed spans are kept";
    return error.mayChange
      ? { kind: "transient", found: error.message }
      : { kind: "permanent", code: "DATABASE", found: error.message, hint };
  }
  if (error instanceof DatabaseError) {
    return ofServer(error);
  }
  // A name with several addresses: all of them failed.
  if (error instanceof AggregateError && error.errors.length > 0) {
    return classify(error.errors[0]);
  }
  return ofConnection(error);
}

function ofServer(error: DatabaseError): Failure {
  const state = error.code ?? "";
  const more = [error.detail, copyPlace(error)].filter((text) => text !== undefined).join("; ");
  const found = `${error.message}${more === "" ? "" : ` (${more})`} [${state}]`;
  if (transientStates.test(state) && !isShortField(error)) {
    const hint = /statement timeout/.test(error.message) ? "; output.postgres.timeouts.statement sets it" : "";
    return { kind: "transient", found: `${found}${hint}` };
  }
  const { code, hint } = permanentStates.find(({ states }) => states.test(state)) ?? refused;
  return { kind: "permanent", code, found, hint };
}

function ofConnection(error: unknown): Failure {
  const errno = errnoOf(error) ?? "";
  const message = messageOf(error);
  if (isCertificateError(errno)) {
    return {
      kind: "permanent",
      code: "PERMISSION",
      found: `the server's certificate is not trusted: ${message} (${errno})`,
      hint: "sslrootcert in the URL, or PGSSLROOTCERT, names the authority's certificate; output.postgres.tls: require does not check it",
    };
  }
  if (/does not support SSL/.test(message)) {
    return {
      kind: "permanent",
      code: "PERMISSION",
      found: "the server does not speak TLS",
      hint: "switch TLS on in the server, or write output.postgres.tls: disable in the spec",
    };
  }
  if (lacksPassword(error)) {
    return {
      kind: "permanent",
      code: "PERMISSION",
      found: "the server asks for a password, and there is none",
      hint: "set it by output.postgres.url or password, PGPASSWORD or .pgpass",
    };
  }
  return connectionErrors.has(errno) || lostConnection.test(message)
    ? { kind: "transient", found: message }
    : { kind: "bug" };
}

/** The row of a span that failed, as the server reports it: "COPY predictions, line 7, column id". */
function copyPlace({ where }: DatabaseError): string | undefined {
  return where?.split("\n").find((line) => line.startsWith("COPY "));
}

/** Whether a value was shorter than its column's type: the server reports that as a protocol violation. */
function isShortField(error: DatabaseError): boolean {
  return error.code === "08P01" && copyPlace(error) !== undefined;
}

/** The error as users see it. Messages of the server hold names and values, never credentials. */
function databaseError(doing: string, error: unknown): unknown {
  if (error instanceof JobError) {
    return error;
  }
  const failure = classify(error);
  switch (failure.kind) {
    case "bug":
      return error;
    case "transient":
      return new JobError("DATABASE", `${doing}: ${failure.found}`, {
        hint: "run the same command again; committed spans are kept",
        cause: error,
      });
    case "permanent":
    default:
      return new JobError(failure.code, `${doing}: ${failure.found}`, {
        cause: error,
        ...(failure.hint === undefined ? {} : { hint: failure.hint }),
      });
  }
}

/**
 * Retries `work` while it fails with transient errors of the database. @throws JobError DATABASE when the time is up:
 * see `tryAgain`
 */
export async function retrying<T>(doing: string, tools: RetryTools, work: Work<T>): Promise<T> {
  const rules: RetryRules = {
    judge(error) {
      const failure = error instanceof JobError ? undefined : classify(error);
      return failure?.kind === "transient"
        ? { kind: "again", found: failure.found }
        : { kind: "end", error: databaseError(doing, error) };
    },
    code: "DATABASE",
    hint: "run the same command again; committed spans are kept. retry.max_seconds sets how long it tries",
  };
  return await tryAgain(doing, tools, rules, work);
}
