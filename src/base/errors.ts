/**
 * The names of errors, with the exit code of each. The exit code tells a scheduler whether to retry: 64 and 65 no, 66
 * no (something changed), 67 no (a person decides), 75 yes. See docs/runbook.md, "Exit codes".
 */
export const exitCodes = {
  USAGE: 64,
  SPEC_INVALID: 64,
  FILE_MISSING: 64,
  MODEL_INVALID: 64,
  MODEL_PIN: 64,
  CONTRACT: 64,
  OUTPUT_FOREIGN: 64,
  OUTPUT_MISMATCH: 64,
  PERMISSION: 64,
  PROVIDER_MISSING: 64,
  SHARD_CORRUPT: 65,
  TOO_LARGE: 65,
  SCHEMA_MISMATCH: 65,
  BAD_ROW: 65,
  GOLDEN_MISMATCH: 65,
  DUPLICATE_KEY: 65,
  OUTPUT_REFUSED: 65,
  TOO_MANY_REJECTS: 65,
  INPUT_CHANGED: 66,
  INPUT_REWRITTEN: 66,
  MODEL_CHANGED: 66,
  PLAN_CHANGED: 66,
  OUTPUT_DAMAGED: 66,
  OUTPUT_NEWER: 66,
  ALREADY_DECIDED: 66,
  HELD: 67,
  BUDGET: 67,
  QUOTA: 67,
  FIRST_ROWS: 67,
  DISCARDED: 67,
  PRUNED: 67,
  NOT_ERASED: 67,
  NOT_PUBLISHED: 67,
  INPUT_NOT_READY: 75,
  DATABASE: 75,
  OBJECT_STORE: 75,
  NETWORK: 75,
  DISK: 75,
  MEMORY: 75,
  DEVICE: 75,
  SIGINT: 130,
  SIGTERM: 143,
} as const;

export type ErrorCode = keyof typeof exitCodes;
export type ExitCode = 0 | 1 | (typeof exitCodes)[ErrorCode];

/** The damage of an OUTPUT_DAMAGED error, or the run of a model that changed (MODEL_CHANGED), that a new run can replace: it needs nothing of the damaged run. */
export interface Damage {
  readonly runId: string;
  /** Everything that is wrong, a line each. Default: the message. */
  readonly found?: readonly string[];
}

/**
 * An error that a user can act on. `message` starts with the act ("reading out/a.parquet: …"), then says
 * what was found; `hint` says what to do. Any other thrown value is a bug and exits with 1.
 */
export class JobError extends Error {
  override readonly name = "JobError";
  readonly code: ErrorCode;
  readonly hint: string | undefined;
  readonly damage: Damage | undefined;

  constructor(code: ErrorCode, message: string, options: { hint?: string; cause?: unknown; damage?: Damage } = {}) {
    super(message, options.cause === undefined ? undefined : { cause: options.cause });
    this.code = code;
    this.hint = options.hint;
    this.damage = options.damage;
  }

  get exitCode(): ExitCode {
    return exitCodes[this.code];
  }
}

/** Returns an error with another message or hint in place of its own. It keeps its code, its damage and its cause. */
export function reworded(
  { code, message, hint, damage, cause }: JobError,
  texts: { readonly message?: string; readonly hint?: string | undefined },
): JobError {
  const { message: said, hint: toDo } = { message, hint, ...texts };
  return new JobError(code, said, { cause, ...(toDo && { hint: toDo }), ...(damage && { damage }) });
}

/** Ends a `switch` over a closed union, so that the compiler reports a missing variant. */
export function assertNever(value: never): never {
  throw new Error(`unreachable variant: ${JSON.stringify(value)}`);
}

/** Does `work`. Returns the JobError that it ends with, if `isIt` says that the caller goes on with it. @throws other errors */
export async function orError<T>(work: () => Promise<T>, isIt: (error: JobError) => boolean): Promise<T | JobError> {
  try {
    return await work();
  } catch (error) {
    if (error instanceof JobError && isIt(error)) {
      return error;
    }
    throw error;
  }
}

/** Returns the error that came first, if closing what was open failed, too, as `await using` reports it. */
export function firstError(thrown: unknown): unknown {
  let first = thrown;
  while (first instanceof Error && first.name === "SuppressedError" && "suppressed" in first) {
    first = first.suppressed;
  }
  return first;
}

export function messageOf(error: unknown): string {
  return error instanceof Error ? error.message : String(error);
}

/** Whether a system call failed at a limit of open files: EMFILE is that of the process, ENFILE that of the machine. */
export function isOutOfFiles(error: unknown): boolean {
  return ["EMFILE", "ENFILE"].includes(errnoOf(error) ?? "");
}

/** Returns the code of a system error ("ENOENT"), or undefined. */
export function errnoOf(error: unknown): string | undefined {
  if (error instanceof Error && "code" in error && typeof error.code === "string") {
    return error.code;
  }
  return undefined;
}

/** Returns the exit code of a process that ends with `error`: 1 unless it is a JobError. */
export function exitCodeOf(error: unknown): ExitCode {
  return error instanceof JobError ? error.exitCode : 1;
}

const certificateErrors = /^(ERR_TLS_|CERT_|DEPTH_ZERO_SELF_SIGNED_CERT|SELF_SIGNED_CERT|UNABLE_TO_)/;
const protocolErrors = /^(ERR_SSL_|EPROTO$)/;

/** Whether a system error says that the certificate of a server is not trusted. */
export function isCertificateError(errno: string): boolean {
  return certificateErrors.test(errno);
}

/** Whether a system error means that TLS failed with a server, for example because it serves plain HTTP. */
export function isTlsProtocolError(errno: string): boolean {
  return protocolErrors.test(errno);
}
