import { type AttemptFailure, begunText, failureText, parseNotes } from "../../../publish/attempt-failure.js";
import { ifThere, type TargetState } from "./file-system.js";
import type { Layout } from "./layout.js";

/** Reads the last failure of a run; undefined: none is recorded. */
export async function lastFailureOf(fs: TargetState, { errors }: Layout): Promise<AttemptFailure | undefined> {
  return parseNotes(await ifThere(fs.readText(errors))).errors.at(-1);
}

/** Whether an attempt that began after a failure may still work on the run. @param isDead whether a writer's process has ended */
export async function isWorkedOn(
  fs: TargetState,
  { errors }: Layout,
  isDead: (writer: string) => boolean,
): Promise<boolean> {
  return parseNotes(await ifThere(fs.readText(errors))).begun.some((writer) => !isDead(writer));
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
    await files.replace(errors, failureText(parseNotes(await files.read(errors)), failure));
  }
}

/** Adds an attempt that has begun, if an earlier one has failed: without a failure nobody asks for it. */
export async function addBegun(files: SmallFiles, { errors }: Layout, writer: string): Promise<void> {
  const notes = parseNotes(await files.read(errors));
  if (notes.errors.length > 0) {
    await files.replace(errors, begunText(notes, writer));
  }
}
