import { createHash } from "node:crypto";
import { type FileHandle, open, unlink } from "node:fs/promises";
import { JobError } from "../../util/errors.js";
import type { ListedShard } from "../../plan/compare.js";
import type { ObjectReader } from "./reader.js";
import { type ObjectUri, parseObjectUri } from "../../spec/object-uri.js";
import type { OpenShard } from "../port.js";
import type { ObjectRange } from "../../objects/protocol.js";
import { normalizeRanges, planRequests, subtractRanges } from "./ranges.js";
import { type Spool, withSpoolErrors } from "../../util/spool.js";
import { awaitedLater } from "../../util/promises.js";
import { writeAll } from "../../util/write-all.js";

/** What all shards of a source share. */
interface ShardContext {
  readonly reader: ObjectReader;
  readonly spool: Spool;
  readonly tails: TailCache;
}

const fingerprintStart = "etag:";

/** An object's fingerprint in the plan: its ETag. */
export function fingerprintOf(etag: string): string {
  return `${fingerprintStart}${etag}`;
}

/** Ranges that are in memory at once while an object is digested. */
const digestConcurrency = 4;

/** Opens a shard as a sparse file of the object's size. Bytes are fetched to their offsets in the object. */
export async function openSpooledShard(context: ShardContext, shard: ListedShard): Promise<OpenShard> {
  const { reader, spool } = context;
  await spool.prepare();
  const path = spool.newPath();
  const file = await withSpoolErrors(spool, () => open(path, "wx+", 0o600));
  const stopped = new AbortController();
  const bytes = createSpooledBytes(context, { shard, file, signal: stopped.signal });
  await bytes.clear();
  return {
    path,
    name: shard.uri,
    remote: bytes,
    // Every request carries the planned ETag, so all bytes are of the planned object.
    check: () => Promise.resolve(),
    digest: (signal) => digestOf(reader, shard, signal),
    async [Symbol.asyncDispose]() {
      stopped.abort(new Error(`${shard.uri} is closed`));
      await bytes.settled();
      await file.close();
      await unlink(path);
    },
  };
}

interface Pinned {
  readonly object: ObjectUri;
  readonly etag: string;
}

function pinned({ uri, fingerprint }: ListedShard): Pinned {
  return { object: parseObjectUri(uri), etag: fingerprint.slice(fingerprintStart.length) };
}

interface SpooledBytes extends NonNullable<OpenShard["remote"]> {
  clear(): Promise<void>;
  settled(): Promise<void>;
}

interface SpoolFile {
  readonly shard: ListedShard;
  readonly file: FileHandle;
  readonly signal: AbortSignal;
}

function createSpooledBytes({ reader, spool, tails }: ShardContext, { shard, file, signal }: SpoolFile): SpooledBytes {
  const { uri, sizeBytes } = shard;
  /** Requested ranges, in no order; `arrival` settles when the bytes are in the file. */
  let requested: { readonly range: ObjectRange; readonly arrival: Promise<void> }[] = [];
  const clear = async (): Promise<void> => {
    const tail = tails.get(shard);
    requested = [];
    await withSpoolErrors(spool, async () => {
      await file.truncate(0); // frees the disk space
      await file.truncate(sizeBytes);
      if (tail !== undefined) {
        await writeAll(file, tail.bytes, tail.start);
        requested = [{ range: { start: tail.start, end: sizeBytes }, arrival: Promise.resolve() }];
      }
    });
  };
  const request = (range: ObjectRange): Promise<void> =>
    withSpoolErrors(spool, () =>
      reader.fetchIntoFile(`reading ${uri}`, { ...pinned(shard), ...range }, file.fd, signal),
    );
  const settled = async (): Promise<void> => {
    await Promise.allSettled(requested.map(({ arrival }) => arrival));
  };
  return {
    clear,
    settled,
    async forget() {
      await settled();
      await clear();
    },
    async fetch(ranges, { keep = false } = {}) {
      const wanted = normalizeRanges(ranges, sizeBytes);
      const requestedRanges = requested.map(({ range }) => range);
      const missing = subtractRanges(wanted, normalizeRanges(requestedRanges, sizeBytes));
      checkSize(spool, shard, [...requestedRanges, ...missing]);
      for (const range of planRequests(missing)) {
        const arrival = awaitedLater(request(range));
        requested.push({ range, arrival });
      }
      const overlaps = requested.filter(({ range }) =>
        wanted.some((one) => one.start < range.end && range.start < one.end),
      );
      await Promise.all(overlaps.map(({ arrival }) => arrival));
      await (keep ? cacheTail(tails, { shard, file, signal }, wanted) : undefined);
    },
  };
}

async function cacheTail(tails: TailCache, { shard, file }: SpoolFile, ranges: readonly ObjectRange[]): Promise<void> {
  for (const { start, end } of ranges.toReversed()) {
    const bytes = Buffer.alloc(end - start);
    await file.read(bytes, 0, bytes.length, start);
    tails.add(shard, { start, bytes });
  }
}

function checkSize({ maxBytes }: Spool, { uri }: ListedShard, ranges: readonly ObjectRange[]): void {
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

async function digestOf(reader: ObjectReader, shard: ListedShard, signal: AbortSignal): Promise<string> {
  const hash = createHash("sha256");
  const ranges = planRequests(normalizeRanges([{ start: 0, end: shard.sizeBytes }], shard.sizeBytes));
  const reading: Promise<Uint8Array>[] = [];
  for (let next = 0; next < ranges.length || reading.length > 0; ) {
    for (; reading.length < digestConcurrency && next < ranges.length; next += 1) {
      const range = ranges[next] ?? { start: 0, end: 0 };
      reading.push(awaitedLater(reader.readBytes(`reading ${shard.uri}`, { ...pinned(shard), ...range }, signal)));
    }
    hash.update((await reading.shift()) ?? Buffer.alloc(0));
  }
  return hash.digest("hex");
}

/** The last bytes of an object, from offset `start` to its end. */
interface Tail {
  readonly start: number;
  readonly bytes: Uint8Array;
}

/** Caches the ends of objects, where their footers are: each file of a shard needs them. */
interface TailCache {
  get(shard: ListedShard): Tail | undefined;
  /** Adds bytes that reach to the end of the object, or to the cached tail; others are ignored. */
  add(shard: ListedShard, part: Tail): void;
}

/** Makes a cache of at most `limitBytes`; the tails that were used least recently leave first. */
export function createTailCache(limitBytes: number): TailCache {
  /** Tails in the order of their last use. */
  const tails = new Map<string, Tail>();
  let keptBytes = 0;
  const remove = (key: string): Tail | undefined => {
    const tail = tails.get(key);
    tails.delete(key);
    keptBytes -= tail?.bytes.length ?? 0;
    return tail;
  };
  const put = (key: string, tail: Tail): void => {
    tails.set(key, tail);
    keptBytes += tail.bytes.length;
  };
  return {
    get(shard) {
      const tail = remove(keyOf(shard));
      if (tail !== undefined) {
        put(keyOf(shard), tail);
      }
      return tail;
    },
    add(shard, { start, bytes }) {
      const before = remove(keyOf(shard));
      const end = start + bytes.length;
      const joins = end >= (before?.start ?? shard.sizeBytes) && start < (before?.start ?? shard.sizeBytes);
      const tail = joins ? joinTails({ start, bytes }, before) : before;
      if (tail !== undefined && tail.bytes.length <= limitBytes / 4) {
        put(keyOf(shard), tail);
      }
      for (const key of tails.keys()) {
        if (keptBytes <= limitBytes) {
          return;
        }
        remove(key);
      }
    },
  };
}

function keyOf({ uri, fingerprint }: ListedShard): string {
  return `${uri}\n${fingerprint}`;
}

function joinTails({ start, bytes }: Tail, after: Tail | undefined): Tail {
  if (after === undefined) {
    return { start, bytes };
  }
  return { start, bytes: Buffer.concat([bytes.subarray(0, after.start - start), after.bytes]) };
}
