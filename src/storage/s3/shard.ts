import { createHash } from "node:crypto";
import { type FileHandle, open, unlink } from "node:fs/promises";
import { JobError } from "../../util/errors.js";
import type { ListedShard } from "../../plan/compare.js";
import type { S3Reader } from "./reader.js";
import { parseS3Uri, type S3Uri } from "../../spec/s3-uri.js";
import type { OpenShard } from "../port.js";
import { type ByteRange, normalRanges, requestsFor, withoutRanges } from "./ranges.js";
import { type Spool, spooling } from "../../s3/spool.js";
import type { Tails } from "./tails.js";
import { awaitedLater } from "../../util/promises.js";

export interface ShardTools {
  readonly reader: S3Reader;
  readonly spool: Spool;
  readonly tails: Tails;
}

const fingerprintStart = "etag:";

export function fingerprintOf(etag: string): string {
  return `${fingerprintStart}${etag}`;
}

/** Pieces of an object that are in memory at once while it is digested. */
const digestAhead = 4;

/** A file with holes, of the object's size, into which bytes are fetched to where they are in the object. */
export async function openSpooledShard(tools: ShardTools, shard: ListedShard): Promise<OpenShard> {
  const { reader, spool } = tools;
  await spool.ready();
  const path = spool.newPath();
  const file = await spooling(spool, () => open(path, "wx+", 0o600));
  const stopped = new AbortController();
  const fetched = createFetched(tools, { shard, file, signal: stopped.signal });
  await fetched.begin();
  return {
    path,
    name: shard.uri,
    remote: fetched,
    // Every request names the ETag that was planned: what came is what was pinned.
    check: () => Promise.resolve(),
    digest: (signal) => digestOf(reader, shard, signal),
    async [Symbol.asyncDispose]() {
      stopped.abort(new Error(`${shard.uri} is closed`));
      await fetched.settled();
      await file.close();
      await unlink(path);
    },
  };
}

interface Pinned {
  readonly object: S3Uri;
  readonly etag: string;
}

function pinned({ uri, fingerprint }: ListedShard): Pinned {
  return { object: parseS3Uri(uri), etag: fingerprint.slice(fingerprintStart.length) };
}

interface Fetched extends NonNullable<OpenShard["remote"]> {
  begin(): Promise<void>;
  settled(): Promise<void>;
}

interface SpoolFile {
  readonly shard: ListedShard;
  readonly file: FileHandle;
  readonly signal: AbortSignal;
}

function createFetched({ reader, spool, tails }: ShardTools, { shard, file, signal }: SpoolFile): Fetched {
  const { uri, sizeBytes } = shard;
  /** Asked for, and when it is there; in no order. */
  let asked: { readonly range: ByteRange; readonly there: Promise<void> }[] = [];
  const begin = async (): Promise<void> => {
    const tail = tails.get(shard);
    asked = [];
    await spooling(spool, async () => {
      await file.truncate(0); // which frees what was there
      await file.truncate(sizeBytes);
      if (tail !== undefined) {
        await file.write(tail.bytes, 0, tail.bytes.length, tail.start);
        asked = [{ range: { start: tail.start, end: sizeBytes }, there: Promise.resolve() }];
      }
    });
  };
  const request = (range: ByteRange): Promise<void> =>
    spooling(spool, () => reader.fetch(`reading ${uri}`, { ...pinned(shard), ...range }, file.fd, signal));
  const settled = async (): Promise<void> => {
    await Promise.allSettled(asked.map(({ there }) => there));
  };
  return {
    begin,
    settled,
    async forget() {
      await settled();
      await begin();
    },
    async fetch(ranges, { keep = false } = {}) {
      const wanted = normalRanges(ranges, sizeBytes);
      const known = asked.map(({ range }) => range);
      const missing = withoutRanges(wanted, normalRanges(known, sizeBytes));
      refuseLarge(spool, shard, [...known, ...missing]);
      for (const range of requestsFor(missing)) {
        const there = awaitedLater(request(range));
        asked.push({ range, there });
      }
      const overlaps = asked.filter(({ range }) =>
        wanted.some((one) => one.start < range.end && range.start < one.end),
      );
      await Promise.all(overlaps.map(({ there }) => there));
      await (keep ? keepTail(tails, { shard, file, signal }, wanted) : undefined);
    },
  };
}

async function keepTail(tails: Tails, { shard, file }: SpoolFile, ranges: readonly ByteRange[]): Promise<void> {
  for (const { start, end } of ranges.toReversed()) {
    const bytes = Buffer.alloc(end - start);
    await file.read(bytes, 0, bytes.length, start);
    tails.add(shard, { start, bytes });
  }
}

function refuseLarge({ maxBytes }: Spool, { uri }: ListedShard, ranges: readonly ByteRange[]): void {
  const bytes = ranges.reduce((sum, { start, end }) => sum + end - start, 0);
  if (bytes > maxBytes) {
    throw new JobError(
      "USAGE",
      `reading ${uri}: ${mib(bytes)} of it are needed at once, and ${mib(maxBytes)} may be kept on this machine`,
      { hint: "raise input.spool.max_mb, or write the shard with smaller row groups" },
    );
  }
}

function mib(bytes: number): string {
  return `${Math.ceil(bytes / 1024 / 1024)} MiB`;
}

async function digestOf(reader: S3Reader, shard: ListedShard, signal: AbortSignal): Promise<string> {
  const hash = createHash("sha256");
  const due = requestsFor(normalRanges([{ start: 0, end: shard.sizeBytes }], shard.sizeBytes));
  const reading: Promise<Uint8Array>[] = [];
  for (let next = 0; next < due.length || reading.length > 0; ) {
    for (; reading.length < digestAhead && next < due.length; next += 1) {
      const range = due[next] ?? { start: 0, end: 0 };
      reading.push(awaitedLater(reader.bytes(`reading ${shard.uri}`, { ...pinned(shard), ...range }, signal)));
    }
    hash.update((await reading.shift()) ?? Buffer.alloc(0));
  }
  return hash.digest("hex");
}
