import { createHash } from "node:crypto";
import { type FileHandle, open, unlink } from "node:fs/promises";
import type { ListedObject, ObjectRange } from "../stores/objects/protocol.js";
import { splitRange } from "../stores/objects/store.js";
import type { ListedShard } from "../run/plan/compare.js";
import { type LakeTable, lakeTables } from "../run/plan/lake-tables.js";
import { partitionsOf } from "../run/plan/partitions.js";
import { unwatched } from "../run/plan/plan.js";
import { JobError } from "../base/errors.js";
import { awaitedLater } from "../base/promises.js";
import { type Spool, withSpoolErrors } from "../base/spool.js";
import { writeAll } from "../base/write-all.js";
import {
  type Glob,
  compileGlob,
  folderGlob,
  hasWildcards,
  isFolderName,
  joinListings,
  literalPrefix,
  matchesFolderOnly,
  unreadableFolder,
  withoutFoldersOfFiles,
} from "./listing.js";
import {
  type Listing,
  type OpenShard,
  type OutputFolder,
  outputHint,
  type Source,
  type UnreadableMatch,
} from "./source.js";
import type { ObjectReader } from "./reader.js";
import { type ObjectUri, objectUriText, parseObjectUri } from "../job/jobfile/uri.js";

/** Files that are opened ahead: each costs one or two requests before its first row arrives. */
const filesAhead = 24;
/** Smaller windows cost more requests; larger ones delay the first rows. */
const windowBytes = 32 * 1024 * 1024;
/** More than a fast network has in flight; few enough that pages of read files are reused while still in the cache. */
const aheadBytes = 256 * 1024 * 1024;
const tailBytes = 64 * 1024 * 1024;

interface ObjectSourceOptions {
  readonly reader: ObjectReader;
  readonly spool: Spool;
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
    published: () => Promise.resolve(unwatched),
    listNames: async (folder) => await listNames(reader, folder),
    exists: async (uri) => (await reader.stat(parseObjectUri(uri))) !== undefined,
    open: (shard) => openSpooledShard(context, shard),
    async [Symbol.asyncDispose]() {
      await reader[Symbol.asyncDispose]();
      await spool[Symbol.asyncDispose]();
    },
  };
}

/** How many folders above a pattern are checked for a table's log; each costs one to three requests. */
const maxRootsAbove = 12;

async function listPatterns(
  reader: ObjectReader,
  patterns: readonly string[],
  output: OutputFolder | undefined,
): Promise<Listing> {
  const parts: Partial<Listing>[] = [];
  for (const pattern of patterns) {
    parts.push(await expandPattern(reader, pattern, output));
  }
  const listing = joinListings(parts);
  const shards = new Map(listing.shards.map((shard) => [shard.uri, shard])); // several patterns may match a shard
  const written = [...shards.keys()].find((uri) => output !== undefined && uri.startsWith(`${output.folder}/`));
  if (written !== undefined) {
    throw new JobError("SPEC_INVALID", `${written} is in output.parquet.path`, { hint: outputHint });
  }
  return {
    ...listing,
    shards: [...shards.values()],
    unreadable: withoutFoldersOfFiles(listing.unreadable, () => [...shards.keys()]),
  };
}

/** Of the store's first page; none when they may not be listed. */
async function listNames(reader: ObjectReader, folder: string): Promise<string[]> {
  const { bucket, key } = parseObjectUri(folder);
  const names: string[] = [];
  try {
    for await (const object of reader.list(bucket, `${key}/`, { folder: true, firstPage: true })) {
      if (object.key !== `${key}/`) {
        names.push(object.key.slice(key.length + 1));
      }
    }
  } catch (error) {
    if (!(error instanceof JobError && error.code === "PERMISSION")) {
      throw error;
    }
  }
  return names;
}

/** `missingFolders` is left out: a store has no folders. */
async function expandPattern(
  reader: ObjectReader,
  pattern: string,
  output: OutputFolder | undefined,
): Promise<Partial<Listing>> {
  const object = parseObjectUri(pattern);
  const { key } = object;
  if (hasWildcards(key)) {
    const start = literalPrefix(key);
    const inOneFolder = !key.slice(start.length).includes("/") && !key.includes("**");
    return await matchesOf(reader, pattern, compileGlob(key), start, output, inOneFolder);
  }
  const stat = key.endsWith("/") ? undefined : await reader.stat(object);
  if (stat !== undefined) {
    return { shards: [shardOf(object, stat)] };
  }
  const start = key.endsWith("/") ? key : `${key}/`;
  const matches = await matchesOf(reader, pattern, folderGlob(start), start, output);
  return matches.shards?.length === 0 && !isFolderName(key) ? { missingFiles: [pattern] } : matches;
}

/** All matching keys start with `start`. */
async function matchesOf(
  reader: ObjectReader,
  pattern: string,
  glob: Glob,
  start: string,
  output: OutputFolder | undefined,
  inOneFolder = false,
): Promise<Partial<Listing>> {
  const place = parseObjectUri(pattern);
  const uriOf = (key: string): string => objectUriText({ ...place, key });
  refuseOutput(pattern, place, glob, output);

  const matched: ListedObject[] = [];
  /** Keys of folders, without the slash at the end. */
  const folders = new Set<string>();
  /** Keys of objects with bytes that would match without the slash at their end. */
  const slashed: string[] = [];
  /** Keys of folders that seem to contain a lakehouse table's log. */
  const logged = new Set<string>();
  let folder = "";
  let table: LakeTable | undefined;
  for await (const object of reader.list(place.bucket, start, { folder: inOneFolder })) {
    const { key, sizeBytes } = object;
    if (key === place.key && hasWildcards(key)) {
      return { shards: [shardOf(place, object)] }; // the key itself contains a wildcard
    }
    const nameAt = key.lastIndexOf("/") + 1;
    if (key.slice(0, nameAt) !== folder) {
      folder = key.slice(0, nameAt); // objects come folder by folder
      for (let at = folder.indexOf("/"); at >= 0; at = folder.indexOf("/", at + 1)) {
        folders.add(folder.slice(0, at));
      }
      table = lakeTables.find(({ log }) => `/${folder}`.endsWith(`/${log}/`));
    }
    if (nameAt < key.length && glob.matches(key)) {
      matched.push(object);
    } else if (nameAt === key.length && sizeBytes > 0 && glob.matches(key.slice(0, -1))) {
      slashed.push(key); // the AWS console creates such objects, without bytes, to show a folder
    }
    if (table !== undefined && (nameAt === key.length || table.isLogFile(key.slice(nameAt)))) {
      logged.add(folder.slice(0, -table.log.length - 1).replace(/\/$/, ""));
    }
  }

  const holdsMatches = (root: string): boolean => matched.some(({ key }) => root === "" || key.startsWith(`${root}/`));
  // A whole folder was listed with all logs below it, so only the folders above it are still to be checked.
  const above = foldersAbove(start).slice(start === "" || start.endsWith("/") ? 1 : 0);
  const roots = matched.length === 0 ? [] : [...[...logged].filter(holdsMatches), ...above.slice(0, maxRootsAbove)];
  const unreadableOf = (match: UnreadableMatch) => ({ pattern, ...match });
  const unreadable = [
    ...slashed.map((key) => ({
      path: uriOf(key),
      finding: "which has bytes under the name of a folder",
      hint: "copy it to a name without a slash at its end, or remove it",
    })),
    ...[...folders].filter((key) => matchesFolderOnly(glob, key)).map((key) => unreadableFolder(uriOf(key))),
  ];
  return {
    shards: matched.map((object) => shardOf({ ...place, key: object.key }, object)),
    unmatched: matched.length === 0 ? [pattern] : [],
    unreadable: unreadable.map(unreadableOf),
    tableRoots: roots.map((root) => ({ pattern, folder: uriOf(root) })),
  };
}

/** The last is the bucket, as "". */
function foldersAbove(start: string): string[] {
  const slash = start.lastIndexOf("/");
  return slash < 0 ? [""] : [start.slice(0, slash), ...foldersAbove(start.slice(0, slash))];
}

function refuseOutput(pattern: string, from: ObjectUri, glob: Glob, output: OutputFolder | undefined): void {
  const to = output && parseObjectUri(`${output.folder}/${output.part}`);
  if (to !== undefined && from.scheme === to.scheme && from.bucket === to.bucket && glob.matches(to.key)) {
    const message = `${pattern} matches what is written to output.parquet.path: ${objectUriText(to)}`;
    throw new JobError("SPEC_INVALID", message, { hint: outputHint });
  }
}

function shardOf(object: ObjectUri, { etag, sizeBytes }: { etag: string; sizeBytes: number }): ListedShard {
  return { uri: objectUriText(object), sizeBytes, fingerprint: fingerprintOf(etag) };
}

interface ShardContext {
  readonly reader: ObjectReader;
  readonly spool: Spool;
  readonly tails: TailCache;
}

const fingerprintStart = "etag:";

function fingerprintOf(etag: string): string {
  return `${fingerprintStart}${etag}`;
}

/** Ranges that are in memory at once while an object is digested. */
const digestConcurrency = 4;

/** The file is sparse, of the object's size. Bytes are fetched to their offsets in the object. */
async function openSpooledShard(context: ShardContext, shard: ListedShard): Promise<OpenShard> {
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
    partitions: partitionsOf(shard.uri),
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

type TailCache = ReturnType<typeof createTailCache>;

const keyOf = ({ uri, fingerprint }: ListedShard): string => `${uri}\n${fingerprint}`;

/** Caches the ends of objects, where footers are: at most `limitBytes`; the least recently used leave first. */
function createTailCache(limitBytes: number) {
  const tails = new Map<string, Tail>();
  let heldBytes = 0;
  const remove = (key: string): Tail | undefined => {
    const tail = tails.get(key);
    tails.delete(key);
    heldBytes -= tail?.bytes.length ?? 0;
    return tail;
  };
  const put = (key: string, tail: Tail): void => {
    tails.set(key, tail);
    heldBytes += tail.bytes.length;
  };
  return {
    get(shard: ListedShard) {
      const tail = remove(keyOf(shard));
      if (tail !== undefined) {
        put(keyOf(shard), tail);
      }
      return tail;
    },
    /** Adds bytes that reach to the end of the object, or to the cached tail; others are ignored. */
    add(shard: ListedShard, { start, bytes }: Tail) {
      const before = remove(keyOf(shard));
      const due = before?.start ?? shard.sizeBytes;
      const joins = start < due && start + bytes.length >= due;
      const whole = before === undefined ? bytes : Buffer.concat([bytes.subarray(0, due - start), before.bytes]);
      const tail = joins ? { start, bytes: whole } : before;
      if (tail !== undefined && tail.bytes.length <= limitBytes / 4) {
        put(keyOf(shard), tail);
      }
      for (const key of tails.keys()) {
        if (heldBytes <= limitBytes) {
          return;
        }
        remove(key);
      }
    },
  };
}

/** The share of unneeded bytes between ranges that may be fetched to save requests. */
const wasteShare = 0.05;
/** Gaps up to this size are always fetched: another request costs more. */
const wasteBytes = 64 * 1024;

/** Sorts ranges, merges those that overlap or touch, and cuts them to [0, sizeBytes). @public so that tests plan ranges */
export function normalizeRanges(ranges: readonly ObjectRange[], sizeBytes: number): ObjectRange[] {
  const normal: { start: number; end: number }[] = [];
  for (const { start, end } of ranges.toSorted((one, other) => one.start - other.start)) {
    const from = Math.max(0, start);
    const to = Math.min(end, sizeBytes);
    const last = normal.at(-1);
    if (last !== undefined && from <= last.end) {
      last.end = Math.max(last.end, to);
    } else if (from < to) {
      normal.push({ start: from, end: to });
    }
  }
  return normal;
}

/** The bytes of `ranges` that are not in `others`; both are normalized. @public so that tests plan ranges */
export function subtractRanges(ranges: readonly ObjectRange[], others: readonly ObjectRange[]): ObjectRange[] {
  return ranges.flatMap((range) => {
    const rest: ObjectRange[] = [];
    let { start } = range;
    for (const other of others) {
      if (other.end > start && other.start < range.end) {
        if (other.start > start) {
          rest.push({ start, end: other.start });
        }
        start = other.end;
      }
    }
    return start < range.end ? [...rest, { start, end: range.end }] : rest;
  });
}

/**
 * Plans the requests that fetch normalized ranges. Near ranges share a request, smallest gaps first, while the gaps stay
 * a small share of all bytes; large ranges are split.
 * @public so that tests plan ranges
 */
export function planRequests(ranges: readonly ObjectRange[]): ObjectRange[] {
  const needed = ranges.reduce((sum, { start, end }) => sum + end - start, 0);
  let allowed = Math.max(wasteBytes, needed * wasteShare);
  const gaps = ranges
    .slice(1)
    .map(({ start }, index) => ({ index: index + 1, bytes: start - (ranges[index]?.end ?? start) }))
    .toSorted((one, other) => one.bytes - other.bytes);
  const joined = new Set<number>();
  for (const { index, bytes } of gaps) {
    if (bytes > allowed) {
      break;
    }
    allowed -= bytes;
    joined.add(index);
  }
  const merged: { start: number; end: number }[] = [];
  for (const [index, { start, end }] of ranges.entries()) {
    const last = merged.at(-1);
    if (last !== undefined && joined.has(index)) {
      last.end = end;
    } else {
      merged.push({ start, end });
    }
  }
  return merged.flatMap(splitRange);
}
