import { type AttemptFailure, failuresText, parseFailures } from "../../../publish/attempt-failure.js";
import { ifThere, type TargetState } from "./file-system.js";
import type { Layout } from "./layout.js";

/** Reads the last failure of a run; undefined: none is recorded. */
export async function lastFailureOf(fs: TargetState, { errors }: Layout): Promise<AttemptFailure | undefined> {
  return parseFailures(await ifThere(fs.readText(errors))).at(-1);
}

/** The file operations that `addFailure` needs. */
export interface SmallFiles {
  exists(path: string): Promise<boolean>;
  /** Reads a file; undefined: there is no such file. */
  read(path: string): Promise<string | undefined>;
  /** Writes a file, or replaces it. It need not be durable. */
  replace(path: string, text: string): Promise<unknown>;
}

/**
 * Adds a failure to the failures of a run, if its plan still exists. If two workers fail at the same moment, one may
 * overwrite the other's failure.
 */
export async function addFailure(files: SmallFiles, { plan, errors }: Layout, failure: AttemptFailure): Promise<void> {
  if (await files.exists(plan)) {
    await files.replace(errors, failuresText(parseFailures(await files.read(errors)), failure));
  }
}
