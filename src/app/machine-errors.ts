import { errnoOf, JobError, messageOf } from "../util/errors.js";

/**
 * The error to end with when a call failed for a reason that lies in this machine or in how the program is installed,
 * whatever the call was for: too many open files (75), or a native library that is missing or does not fit (64).
 * undefined: the reason is another one.
 */
export function machineError(error: unknown): JobError | undefined {
  return openFilesError(error) ?? missingLibraryError(error);
}

/** EMFILE is the limit of this process, ENFILE that of the machine. */
const openFilesErrnos: ReadonlySet<string | undefined> = new Set(["EMFILE", "ENFILE"]);
/** How Node, its threads and C libraries say it. No value of a row that a message quotes stands at these places. */
const openFilesText = /^E[MN]FILE: |: E[MN]FILE$|: Too many open files(?: in system)?$/;

/** Threads and native libraries fail for want of open files, too, some of them with a text alone. */
function openFilesError(error: unknown): JobError | undefined {
  const cause = causeOf(
    error,
    (one) => openFilesErrnos.has(errnoOf(one)) || (!(one instanceof JobError) && openFilesText.test(one.message)),
  );
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

/** Native libraries are packages of their own, by platform: `npm ci` installs those of the machine that it runs on. */
const libraries = [
  { name: "DuckDB", text: /@duckdb\/node-bindings|duckdb native binding|duckdb\.node/ },
  { name: "ONNX Runtime", text: /onnxruntime/ },
] as const;
const libraryErrors: ReadonlySet<string | undefined> = new Set(["MODULE_NOT_FOUND", "ERR_DLOPEN_FAILED"]);

function missingLibraryError(error: unknown): JobError | undefined {
  const cause = causeOf(
    error,
    (one) => libraryErrors.has(errnoOf(one)) || one.message.startsWith("Error loading duckdb"),
  );
  const [said = ""] = cause?.message.split("\n", 1) ?? [];
  const library = libraries.find(({ text }) => text.test(said));
  if (cause === undefined || library === undefined) {
    return undefined;
  }
  const platform = `${process.platform}-${process.arch}`;
  const found = errnoOf(cause) === "ERR_DLOPEN_FAILED" ? `cannot be loaded (${said})` : "is not installed";
  return new JobError("USAGE", `loading ${library.name}: its native library for ${platform} ${found}`, {
    hint: `run \`npm ci\` on this machine, with optional dependencies: packages that were installed on another platform (CPU, operating system, C library) have no library for ${platform}`,
    cause: error,
  });
}

function causeOf(error: unknown, isIt: (cause: Error) => boolean): Error | undefined {
  for (let cause = error; cause instanceof Error; cause = cause.cause) {
    if (isIt(cause)) {
      return cause;
    }
  }
  return undefined;
}
