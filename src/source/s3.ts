import picomatch from "picomatch";
import { JobError } from "../errors.js";
import type { ListedShard } from "../plan/compare.js";
import type { S3Reader } from "../s3/reader.js";
import { parseS3Uri, type S3Uri, s3UriText } from "../spec/s3-uri.js";
import { type OutputFolder, outputHint } from "./output-folder.js";
import type { Listing, Source } from "./port.js";
import { fingerprintOf, openSpooledShard } from "./s3-shard.js";
import type { Spool } from "../s3/spool.js";
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
      together: 1, // each has windows of its own
      windowBytes: Math.min(windowBytes, spool.maxBytes / 8),
      bytes: Math.min(spool.maxBytes / 2, aheadBytes),
    },
    async list(patterns): Promise<Listing> {
      await spool.ready();
      const shards = new Map<string, ListedShard>();
      const absent: string[] = [];
      for (const pattern of patterns) {
        refuseOutput(pattern, output);
        const found = await expand(reader, pattern);
        if (found === undefined) {
          absent.push(pattern);
        }
        for (const shard of found ?? []) {
          if (output !== undefined && shard.uri.startsWith(`${output.folder}/`)) {
            throw new JobError("SPEC_INVALID", `${shard.uri} lies in output.parquet.path`, { hint: outputHint });
          }
          shards.set(shard.uri, shard);
        }
      }
      const sorted = [...shards].toSorted(([one], [other]) => (one < other ? -1 : 1));
      return { shards: sorted.map(([, shard]) => shard), absent, folders: [spool.folder] };
    },
    exists: async (uri) => (await reader.look(parseS3Uri(uri))) !== undefined,
    open: (shard) => openSpooledShard(tools, shard),
    async [Symbol.asyncDispose]() {
      await reader[Symbol.asyncDispose]();
      await spool[Symbol.asyncDispose]();
    },
  };
}

/** As on a disk: `*` stops at a slash, names that begin with a dot are hidden. */
const globRules = { dot: false, nonegate: true } as const;

/** The objects that a pattern matches; undefined: it has no wildcards, and there is none. */
async function expand(reader: S3Reader, pattern: string): Promise<ListedShard[] | undefined> {
  const { bucket, key } = parseS3Uri(pattern);
  const { base, glob } = picomatch.scan(key);
  if (glob === "") {
    const found = await reader.look({ bucket, key });
    return found === undefined ? undefined : [shardOf({ bucket, key }, found)];
  }
  const prefix = literalStart(key);
  const inOneFolder = base === folderOf(key) && !glob.includes("/") && !glob.includes("**");
  const matches = picomatch(key, globRules);
  const found: ListedShard[] = [];
  for await (const { key: one, ...facts } of reader.list(bucket, prefix, { folder: inOneFolder })) {
    if (one === key) {
      return [shardOf({ bucket, key }, facts)]; // an object whose own name holds a wildcard character is that object
    }
    if (!one.endsWith("/") && matches(one)) {
      found.push(shardOf({ bucket, key: one }, facts));
    }
  }
  return found;
}

/** A pattern that will match what the run writes is refused before there is any. */
function refuseOutput(pattern: string, output: OutputFolder | undefined): void {
  if (output === undefined) {
    return;
  }
  const [from, to] = [parseS3Uri(pattern), parseS3Uri(`${output.folder}/${output.part}`)];
  if (from.bucket === to.bucket && picomatch.isMatch(to.key, from.key, globRules)) {
    throw new JobError("SPEC_INVALID", `${pattern} matches what is written to output.parquet.path: ${s3UriText(to)}`, {
      hint: outputHint,
    });
  }
}

function shardOf(object: S3Uri, { etag, sizeBytes }: { etag: string; sizeBytes: number }): ListedShard {
  return { uri: s3UriText(object), sizeBytes, fingerprint: fingerprintOf(etag) };
}

/** What every key that matches begins with. */
function literalStart(pattern: string): string {
  return pattern.slice(0, /[\\*?[{(]|[!+@]\(/.exec(pattern)?.index ?? pattern.length);
}

function folderOf(key: string): string {
  return key.slice(0, Math.max(0, key.lastIndexOf("/")));
}
