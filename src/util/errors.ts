/**
 * What can go wrong, by name, and the exit code it ends in. The code tells a scheduler whether to try
 * again: 64 and 65 no, 66 no (a person decides), 75 yes. See docs/operations.md, "Exit codes".
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
  SCHEMA_MISMATCH: 65,
  BAD_ROW: 65,
  DUPLICATE_KEY: 65,
  OUTPUT_REFUSED: 65,
  TOO_MANY_REJECTS: 65,
  INPUT_CHANGED: 66,
  MODEL_CHANGED: 66,
  PLAN_CHANGED: 66,
  OUTPUT_DAMAGED: 66,
  OUTPUT_NEWER: 66,
  INPUT_NOT_READY: 75,
  DATABASE: 75,
  OBJECT_STORE: 75,
  DISK: 75,
  MEMORY: 75,
  DEVICE: 75,
  SIGINT: 130,
  SIGTERM: 143,
} as const;

export type ErrorCode = keyof typeof exitCodes;
export type ExitCode = 0 | 1 | (typeof exitCodes)[ErrorCode];

/** What an OUTPUT_DAMAGED error found that a new run gets past: it needs nothing of the run that is damaged. */
export interface Damage {
  /** The damaged run. */
  readonly runId: string;
  /** All that is wrong, a line each; default: the message. */
  readonly found?: readonly string[];
}

/**
 * An error that a user can act on. `message` starts with the act ("reading out/a.parquet: …"), then says
 * what was found; `hint` says what to do. Everything else that is thrown is a bug and exits with 1.
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

/** The end of a `switch` over a closed union: the compiler refuses a forgotten variant. */
export function assertNever(value: never): never {
  throw new Error(`unreachable variant: ${JSON.stringify(value)}`);
}

/** The text of anything thrown. */
export function messageOf(error: unknown): string {
  return error instanceof Error ? error.message : String(error);
}

/** The errno name of a system error ("ENOENT"), or undefined. */
export function errnoOf(error: unknown): string | undefined {
  if (error instanceof Error && "code" in error && typeof error.code === "string") {
    return error.code;
  }
  return undefined;
}

/** The exit code of a process that ends with `error`: 1, a bug, for whatever is no JobError. */
export function exitCodeOf(error: unknown): ExitCode {
  return error instanceof JobError ? error.exitCode : 1;
}
