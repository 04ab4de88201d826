import { type ErrorCode, JobError } from "../util/errors.js";
import { sha256Of } from "../util/sha256.js";

/**
 * Bytes under names: a folder on a disk, or a prefix in S3. The only code that knows the technology. A name is a path on
 * a disk and a URI in S3; `/` separates folders, which need not be made. Names are created by one winner, and never
 * partly: readers find all bytes of a name, or none.
 *
 * Every call fails with a JobError that says what was done to which name: 75 for what passes (`failure`), 64 for what
 * this user may not do. Calls that only read, and those that say so, may be repeated.
 */
export interface Store {
  /** The error when the store cannot be reached, or something that another run needs is gone. */
  readonly failure: ErrorCode;
  /** The folder of this machine that `fetch` and `workFile` put files into. */
  readonly localFolder: string;
  /** How long a record of a log waits for others, in milliseconds: longer where a write is dear. */
  readonly logPauseMs: number;
  /** Lists what is directly below a folder; nothing where it does not exist. */
  list(folder: string): Promise<readonly Entry[]>;
  /** Resolves to undefined where there is nothing of that name; so do all other calls that read. */
  stat(name: string): Promise<Stat | undefined>;
  /**
   * Reads a small UTF-8 text.
   * @param fence under which this version will be withdrawn: it is checked before the text is read
   */
  readText(name: string, fence?: Fence): Promise<StoredText | undefined>;
  /** The length and hex SHA-256 of the bytes. May read all of them. */
  digest(name: string): Promise<Digest | undefined>;
  /**
   * Offers files on this machine, a group at a time: each group until the next is requested. With `footer`, files in
   * which all bytes but those of a Parquet footer may be holes.
   * @throws JobError OUTPUT_DAMAGED for a name that is gone, or changed meanwhile; on a disk, whoever opens the file finds out
   */
  fetch(names: readonly string[], what: "whole" | "footer"): AsyncIterable<readonly LocalFile[]>;
  /**
   * Has `write` write a file of this machine for this attempt, and returns its path. A `clear` of the scope may remove it:
   * during the call, `write` is called again.
   */
  workFile(fence: Fence, what: string, write: (path: string) => Promise<void>): Promise<string>;
  /**
   * Prepares a scope: removes what dead attempts of this machine have left in it, and finds out whether `create` has one
   * winner here. Resolves to the reason why not, as a clause. Safe to repeat.
   */
  prepare(fence: Fence): Promise<string | undefined>;
  /**
   * Creates a name unless it exists; durable when it returns, also where another attempt has created it. Safe to repeat.
   * @throws JobError what the fence's `check` throws
   */
  create(name: string, body: Body, fence: Fence): Promise<Created>;
  /**
   * Creates or replaces a small text, durably. @param version what is replaced, as `readText` returned it; undefined: the
   * name was free. On a disk the fence alone keeps others' texts.
   */
  replace(name: string, text: string, { version, fence }: Replacement): Promise<"written" | "changed">;
  /** Replaces a small text that no fence protects. Of many writers the last one wins. */
  overwrite(name: string, text: string): Promise<void>;
  /** Adds whole lines to a log, a folder that only grows; durable when it returns. What is torn by a crash is one line. */
  append(log: string, text: string, fence: Fence): Promise<void>;
  /** Gives bytes a second name, as durable as `flush` makes it; the name may exist. */
  copy(from: string, to: string): Promise<"copied" | "missing">;
  /** Removes files of a folder; what is gone already counts as removed. Durable when it returns. */
  remove(folder: string, names: readonly string[]): Promise<void>;
  /** Removes the version of a name that `readText` has read with this fence, durably; "changed": it is another one now. */
  withdraw(name: string, { version, fence }: Withdrawal): Promise<"removed" | "changed">;
  /** Removes a folder and all below it. It closes the fences whose scope it is, also while attempts write there. */
  clear(folder: string): Promise<void>;
  /** Makes the names in a folder durable, which an attempt that died may have given. */
  flush(folder: string): Promise<void>;
  /** The same store; calls end when `signal` is aborted. */
  within(signal: AbortSignal): Pick<Store, "stat" | "readText" | "overwrite">;
}

/**
 * Keeps attempts of a run that is over from writing. A later run first stores its plan, then closes the scopes of the
 * runs before it, and only then publishes.
 *
 * A disk stages each file in the scope, then checks, then gives it its name: either the check finds the later plan, or
 * the file was there before the scope was closed, and is gone. S3 checks, creates, and checks again: what was created
 * too late is taken back.
 */
export interface Fence {
  /** The folder of the working files of a run. */
  readonly scope: string;
  /** @throws JobError (66, 67) when nothing may be written any more: the run was superseded or discarded, or its plan is another one */
  readonly check: () => Promise<unknown>;
  /** Whether what was created too late must be taken back, where that is only known afterwards. `why`: what `check` threw. */
  readonly takesBack: (why: JobError) => Promise<boolean>;
}

export interface Entry {
  readonly name: string;
  /** undefined for a folder, and where the store does not tell. */
  readonly sizeBytes: number | undefined;
}

export interface Stat {
  readonly sizeBytes: number;
  /** Another text after each change. */
  readonly version: string;
}

export interface StoredText {
  readonly text: string;
  readonly version: string;
}

export interface Digest {
  readonly sizeBytes: number;
  /** In hex. */
  readonly sha256: string;
}

export interface LocalFile {
  readonly name: string;
  readonly path: string;
}

/** A text, or what writes a file. It is called again if the file is removed meanwhile; what it throws ends the creation. */
export type Body = string | ((path: string) => Promise<void>);

export interface Created extends Digest {
  readonly outcome: "created" | "exists";
}

export interface Replacement {
  readonly version: string | undefined;
  readonly fence: Fence;
}

export interface Withdrawal {
  readonly version: string;
  readonly fence: Fence;
}

/**
 * Checks a fence after something was created. Where the run is over, takes it back if that must be: a later run may have
 * looked for it before.
 * @throws what `check` throws, if it was taken back
 */
export async function takeBackIfLate({ check, takesBack }: Fence, takeBack: () => Promise<unknown>): Promise<void> {
  try {
    await check();
  } catch (error) {
    if (!(error instanceof JobError) || (error.exitCode !== 66 && error.exitCode !== 67)) {
      throw error;
    }
    if (await takesBack(error)) {
      await takeBack();
      throw error;
    }
  }
}

/** A store that only reads. */
export type ReadableStore = Pick<Store, "list" | "stat" | "readText" | "failure">;

/** Reads a small text; undefined where there is none. */
export async function textAt(store: Pick<Store, "readText">, name: string): Promise<string | undefined> {
  return (await store.readText(name))?.text;
}

/** The names directly below a folder. */
export async function namesIn(store: Pick<Store, "list">, folder: string): Promise<string[]> {
  return (await store.list(folder)).map(({ name }) => name);
}

/** A call on a name of another run; undefined if this user may not read it, or a folder is a file there. */
export async function ifReadable<T>(call: Promise<T>): Promise<T | undefined> {
  try {
    return await call;
  } catch (error) {
    if (error instanceof JobError && (error.code === "PERMISSION" || error.code === "OUTPUT_FOREIGN")) {
      return undefined;
    }
    throw error;
  }
}

/**
 * The same where nothing may be overlooked.
 * @throws JobError PERMISSION if this user may not read it
 */
export async function ifPermitted<T>(call: Promise<T>): Promise<T | undefined> {
  try {
    return await call;
  } catch (error) {
    if (error instanceof JobError && error.code === "PERMISSION") {
      throw new JobError("PERMISSION", `looking for the runs of the job: ${error.message}`, {
        hint: "run the command as a user who may read all folders that may have runs of the job",
        cause: error,
      });
    }
    return await ifReadable(call);
  }
}

export function digestOfText(text: string): Digest {
  return { sizeBytes: Buffer.byteLength(text), sha256: sha256Of(text) };
}
