import { createHash } from "node:crypto";
import { open as openFile, readFile, rm } from "node:fs/promises";
import type { OutputRows } from "../../columns/types.js";
import type { ListedShard } from "../../run/plan/compare.js";
import type { Changes, InputState, PinnedTable } from "../../run/plan/plan.js";
import { fieldTexts, type TopicFields, topicUri } from "../../job/jobfile/kafka-spec.js";
import { JobError, messageOf } from "../../base/errors.js";
import { type Spool, withSpoolErrors } from "../../base/spool.js";
import { writeAll } from "../../base/write-all.js";
import type { Listing, OpenShard, Source, WantedInput } from "../source.js";
import type { Cluster } from "./cluster.js";
import { type Unpack, visitRecords } from "./records.js";
import { UnknownSchema, type ValueReader } from "./registry.js";
import { recordRows, topicColumns } from "./rows.js";

/*
 * A topic as a source. A shard is a range of offsets of a partition; row i of it is offset `from + i`. An offset that has no
 * committed record (it was compacted, it is a marker of a transaction, or one was aborted) is a row that is left out. A
 * shard's records are fetched into a file of Arrow before they are read.
 */

export { openCluster } from "./cluster.js";
export type { KafkaLogin, KafkaTls } from "./connection.js";
export type { Codec, Unpack } from "./records.js";
export { openRegistry, type ValueReader } from "./registry.js";
export { topicColumns } from "./rows.js";

/** Writes rows as a file of Arrow. */
export interface ArrowWriter {
  begin(
    columns: readonly { readonly name: string; readonly type: OutputRows["columns"][number]["type"] }[],
  ): Promise<void>;
  write(rows: OutputRows): Promise<void>;
  end(): Promise<void>;
}

export interface TopicOptions {
  readonly topic: string;
  readonly fields: TopicFields;
  /** Reads values whose schemas are in a registry; undefined: they are JSON. */
  readonly values: ValueReader | undefined;
  readonly cluster: Cluster;
  /** The consumer group that published offsets are committed to; undefined: none is. */
  readonly group: string | undefined;
  readonly spool: Spool;
  readonly unpack: Unpack;
  readonly writeArrow: (write: (chunks: readonly Uint8Array[]) => Promise<void>) => ArrowWriter;
}

interface PinnedTopic {
  readonly id: string;
  /** Bytes of a record, as some of the first are. */
  readonly bytes: number;
  readonly partitions: Readonly<Record<string, PinnedPartition>>;
}

interface PinnedPartition {
  readonly from: number;
  readonly to: number;
  /** That of the leader: after another one, `to` may be an offset of other records. */
  readonly epoch: number;
}

/** Where a run ends, and the next one begins. */
interface Position {
  readonly id: string;
  readonly offsets: Readonly<Record<string, readonly [offset: number, epoch: number]>>;
}

/** A shard should have about as many bytes, and as many rows at least and at most. */
const shardBytes = 32 * 1024 * 1024;
const shardRows = { least: 256, most: 128 * 1024 } as const;
/** Shards of a run: a broker that tells an offset that no topic has must not fill the memory with them. */
const mostShards = 1_000_000;
const fetchBytes = 4 * 1024 * 1024;
const sampleBytes = 256 * 1024;

/** A source of the records of a topic. @param files the source of other files, such as a marker */
export function topicSource(files: Source, options: TopicOptions): Source {
  const { topic, cluster, spool } = options;
  const uri = topicUri(topic);
  const read = { newestMs: -1 };
  return {
    readAhead: { files: 2, coalescedFiles: 1, windowBytes: Number.POSITIVE_INFINITY, bytes: 4 * shardBytes },
    listNames: (folder) => files.listNames(folder),
    exists: (marker) => files.exists(marker),
    async list(patterns, wanted = {}) {
      if (patterns.length !== 1 || patterns[0] !== uri) {
        return await files.list(patterns);
      }
      return listingOf(options, await pin(options, wanted), wanted);
    },
    async open(shard) {
      const place = placeOf(shard.uri, uri);
      return place === undefined ? await files.open(shard) : openRecords(options, shard, place, read);
    },
    published: ({ version }) => stateOf(options, JSON.parse(version) as PinnedTopic, read.newestMs),
    async [Symbol.asyncDispose]() {
      cluster[Symbol.dispose]();
      await spool[Symbol.asyncDispose]();
      await files[Symbol.asyncDispose]();
    },
  };
}

async function pin(options: TopicOptions, { table, changes }: WantedInput): Promise<PinnedTopic> {
  const { cluster, topic } = options;
  const facts = await cluster.topic();
  if (table !== undefined) {
    const planned = JSON.parse(table.version) as PinnedTopic;
    requireSame(topic, { planned: planned.id, now: facts.id });
    for (const [partition, { to, epoch }] of Object.entries(planned.partitions)) {
      await requireUncut(options, Number(partition), { to, epoch });
    }
    return planned;
  }
  const [earliest, stable] = await Promise.all([cluster.offsets("earliest", facts), cluster.offsets("stable", facts)]);
  const [start, end] = [positionIn(changes?.from), positionIn(changes?.to)];
  const readsOn = changes?.onRewrite === "new_files";
  const isNew = start !== undefined && start.id !== facts.id;
  if ((isNew && !readsOn) || (end !== undefined && end.id !== facts.id)) {
    throw rewritten(
      topic,
      `it was deleted and made anew: its id is ${facts.id}, not ${(isNew ? start : end)?.id}`,
      end,
    );
  }
  const ends = Object.entries((isNew ? undefined : start?.offsets) ?? {});
  // The broker that was asked may not know of the newest partitions yet, which the last run has read.
  const partitions: Record<string, PinnedPartition> = Object.fromEntries(
    ends.map(([partition, [offset, epoch]]) => [partition, { from: offset, to: offset, epoch }]),
  );
  for (const partition of end === undefined ? earliest.keys() : Object.keys(end.offsets).map(Number)) {
    const { offset: first } = earliest.get(partition) ?? { offset: 0 };
    const now = stable.get(partition) ?? { offset: first, epoch: -1 };
    const isLater = start !== undefined && !isNew; // its first offset was 0 after the last run
    const { from, epoch } = partitions[partition] ?? { from: isLater ? 0 : first, epoch: now.epoch };
    if (from < first && !readsOn) {
      const lost = `the records of ${first - from} offsets, from ${from} on, were removed from partition ${partition} before a run has read them`;
      throw rewritten(topic, lost);
    }
    const cut = await cutOf(cluster, partition, { to: from, epoch });
    if (cut !== undefined && !readsOn) {
      throw rewritten(topic, cut.found);
    }
    const begin = Math.max(cut?.end ?? from, first);
    const [to, endEpoch] = end?.offsets[partition] ?? [Math.max(begin, now.offset), Math.max(epoch, now.epoch)];
    const endCut = end && (await cutOf(cluster, partition, { to, epoch: endEpoch }));
    if (endCut !== undefined) {
      throw rewritten(topic, endCut.found, end); // no run could be planned up to there
    }
    partitions[partition] = { from: Math.min(begin, to), to, epoch: endEpoch };
  }
  if (end !== undefined && Object.values(partitions).every(({ from, to }) => from === to)) {
    throw rewritten(topic, "all records that this run was to read were removed before it has read them", end);
  }
  return { id: facts.id, bytes: await recordBytes(options, partitions), partitions };
}

function positionIn(text: string | null | undefined): Position | undefined {
  return text === null || text === undefined ? undefined : (JSON.parse(text) as Position);
}

/** @param end where the run ends, whose range was stored: other records cannot take the place of these */
function rewritten(topic: string, found: string, end?: Position): JobError {
  const all = "read all of it, with --new-run (and, unless mode is upsert, --allow-duplicates)";
  return new JobError("INPUT_REWRITTEN", `reading topic ${topic}: ${found}`, {
    hint: end === undefined ? `on_rewrite: new_files reads what is there from now on; or ${all}` : all,
  });
}

function changed(topic: string, found: string): JobError {
  return new JobError("INPUT_CHANGED", `reading topic ${topic}: ${found}`, {
    hint: "committed spans are kept; give up this run with --new-run, which reads what is there now, and keep records for longer than a run takes",
  });
}

function requireSame(topic: string, { planned, now }: { readonly planned: string; readonly now: string }): void {
  if (planned !== now) {
    throw changed(topic, `it was deleted and made anew: its id is ${now}, planned ${planned}`);
  }
}

interface Cut {
  readonly end: number;
  readonly found: string;
}

/** A leader without its last records was elected, and others may have their offsets. */
async function cutOf(
  cluster: Cluster,
  partition: number,
  { to, epoch }: Omit<PinnedPartition, "from">,
): Promise<Cut | undefined> {
  const end = await cluster.endOfEpoch(partition, epoch);
  const found = `partition ${partition} has lost records: those of epoch ${epoch} end at offset ${end}, not ${to}`;
  return end >= 0 && end < to ? { end, found } : undefined;
}

async function requireUncut(
  { cluster, topic }: TopicOptions,
  partition: number,
  planned: Omit<PinnedPartition, "from">,
): Promise<void> {
  const cut = await cutOf(cluster, partition, planned);
  if (cut !== undefined) {
    throw changed(topic, cut.found);
  }
}

/** Of a sample; 0: there is none. */
async function recordBytes(
  { cluster }: TopicOptions,
  partitions: Readonly<Record<string, PinnedPartition>>,
): Promise<number> {
  for (const [partition, { from, to }] of Object.entries(partitions)) {
    if (from < to) {
      const { records = Buffer.alloc(0) } = await cluster.fetch(Number(partition), from, sampleBytes);
      const last = records.length < 27 ? from : Number(records.readBigInt64BE(0)) + records.readInt32BE(23);
      const length = records.length < 27 ? 0 : 12 + records.readInt32BE(8);
      return Math.ceil(length / Math.max(1, last + 1 - from));
    }
  }
  return 0;
}

function listingOf(
  { topic, fields, spool }: TopicOptions,
  pinned: PinnedTopic,
  { table, changes }: WantedInput,
): Listing {
  const { id, bytes, partitions } = pinned;
  const size = 2 ** Math.floor(Math.log2(shardBytes / Math.max(1, bytes)));
  const rows = Math.min(shardRows.most, Math.max(shardRows.least, size));
  const shards: ListedShard[] = [];
  for (const [partition, { from, to, epoch }] of Object.entries(partitions)) {
    if (shards.length + (to - from) / rows > mostShards) {
      const found = `partition ${partition} has offsets from ${from} up to ${to}: more than ${mostShards} shards of ${rows} rows`;
      throw new JobError("TOO_LARGE", `reading topic ${topic}: ${found}`, {
        hint: "see whether the brokers tell the last offset of that partition rightly",
      });
    }
    for (let start = from; start < to; ) {
      const end = Math.min(to, (Math.floor(start / rows) + 1) * rows);
      shards.push({
        uri: `${topicUri(topic)}/${partition}/${start}-${end}`,
        sizeBytes: (end - start) * bytes,
        fingerprint: `${id}:${epoch}`,
      });
      start = end;
    }
  }
  const offsets = Object.entries(partitions).map(([partition, { to, epoch }]) => [partition, [to, epoch]] as const);
  const position: Position = { id, offsets: Object.fromEntries(offsets) };
  const read: PinnedTable = table ?? {
    uri: topicUri(topic),
    at: "latest",
    format: "kafka",
    version: JSON.stringify(pinned),
    removedRows: 0,
    fields: fieldTexts(fields),
  };
  const range: Changes | undefined = changes && { ...changes, to: JSON.stringify(position) };
  return {
    table: read,
    changes: range,
    shards,
    missingFiles: [],
    folders: [spool.folder],
    unmatched: [],
    missingFolders: [],
    unreadable: [],
    tableRoots: [],
  };
}

interface ShardPlace {
  readonly partition: number;
  readonly from: number;
  readonly to: number;
}

function placeOf(uri: string, topic: string): ShardPlace | undefined {
  const [, partition, from, to] = (uri.startsWith(`${topic}/`) && /\/(\d+)\/(\d+)-(\d+)$/.exec(uri)) || [];
  return to === undefined ? undefined : { partition: Number(partition), from: Number(from), to: Number(to) };
}

/** How many rows a shard has, by its name. */
export function rowsOfShard(name: string): number {
  const { from, to } = placeOf(name, name.replace(/\/\d+\/[^/]*$/, "")) ?? { from: 0, to: 0 };
  return to - from;
}

/** @param read what is known of the records that were read */
function openRecords(
  options: TopicOptions,
  { uri, fingerprint }: ListedShard,
  place: ShardPlace,
  read: { newestMs: number },
): OpenShard {
  const { cluster, spool, topic } = options;
  const path = spool.newPath();
  let fetched: Promise<void> | undefined;
  return {
    path,
    name: uri,
    partitions: new Map(),
    remote: {
      fetch: () =>
        (fetched ??= withSpoolErrors(spool, async () => {
          await spool.prepare();
          const newestMs = await fetchShard(options, place, path);
          read.newestMs = Math.max(read.newestMs, newestMs); // read after the wait: shards are fetched at once
        })),
      async forget() {
        // It is read again as long as it is open.
      },
    },
    async check() {
      const [planned = "", epoch] = fingerprint.split(":");
      requireSame(topic, { planned, now: (await cluster.topic()).id });
      await requireUncut(options, place.partition, { to: place.to, epoch: Number(epoch) });
    },
    async digest() {
      await this.remote?.fetch([]);
      return createHash("sha256")
        .update(await readFile(path))
        .digest("hex");
    },
    async [Symbol.asyncDispose]() {
      await fetched?.catch(() => undefined);
      await rm(path, { force: true });
    },
  };
}

/** Ends at the last offset, of which there need be no record. Returns the time of the newest record, or -1. */
async function fetchShard(options: TopicOptions, { partition, from, to }: ShardPlace, path: string): Promise<number> {
  const { cluster, fields, values, topic, unpack, writeArrow } = options;
  await using file = await openFile(path, "wx", 0o600);
  let at = 0;
  const writer = writeArrow(async (chunks) => {
    const bytes = Buffer.concat(chunks); // a write costs more than a copy
    await writeAll(file, bytes, at);
    at += bytes.length;
  });
  await writer.begin(topicColumns(fields));
  const rows = recordRows(fields, { partition, from }, values);
  for (let next = from; next < to; ) {
    const fetched = await cluster.fetch(partition, next, fetchBytes);
    if (fetched.records === undefined || fetched.logStart > next) {
      const gone = Math.min(to, Math.max(next, fetched.logStart)) - next;
      throw changed(
        topic,
        gone > 0
          ? `the records of ${gone} offsets, from ${next} on, were removed from partition ${partition} after the run was planned`
          : `partition ${partition} has no offset ${next} any more`,
      );
    }
    const start = next;
    try {
      for (const reached of visitRecords(fetched, { from: start, to, unpack }, rows)) {
        next = Math.min(to, reached);
        rows.fillTo(next);
        for (const batch of rows.take(next === to)) {
          await writer.write(batch);
        }
      }
    } catch (error) {
      if (error instanceof UnknownSchema && values !== undefined) {
        await values.load(error.id);
        ({ next } = rows);
        continue;
      }
      throw error instanceof RangeError ? corrupt(topic, partition, messageOf(error), error) : error;
    }
    if (next === start) {
      throw corrupt(topic, partition, `no whole batch at offset ${next}`);
    }
  }
  await writer.end();
  return rows.newestMs;
}

/** Commits the offsets at which a published run has ended to the group, and counts those that came after them. */
async function stateOf(
  { cluster, topic, group }: TopicOptions,
  { partitions }: PinnedTopic,
  newestMs: number,
): Promise<InputState> {
  const ends = new Map(
    Object.entries(partitions).map(([partition, { to, epoch }]) => [Number(partition), { offset: to, epoch }]),
  );
  let warning: string | undefined;
  let rowsBehind: number | undefined;
  try {
    await (group === undefined ? undefined : cluster.commit(group, ends));
    const stable = await cluster.offsets("stable", await cluster.topic());
    const behind = Array.from(stable, ([partition, { offset }]) => offset - (ends.get(partition)?.offset ?? 0));
    rowsBehind = behind.reduce((sum, rows) => sum + Math.max(0, rows), 0);
  } catch (error) {
    warning = `telling how far topic ${topic} is read: ${messageOf(error)}`;
  }
  return { rowsBehind, newestMs: newestMs < 0 ? undefined : newestMs, warning };
}

function corrupt(topic: string, partition: number, found: string, cause?: unknown): JobError {
  return new JobError("SHARD_CORRUPT", `reading topic ${topic}: partition ${partition}: ${found}`, {
    hint: "the broker's copy is damaged, or of a kind that is not read",
    cause,
  });
}
