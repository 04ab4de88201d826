import { type AttemptFailure, begunText, failureText, parseNotes } from "../../../publish/attempt-failure.js";
import { parseSpending, type RecordedSpending, spendingText } from "../../../publish/recorded-run.js";
import { bestEffort } from "../../../util/best-effort.js";
import type { ErrorCode } from "../../../util/errors.js";
import type { RunSink } from "../../port.js";
import { ifReadable, ifThere, type TargetState } from "./file-system.js";
import type { Layout } from "./layout.js";

/** Reads the last failure of a run; undefined: none is recorded. */
export async function lastFailureOf(fs: TargetState, { errors }: Layout): Promise<AttemptFailure | undefined> {
  return parseNotes(await ifThere(fs.readText(errors))).errors.at(-1);
}

/** The file operations that `addFailure` needs. */
export interface SmallFiles {
  exists(path: string): Promise<boolean>;
  /** Reads a file; undefined: there is no such file. */
  read(path: string): Promise<string | undefined>;
  /** Writes a file, or replaces it. It need not be durable. */
  replace(path: string, text: string): Promise<unknown>;
}

/** The steps of notes on attempts that disks and S3 do differently. */
export interface NotesTarget {
  /** Runs `work`; errors of the disk or the store are reported with the act, `doing`. */
  readonly guarded: <T>(doing: string, work: () => Promise<T>) => Promise<T>;
  /** Files for errors, which only inform people. Calls end when `stop` is aborted. */
  readonly smallFiles: (stop: AbortSignal) => SmallFiles;
  /** Whether the process of an attempt has ended, as far as this machine knows. */
  readonly isDead: (writer: string) => boolean;
  /** The error code for an unreachable target, where recording the error would fail, too. */
  readonly away: ErrorCode | undefined;
}

/** This attempt's name, and which spans are committed. */
interface NotesOf {
  readonly writer: string;
  readonly committed: Uint8Array;
}

/** How a run's failures, attempts that resume it after one, and what it has paid for are recorded and read. */
export function attemptNotes(
  { fs, layout }: { readonly fs: TargetState; readonly layout: Layout },
  { guarded, smallFiles, isDead, away }: NotesTarget,
  { writer, committed }: NotesOf,
): Pick<
  RunSink,
  "lastFailure" | "isWorkedOn" | "recordBegun" | "recordFailure" | "recordSpending" | "recordedSpending"
> {
  const { errors } = layout;
  return {
    lastFailure: () => guarded(`reading ${errors}`, () => lastFailureOf(fs, layout)),
    isWorkedOn: () =>
      guarded(`reading ${errors}`, async () =>
        parseNotes(await ifThere(fs.readText(errors))).begun.some((one) => !isDead(one)),
      ),
    async recordBegun() {
      await bestEffort((stop) => addBegun(smallFiles(stop), layout, writer));
    },
    async recordFailure({ code, message }) {
      if (code !== away) {
        const spansCommitted = committed.reduce((sum, flag) => sum + flag, 0);
        const failure = { at: new Date().toISOString(), writer, code, message, spansCommitted };
        await bestEffort((stop) => addFailure(smallFiles(stop), layout, failure));
      }
    },
    async recordSpending(spending) {
      await bestEffort((stop) => keepMost(smallFiles(stop), layout, spending));
    },
    async recordedSpending() {
      let found: RecordedSpending | undefined;
      await bestEffort(async () => {
        found = await spendingOf(fs, layout);
      });
      return found;
    },
  };
}

/**
 * Adds a failure to the failures of a run, if its plan still exists. If two workers fail at the same moment, one may
 * overwrite the other's failure.
 */
async function addFailure(files: SmallFiles, { plan, errors }: Layout, failure: AttemptFailure): Promise<void> {
  if (await files.exists(plan)) {
    await files.replace(errors, failureText(parseNotes(await files.read(errors)), failure));
  }
}

/** Reads what a run has paid for; undefined: no attempt has told. */
export async function spendingOf(fs: TargetState, { spending }: Layout): Promise<RecordedSpending | undefined> {
  return parseSpending(await ifReadable(fs.readText(spending)));
}

/** Replaces what is known to be paid for, unless more is known: an attempt may not know the answers of other workers. */
async function keepMost(files: SmallFiles, { plan, spending }: Layout, found: RecordedSpending): Promise<void> {
  const known = parseSpending(await files.read(spending));
  if (found.answers > (known?.answers ?? 0) && (await files.exists(plan))) {
    await files.replace(spending, spendingText(found));
  }
}

/** Adds an attempt that has begun, if an earlier one has failed: the list is only read after a failure. */
async function addBegun(files: SmallFiles, { errors }: Layout, writer: string): Promise<void> {
  const notes = parseNotes(await files.read(errors));
  if (notes.errors.length > 0) {
    await files.replace(errors, begunText(notes, writer));
  }
}
