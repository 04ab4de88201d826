import { errnoOf, JobError, messageOf } from "../util/errors.js";

/** Of this process; of the machine. */
const errnos: ReadonlySet<string | undefined> = new Set(["EMFILE", "ENFILE"]);
/** Node's, those of its threads, and those of C libraries. No value of a row that a message quotes stands at these places. */
const tooMany = /^E[MN]FILE: |: E[MN]FILE$|: Too many open files(?: in system)?$/;

/**
 * The error to end with when a call failed because no more files can be open, whatever that call was for; undefined when
 * that is not why. Threads and native libraries fail with it too, some of them with a text alone.
 */
export function openFilesError(error: unknown): JobError | undefined {
  const cause = openFilesCause(error);
  if (cause === undefined) {
    return undefined;
  }
  const doing =
    error instanceof JobError ? error.message : `opening a file: too many are open already (${messageOf(cause)})`;
  return new JobError("DISK", doing, {
    hint: "raise the limit of open files (`ulimit -n`, LimitNOFILE in systemd), then run the same command again",
    cause: error,
  });
}

function openFilesCause(error: unknown): unknown {
  for (let cause = error; cause instanceof Error; cause = cause.cause) {
    if (errnos.has(errnoOf(cause)) || (!(cause instanceof JobError) && tooMany.test(cause.message))) {
      return cause;
    }
  }
  return undefined;
}
