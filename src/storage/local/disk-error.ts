import { errnoOf, JobError } from "../../util/errors.js";

/** Errors of paths at which nothing can exist. */
const notFoundErrnos: ReadonlySet<string> = new Set(["ENOENT", "ENOTDIR", "ENAMETOOLONG", "ELOOP"]);

/** Whether an error says that a path does not exist. */
export function isNotFound(error: unknown): boolean {
  return notFoundErrnos.has(errnoOf(error) ?? "");
}

/** Whether an error says that permission is denied. */
export function isDenied(error: unknown): boolean {
  const errno = errnoOf(error);
  return errno === "EACCES" || errno === "EPERM";
}

/** Makes a JobError, PERMISSION or DISK, of a failed system call. `act` begins its message; `hint` is for PERMISSION. */
export function diskError(act: string, error: unknown, { hint = "grant read permission" } = {}): JobError {
  return isDenied(error)
    ? new JobError("PERMISSION", `${act}: permission denied`, { hint, cause: error })
    : new JobError("DISK", `${act}: ${errnoOf(error) ?? String(error)}`, {
        hint: "run the same command again; if that does not help, check the disk or mount, and the limit of open files",
        cause: error,
      });
}
