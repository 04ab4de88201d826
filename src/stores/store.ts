import type { LocalParts } from "../run/lifecycle/span-record.js";
import { JobError } from "../base/errors.js";
import { sha256Of } from "../base/sha256.js";

/**
 * Bytes under names: a folder on a disk, or a prefix in a store of objects. The only code that knows the technology. A
 * name is a path on a disk and a URI elsewhere; `/` separates folders, which need not be made. Names are created by one
 * winner, and never partly: readers find all bytes of a name, or none.
 *
 * Every call is safe to repeat, also after one that failed or whose process died. What a call has written or removed is
 * durable when it returns, unless it says otherwise.
 * @throws JobError that says what was done to which name: 75 for what passes, 64 for what this user may not do
 */
export interface Store {
  /** Lists what is directly below a folder; nothing where it does not exist. */
  list(folder: string): Promise<readonly Entry[]>;
  /** Resolves to undefined where there is nothing of that name. @param signal ends the call with its reason where that may take long */
  stat(name: string, signal?: AbortSignal): Promise<Stat | undefined>;
  /** Reads a small UTF-8 text; undefined where there is none. */
  readText(name: string): Promise<string | undefined>;
  /**
   * Offers files on this machine in the order of their names, a group at a time: each group until the next is requested.
   * With `footer`, files in which all bytes but those of a Parquet footer may be holes.
   * @throws JobError OUTPUT_DAMAGED for a name that is gone, or changed meanwhile; on a disk, whoever opens the file finds out
   */
  fetch(names: Iterable<string> | AsyncIterable<string>, what: "whole" | "footer"): LocalParts;
  /**
   * Prepares a scope: removes what dead attempts of this machine have left in it, and finds out whether `create` has one
   * winner here. Resolves to the reason why not, as a clause. Names beside the scope are durable then: the attempt that
   * created them may have died before that.
   * @throws JobError what the fence's `check` throws
   */
  prepare(fence: Fence): Promise<string | undefined>;
  /**
   * Creates a name unless it exists, which is durable then, too.
   * @throws JobError what the fence's `check` throws; what was created too late is then gone, or stays where `takesBack` says so
   */
  create(name: string, body: Body, fence: Fence): Promise<Created>;
  /**
   * Changes a small text: `change` gets what is there, and returns what is to be there; undefined for nothing. It is called
   * again if others change the text meanwhile. What it leaves as it is becomes durable, too. On a disk the fence alone
   * keeps texts of others that come between.
   * @param fence undefined: nothing protects the text; of many writers at once the last one wins
   * @param signal ends the call with its reason where that may take long
   * @throws JobError what the fence's `check` throws; what `change` throws
   */
  update(
    name: string,
    change: (text: string | undefined) => string | undefined,
    fence: Fence | undefined,
    signal?: AbortSignal,
  ): Promise<void>;
  /**
   * Gives bytes a second name, which may exist, and the time of now, by which clean-ups of tables go. It is durable after a
   * `remove` or `update` in its folder.
   */
  copy(from: string, to: string): Promise<"copied" | "missing">;
  /**
   * Removes files of a folder; what is gone already counts as removed. All names in the folder are durable then, also
   * without any to remove. Without `names`, removes the folder and all below it, which closes the fences whose scope it is,
   * also while attempts write there. What a power failure brings back is what dead attempts leave.
   */
  remove(folder: string, names?: readonly string[]): Promise<void>;
}

/**
 * Keeps attempts of a run that is over from writing. A later run first stores its plan, then closes the scopes of the
 * runs before it, and only then publishes.
 *
 * A disk stages each file in the scope, then checks, then gives it its name: either the check finds the later plan, or
 * the file was there before the scope was closed, and is gone. A store of objects checks, creates, and checks again: what was created
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
  /** May read all bytes; undefined: they are gone meanwhile. */
  readonly digest: () => Promise<Digest | undefined>;
}

/** The length and SHA-256 of bytes. */
export interface Digest {
  readonly sizeBytes: number;
  /** In hex. */
  readonly sha256: string;
}

/** A text, or what writes a file. It is called again if the file is removed meanwhile; what it throws ends the creation. */
export type Body = string | ((path: string) => Promise<void>);

export interface Created extends Digest {
  readonly outcome: "created" | "exists";
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
export type ReadableStore = Pick<Store, "list" | "stat" | "readText">;

/** Makes the names in a folder durable, which an attempt that died may have given. */
export async function flush(store: Pick<Store, "remove">, folder: string): Promise<void> {
  await store.remove(folder, []);
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

export function digestOfText(text: string): Digest {
  return { sizeBytes: Buffer.byteLength(text), sha256: sha256Of(text) };
}
