import { errnoOf, JobError } from "../../util/errors.js";

/** What the system says of a path where nothing can be. */
const nothingThere: ReadonlySet<string> = new Set(["ENOENT", "ENOTDIR", "ENAMETOOLONG", "ELOOP"]);

export function isNothingThere(error: unknown): boolean {
  return nothingThere.has(errnoOf(error) ?? "");
}

export function isDenied(error: unknown): boolean {
  const errno = errnoOf(error);
  return errno === "EACCES" || errno === "EPERM";
}

/** What a failed call means. @param doing as messages begin; `hint`: what to do where permission is denied */
export function diskFault(doing: string, error: unknown, { hint = "grant read permission" } = {}): JobError {
  return isDenied(error)
    ? new JobError("PERMISSION", `${doing}: permission denied`, { hint, cause: error })
    : new JobError("DISK", `${doing}: ${errnoOf(error) ?? String(error)}`, {
        hint: "run the same command again; if it stays so, look at the disk or mount, and at the limit of open files",
        cause: error,
      });
}
