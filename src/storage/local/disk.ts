import { createHash } from "node:crypto";
import { createReadStream } from "node:fs";
import { readdir } from "node:fs/promises";
import { resolve } from "node:path";
import { errnoOf, JobError } from "../../util/errors.js";
import type { ListedShard } from "../../plan/compare.js";
import { pinDifference, restoreHint } from "../../plan/pins.js";
import { diskFault, isDenied, isNothingThere } from "./disk-fault.js";
import { fingerprintOf, listUntilSettled, realOr, statOrUndefined } from "./disk-listing.js";
import type { OutputFolder } from "../output-folder.js";
import type { OpenShard, Source } from "../port.js";
import { type WalkFileSystem, walkFileSystem } from "./walk.js";

/** More of them make reading hardly cheaper. */
const coalescedFiles = 64;
const digestBytes = 1024 * 1024;

export interface DiskSourceOptions {
  /** The spec's folder, which relative URIs start from. */
  readonly folder: string;
  /** The job's own output folder, where it has one: what lies there is no input. */
  readonly output: OutputFolder | undefined;
  readonly fileSystem?: WalkFileSystem;
}

/** Shards on a local or mounted disk. URIs are as the spec wrote them: absolute, or relative to `folder`. */
export function diskSource({ folder, output, fileSystem = walkFileSystem }: DiskSourceOptions): Source {
  return {
    ahead: {
      files: 1,
      coalesced: coalescedFiles,
      windowBytes: Number.POSITIVE_INFINITY,
      bytes: Number.POSITIVE_INFINITY,
    },
    list: (patterns) => listUntilSettled(patterns, { folder, output, fileSystem }),
    names: async (path) => {
      try {
        return await readdir(path);
      } catch (error) {
        if (isNothingThere(error) || isDenied(error)) {
          return [];
        }
        throw diskFault(`listing ${path}`, error);
      }
    },
    async exists(uri) {
      return (await statOrUndefined(resolve(folder, uri))) !== undefined;
    },
    async open(shard) {
      // The file that a link leads to now is the one that is read, whatever the link leads to later.
      const opened = new DiskShard(shard, await realOr(resolve(folder, shard.uri)));
      await opened.check();
      return opened;
    },
    async [Symbol.asyncDispose]() {
      // Nothing is held.
    },
  };
}

/** A class: shards are many, and functions of each one's own would be most of what it takes. */
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
        hint: "put back what was planned, with its modification time (cp -p), and run again; committed spans are kept",
      });
    }
    const found = { uri: path, sizeBytes: Number(now.size), fingerprint: fingerprintOf(now) };
    const difference = pinDifference(shard, found);
    if (difference !== undefined) {
      throw new JobError("INPUT_CHANGED", `reading ${path}: ${difference}`, {
        hint: `${restoreHint({ ...shard, uri: path }, found)}; committed spans are kept`,
      });
    }
  }

  async digest(signal: AbortSignal): Promise<string> {
    return await digestOf(this.path, signal);
  }

  async [Symbol.asyncDispose](): Promise<void> {
    // Nothing was copied.
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
    throw errno === undefined ? error : diskFault(`reading ${path}`, error);
  }
  return hash.digest("hex");
}
