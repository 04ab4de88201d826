import { createHash } from "node:crypto";
import { createReadStream } from "node:fs";
import { readdir } from "node:fs/promises";
import { resolve } from "node:path";
import { errnoOf, JobError } from "../../util/errors.js";
import type { ListedShard } from "../../plan/compare.js";
import { pinDifference, restoreHint, touchHint } from "../../plan/pins.js";
import { diskError, isDenied, isNotFound } from "./disk-error.js";
import { fingerprintOf, listUntilStable, realPathOrSelf, statOrUndefined } from "./disk-listing.js";
import type { OutputFolder } from "../output-folder.js";
import type { OpenShard, Source } from "../port.js";
import { type WalkFileSystem, walkFileSystem } from "./walk.js";

/** Opening more files together hardly speeds up reading. */
const coalescedFiles = 64;
const digestBytes = 1024 * 1024;

/** Options of a source of shards on a disk. */
export interface DiskSourceOptions {
  /** The spec's folder, to which relative URIs refer. */
  readonly folder: string;
  /** The job's own output folder, when it writes files. */
  readonly output: OutputFolder | undefined;
  readonly fileSystem?: WalkFileSystem;
}

/** Opens a source of shards on a local or mounted disk. URIs are as in the spec: absolute, or relative to `folder`. */
export function diskSource({ folder, output, fileSystem = walkFileSystem }: DiskSourceOptions): Source {
  return {
    readAhead: {
      files: 1,
      coalescedFiles,
      windowBytes: Number.POSITIVE_INFINITY,
      bytes: Number.POSITIVE_INFINITY,
    },
    list: (patterns) => listUntilStable(patterns, { folder, output, fileSystem }),
    listNames: async (path) => {
      try {
        return await readdir(path);
      } catch (error) {
        if (isNotFound(error) || isDenied(error)) {
          return [];
        }
        throw diskError(`listing ${path}`, error);
      }
    },
    async exists(uri) {
      return (await statOrUndefined(resolve(folder, uri))) !== undefined;
    },
    async open(shard) {
      // Resolved now: reading stays with the file that the link leads to now.
      const opened = new DiskShard(shard, await realPathOrSelf(resolve(folder, shard.uri)));
      await opened.check();
      return opened;
    },
    async [Symbol.asyncDispose]() {
      // The source holds nothing open.
    },
  };
}

/** A class, because there are many shards: closures of each would take most of their memory. */
class DiskShard implements OpenShard {
  readonly path: string;
  private readonly shard: ListedShard;

  constructor(shard: ListedShard, path: string) {
    this.path = path;
    this.shard = shard;
  }

  get name(): string {
    return this.path;
  }

  async check(): Promise<void> {
    const { shard, path } = this;
    const now = await statOrUndefined(path);
    if (now === undefined) {
      throw new JobError("INPUT_CHANGED", `reading ${path}: it is gone`, {
        hint: `${restoreHint(shard)}; committed spans are kept`,
      });
    }
    const found = { uri: path, sizeBytes: Number(now.size), fingerprint: fingerprintOf(now) };
    const difference = pinDifference(shard, found);
    if (difference !== undefined) {
      const touch = [touchHint(shard, found, path)].filter((line) => line !== undefined);
      throw new JobError("INPUT_CHANGED", `reading ${path}: ${difference}`, {
        hint: [`${restoreHint(shard)}; committed spans are kept`, ...touch].join("\n    "),
      });
    }
  }

  async digest(signal: AbortSignal): Promise<string> {
    return await digestOf(this.path, signal);
  }

  async [Symbol.asyncDispose](): Promise<void> {
    // Nothing is held open.
  }
}

async function digestOf(path: string, signal: AbortSignal): Promise<string> {
  const hash = createHash("sha256");
  try {
    for await (const bytes of createReadStream(path, { highWaterMark: digestBytes })) {
      signal.throwIfAborted();
      hash.update(bytes as Uint8Array);
    }
  } catch (error) {
    const errno = errnoOf(error);
    throw errno === undefined ? error : diskError(`reading ${path}`, error);
  }
  return hash.digest("hex");
}
