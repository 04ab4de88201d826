import type { S3Reader } from "./reader.js";
import { parseS3Uri } from "../../spec/s3-uri.js";
import type { OutputFolder } from "../output-folder.js";
import type { Source } from "../port.js";
import { listPatterns, namesIn } from "./listing.js";
import { openSpooledShard } from "./shard.js";
import type { Spool } from "../../s3/spool.js";
import { createTails } from "./tails.js";

/** Files that are opened ahead: each costs a request or two before its first row comes. */
const filesAhead = 24;
/** Less is soon read; more keeps the first rows waiting. */
const windowBytes = 32 * 1024 * 1024;
/**
 * Bytes that are fetched before they are read: more than a fast line has under way, and few enough that files which
 * were read leave their memory to those that come next, still warm.
 */
const aheadBytes = 256 * 1024 * 1024;
/** Footers that are kept in memory. */
const tailBytes = 64 * 1024 * 1024;

export interface S3SourceOptions {
  readonly reader: S3Reader;
  readonly spool: Spool;
  /** The job's own output, where it is in this store. */
  readonly output?: OutputFolder | undefined;
}

/** Shards in S3, of which only those bytes are fetched that are needed. URIs are as the spec wrote them. */
export function s3Source({ reader, spool, output }: S3SourceOptions): Source {
  const tools = { reader, spool, tails: createTails(tailBytes) };
  return {
    ahead: {
      files: filesAhead,
      coalesced: 1, // each has windows of its own
      windowBytes: Math.min(windowBytes, spool.maxBytes / 8),
      bytes: Math.min(spool.maxBytes / 2, aheadBytes),
    },
    async list(patterns) {
      await spool.ready();
      return { ...(await listPatterns(reader, patterns, output)), folders: [spool.folder] };
    },
    names: async (folder) => await namesIn(reader, folder),
    exists: async (uri) => (await reader.look(parseS3Uri(uri))) !== undefined,
    open: (shard) => openSpooledShard(tools, shard),
    async [Symbol.asyncDispose]() {
      await reader[Symbol.asyncDispose]();
      await spool[Symbol.asyncDispose]();
    },
  };
}
