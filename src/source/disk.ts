import { type BigIntStats, constants } from "node:fs";
import { access, stat } from "node:fs/promises";
import { isAbsolute, relative, resolve, sep } from "node:path";
import { glob, isDynamicPattern } from "tinyglobby";
import { errnoOf, JobError } from "../errors.js";
import type { ListedShard } from "../plan/compare.js";
import type { Listing, OpenShard, Source } from "./port.js";

const statConcurrency = 32;

/** Shards on a local or mounted disk. URIs are as the spec wrote them: absolute, or relative to `folder`. */
export function diskSource({ folder }: { folder: string }): Source {
  return {
    async list(patterns) {
      const uris = new Set<string>();
      for (const pattern of patterns) {
        for (const uri of await expand(pattern, folder)) {
          uris.add(uri);
        }
      }
      return statAll([...uris].toSorted(), folder);
    },
    folders: (patterns) => [...new Set(patterns.map((pattern) => fixedFolder(resolve(folder, pattern))))],
    async exists(uri) {
      return (await statOrUndefined(resolve(folder, uri))) !== undefined;
    },
    async open(shard) {
      const opened = openShard(shard, resolve(folder, shard.uri));
      await opened.check();
      return opened;
    },
  };
}

async function expand(pattern: string, folder: string): Promise<string[]> {
  const absolute = resolve(folder, pattern);
  // A file whose own name holds a wildcard character is that file.
  if (!isDynamicPattern(pattern) || (await statOrUndefined(absolute))?.isFile() === true) {
    return [normalize(pattern, absolute, folder)];
  }
  // Only the pattern is a pattern: the folder above it may hold brackets in its name.
  const found = await glob(pattern, {
    cwd: folder,
    absolute: true,
    onlyFiles: true,
    dot: false,
    expandDirectories: false,
  });
  return found.map((path) => normalize(pattern, resolve(path), folder));
}

/** The folders of a path up to its first wildcard. */
function fixedFolder(path: string): string {
  const parts = path.split(sep).slice(0, -1);
  const wild = parts.findIndex((part) => isDynamicPattern(part));
  return (wild < 0 ? parts : parts.slice(0, wild)).join(sep) || sep;
}

/** One spelling for a file however it was matched, absolute where the spec's was. */
function normalize(pattern: string, absolute: string, folder: string): string {
  return isAbsolute(pattern) ? absolute : relative(folder, absolute).split(sep).join("/");
}

async function statAll(uris: readonly string[], folder: string): Promise<Listing> {
  const shards: ListedShard[] = [];
  const absent: string[] = [];
  for (let start = 0; start < uris.length; start += statConcurrency) {
    const group = uris.slice(start, start + statConcurrency);
    for (const [index, shard] of (
      await Promise.all(group.map((uri) => statShard(uri, resolve(folder, uri))))
    ).entries()) {
      if (shard === undefined) {
        absent.push(group[index] ?? "");
      } else {
        shards.push(shard);
      }
    }
  }
  return { shards, absent };
}

async function statShard(uri: string, path: string): Promise<ListedShard | undefined> {
  const found = await statOrUndefined(path);
  if (found === undefined) {
    return undefined;
  }
  if (!found.isFile()) {
    throw new JobError("FILE_MISSING", `listing input.path: ${path} is a folder or no plain file`, {
      hint: "for the files of a folder write folder/*.parquet",
    });
  }
  await assertReadable(path);
  return { uri, sizeBytes: Number(found.size), fingerprint: fingerprintOf(found) };
}

async function assertReadable(path: string): Promise<void> {
  try {
    await access(path, constants.R_OK);
  } catch (cause) {
    throw new JobError("PERMISSION", `listing input.path: ${path} is not readable by this user`, {
      hint: "grant read permission",
      cause,
    });
  }
}

function fingerprintOf(stats: BigIntStats): string {
  return `mtime:${stats.mtimeNs}`;
}

async function statOrUndefined(path: string): Promise<BigIntStats | undefined> {
  try {
    return await stat(path, { bigint: true });
  } catch (error) {
    const errno = errnoOf(error);
    if (errno === "ENOENT" || errno === "ENOTDIR") {
      return undefined;
    }
    if (errno === "EACCES" || errno === "EPERM") {
      throw new JobError("PERMISSION", `looking at ${path}: permission denied`, {
        hint: "grant read permission",
        cause: error,
      });
    }
    throw new JobError("DISK", `looking at ${path}: ${errno ?? String(error)}`, { cause: error });
  }
}

function openShard(shard: ListedShard, path: string): OpenShard {
  return {
    path,
    async check() {
      const now = await statOrUndefined(path);
      const difference =
        now === undefined
          ? "it is gone"
          : Number(now.size) !== shard.sizeBytes
            ? `it has ${now.size} bytes, planned ${shard.sizeBytes}`
            : fingerprintOf(now) !== shard.fingerprint
              ? `it was written to after it was planned (${fingerprintOf(now)}, planned ${shard.fingerprint})`
              : undefined;
      if (difference !== undefined) {
        throw new JobError("INPUT_CHANGED", `reading ${path}: ${difference}`, {
          hint: "put the planned file back; committed spans are kept",
        });
      }
    },
    async [Symbol.asyncDispose]() {
      // Nothing was copied.
    },
  };
}
