import { errnoOf, firstError, isOutOfFiles, JobError, messageOf } from "../util/errors.js";
import { openFilesHint } from "../duckdb/instance.js";

/**
 * Returns the error to end with: the one that came first, if closing what was open failed, too; and what `machineError`
 * makes of it.
 */
export function finalError(thrown: unknown): unknown {
  const first = firstError(thrown);
  return machineError(first) ?? first;
}

/**
 * Returns the error to end with if a call failed because too many files are open (75), or because a native library is
 * missing or cannot be loaded (64). Any call may fail for these reasons. undefined: it failed for another one.
 */
export function machineError(error: unknown): JobError | undefined {
  return openFilesError(error) ?? missingLibraryError(error);
}

/** How messages of Node, its threads and C libraries say it. A value that a message quotes is never at these places. */
const openFilesText = /^E[MN]FILE: |: E[MN]FILE$|: Too many open files(?: in system)?$/;

/** Threads and native libraries fail if too many files are open, too; some report it by a text alone. */
function openFilesError(error: unknown): JobError | undefined {
  const cause = causeOf(
    error,
    (one) => isOutOfFiles(one) || (!(one instanceof JobError) && openFilesText.test(one.message)),
  );
  if (cause === undefined) {
    return undefined;
  }
  const doing =
    error instanceof JobError ? error.message : `opening a file: too many are open already (${messageOf(cause)})`;
  return new JobError("DISK", doing, {
    hint: openFilesHint,
    cause: error,
  });
}

/** Each native library is a package per platform, of which `npm ci` installs the one of its own platform. */
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
