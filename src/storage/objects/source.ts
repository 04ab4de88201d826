import type { ObjectReader } from "./reader.js";
import { parseObjectUri } from "../../spec/object-uri.js";
import type { OutputFolder } from "../output-folder.js";
import type { Source } from "../port.js";
import { listPatterns, listNames } from "./listing.js";
import { createTailCache, openSpooledShard } from "./shard.js";
import type { Spool } from "../../util/spool.js";

/** Files that are opened ahead: each costs one or two requests before its first row arrives. */
const filesAhead = 24;
/** Smaller windows cost more requests; larger ones delay the first rows. */
const windowBytes = 32 * 1024 * 1024;
/**
 * Bytes that are fetched ahead: more than a fast network has in flight, and few enough that the pages of files which
 * were read are reused, still in the cache, for the next ones.
 */
const aheadBytes = 256 * 1024 * 1024;
/** Memory for cached footers. */
const tailBytes = 64 * 1024 * 1024;

/** What a source of shards in a store needs. */
export interface ObjectSourceOptions {
  readonly reader: ObjectReader;
  readonly spool: Spool;
  /** The job's own output, when it is in this store. */
  readonly output?: OutputFolder | undefined;
}

/** Opens a source of shards in a store of objects. Only the bytes that a decoder asks for are fetched. URIs are as `objectUriText` writes them. */
export function objectSource({ reader, spool, output }: ObjectSourceOptions): Source {
  const context = { reader, spool, tails: createTailCache(tailBytes) };
  return {
    readAhead: {
      files: filesAhead,
      coalescedFiles: 1, // each file has windows of its own
      windowBytes: Math.min(windowBytes, spool.maxBytes / 8),
      bytes: Math.min(spool.maxBytes / 2, aheadBytes),
    },
    async list(patterns) {
      await spool.prepare();
      return { ...(await listPatterns(reader, patterns, output)), folders: [spool.folder] };
    },
    listNames: async (folder) => await listNames(reader, folder),
    exists: async (uri) => (await reader.stat(parseObjectUri(uri))) !== undefined,
    open: (shard) => openSpooledShard(context, shard),
    async [Symbol.asyncDispose]() {
      await reader[Symbol.asyncDispose]();
      await spool[Symbol.asyncDispose]();
    },
  };
}
