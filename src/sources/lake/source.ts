import { readFile } from "node:fs/promises";
import type { TableColumn } from "../../columns/types.js";
import type { ListedShard } from "../../run/plan/compare.js";
import { type Changes, type PinnedTable, unwatched } from "../../run/plan/plan.js";
import { JobError, messageOf } from "../../base/errors.js";
import { CredentialsError, type GiveCredentials } from "../../stores/objects/protocol.js";
import { mapBounded } from "../../base/promises.js";
import { joinListings } from "../listing.js";
import type { Listing, OpenShard, Source, WantedInput } from "../source.js";
import { type DeltaVersion, readDelta, readDeltaChanges } from "./delta.js";
import {
  type IcebergVersion,
  type MetadataFile,
  nameInStore,
  newestMetadata,
  readIceberg,
  readIcebergChanges,
  storeName,
} from "./iceberg.js";
import type { CatalogTable, LoadTable } from "./rest-catalog.js";
import {
  damaged,
  type LakeChanges,
  type LakeFile,
  type LakeReader,
  type LakeSnapshot,
  mostMetadataBytes,
  rewritten,
  type WantedChanges,
} from "./snapshot.js";

export { storeName };

/** What a table is, as its folder shows. */
export type LakeFormat = PinnedTable["format"];

export interface LakeTools {
  /** What SQL makes of the rows of a Parquet file on this machine, one JSON text each. */
  readonly query: (
    path: string,
    sql: { readonly select: string; readonly where: string },
  ) => Promise<readonly string[]>;
  readonly unpack: LakeReader["unpack"];
}

/** Reads the metadata of a table through a source of files. */
export function lakeReader(source: Pick<Source, "list" | "open">, { query, unpack }: LakeTools): LakeReader {
  const known = new Map<string, ListedShard>();
  const find = async (name: string): Promise<ListedShard> => {
    const shard = known.get(name) ?? (await source.list([name])).shards[0];
    if (shard === undefined) {
      throw new JobError("FILE_MISSING", `reading ${name}: it is not there`, {
        hint: "the table's metadata names it: it was removed by hand, or by a clean-up while the table was read",
      });
    }
    return shard;
  };
  return {
    async list(folder) {
      const { shards } = await source.list([`${folder}/*`]);
      for (const shard of shards) {
        known.set(shard.uri, shard);
      }
      return shards.map(({ uri }) => uri.slice(folder.length + 1));
    },
    async read(name, range) {
      const shard = await find(name);
      if (shard.sizeBytes > mostMetadataBytes && range === undefined) {
        throw new JobError(
          "TOO_LARGE",
          `reading ${name}: it has ${shard.sizeBytes} bytes, more than a table's metadata should`,
        );
      }
      await using open = await source.open(shard);
      const { start, end } = range ?? { start: 0, end: shard.sizeBytes };
      await open.remote?.fetch([{ start, end }]);
      return (await orChanged(open, () => readFile(open.path))).subarray(start, end);
    },
    async parquet(name, sql) {
      const shard = await find(name);
      await using open = await source.open(shard);
      await open.remote?.fetch([{ start: 0, end: shard.sizeBytes }]);
      return await orChanged(open, () => query(open.path, sql));
    },
    unpack,
  };
}

/** A file that a clean-up removes after it was opened is no damage. */
async function orChanged<T>(open: OpenShard, work: () => Promise<T>): Promise<T> {
  try {
    return await work();
  } catch (error) {
    await open.check();
    throw error;
  }
}

async function formatOf(source: Pick<Source, "listNames">, table: string): Promise<LakeFormat> {
  const [delta, iceberg] = await Promise.all([
    source.listNames(`${table}/_delta_log`),
    source.listNames(`${table}/metadata`),
  ]);
  if (delta.length === 0 && iceberg.length === 0) {
    throw new JobError("FILE_MISSING", `reading table ${table}: it has neither _delta_log nor metadata`, {
      hint: "name the folder of a Delta or Iceberg table",
    });
  }
  return delta.length > 0 ? "delta" : "iceberg";
}

export interface LakeVersion {
  readonly format: LakeFormat;
  readonly snapshot: LakeSnapshot;
  /** What its catalog says; undefined: it has none. */
  readonly catalog?: PinnedTable["catalog"];
  /** What of it is read; default: all. */
  readonly changes?: Changes;
}

interface LakePlace {
  readonly source: Pick<Source, "listNames">;
  readonly reader: LakeReader;
  readonly table: string;
}

/**
 * Reads a table as it is, or was.
 * @param at as `input.at` has it: latest, a version or an id, a time in ISO 8601, a branch or a tag
 * @throws JobError FILE_MISSING, SPEC_INVALID, SHARD_CORRUPT
 */
export async function readLake(place: LakePlace, at: string, wanted: WantedInput = {}): Promise<LakeVersion> {
  const { source, reader, table } = place;
  const format = wanted.table?.format ?? (await formatOf(source, table));
  if (format === "iceberg") {
    const file = { table, at: await newestMetadata(reader, table), isCatalogs: false };
    return await readIcebergAt(reader, file, at, wanted);
  }
  const { table: pinned, changes } = wanted;
  if (changes !== undefined) {
    return ofChanges(format, changes, await readDeltaChanges(reader, table, changes));
  }
  const version = pinned === undefined ? deltaVersion(table, at) : { version: Number(pinned.version) };
  return { format, snapshot: await readDelta(reader, table, version) };
}

async function readIcebergAt(
  reader: LakeReader,
  file: MetadataFile,
  at: string,
  { table: pinned, changes }: WantedInput,
): Promise<LakeVersion> {
  const format = "iceberg";
  if (changes !== undefined) {
    const wanted = { ...changes, schemaId: pinned?.schemaId };
    return ofChanges(format, changes, await readIcebergChanges(reader, file, wanted));
  }
  const { version = "0", schemaId } = pinned ?? {};
  const snapshot = version === "0" ? { ref: "main" } : { snapshot: version, schemaId };
  return {
    format,
    snapshot: await readIceberg(reader, file, pinned === undefined ? icebergVersion(at) : snapshot),
  };
}

function ofChanges(
  format: LakeFormat,
  { from, onRewrite }: WantedChanges,
  { position, ...snapshot }: LakeChanges,
): LakeVersion {
  return { format, snapshot, changes: { from, to: position, onRewrite } };
}

async function readWanted(place: LakePlace, wanted: WantedInput, at: string): Promise<LakeVersion> {
  return await readLake(place, at, wanted).catch((error: unknown) => {
    if (error instanceof JobError && error.code === "INPUT_CHANGED") {
      throw new JobError("INPUT_NOT_READY", error.message, {
        hint: "the table was written to at this moment: run the same command again",
        cause: error,
      });
    }
    const isPlanned = wanted.table !== undefined;
    throw isPlanned && error instanceof JobError && error.code === "FILE_MISSING" ? ofPlan(error) : error;
  });
}

function ofPlan(error: JobError): JobError {
  return new JobError("INPUT_CHANGED", error.message, { hint: goneHint, cause: error });
}

const goneHint =
  "the run reads the version that it was planned with, and a clean-up (VACUUM, expire_snapshots) has removed what that needs; committed spans are kept. Restore the files and run again, or give up this run with --new-run, which reads the newest version; keep versions for longer than a run takes";

const callsAtOnce = 32;

interface ReadVersion {
  readonly files: ReadonlyMap<string, LakeFile>;
  readonly snapshot: LakeSnapshot;
}

interface TableOptions {
  /** Its folder, or its name in a catalog, which stands for the table where patterns are listed; other patterns name files. */
  readonly table: string;
  readonly at: string;
  /** The folder on this machine that opened shards are in. */
  readonly folder: string;
  readonly tools: LakeTools & AsyncDisposable;
  /** Default: from the folder. */
  readonly read?: (place: LakePlace, wanted: WantedInput) => Promise<LakeVersion>;
}

/** A source of the rows of a table, which are those of its files. */
export function tableSource(files: Source, options: TableOptions): Source {
  const { table, at, folder, tools, read: readVersion = (of, wanted) => readWanted(of, wanted, at) } = options;
  const place = { source: files, reader: lakeReader(files, tools), table };
  let read: ReadVersion | undefined;
  return {
    readAhead: files.readAhead,
    published: () => Promise.resolve(unwatched),
    listNames: (path) => files.listNames(path),
    exists: (uri) => files.exists(uri),
    async list(patterns, wanted = {}) {
      if (patterns.length !== 1 || patterns[0] !== table) {
        return await files.list(patterns);
      }
      const { table: pinned } = wanted;
      const { format, snapshot, catalog, changes } = await readVersion(place, wanted);
      read = { snapshot, files: new Map(snapshot.files.map((file) => [file.uri, file])) };
      const listing = await listFiles(files, snapshot);
      if (pinned === undefined) {
        requireFiles(table, snapshot, listing, changes);
      }
      const { version, schemaId } = snapshot;
      const shards = pinned === undefined ? await withFacts(listing.shards, snapshot) : listing.shards;
      const removedRows =
        pinned?.removedRows ?? shards.reduce((sum, { ofTable }) => sum + (ofTable?.removedRows ?? 0), 0);
      return {
        ...listing,
        shards,
        folders: [folder],
        table: { uri: table, at, format, version, schemaId, removedRows, ...(catalog && { catalog }) },
        changes,
      };
    },
    async open(shard) {
      const file = read?.files.get(shard.uri);
      if (file === undefined && shard.uri.startsWith(`${table}/`)) {
        throw new Error(`${shard.uri} is opened before its table is read`);
      }
      return file === undefined || read === undefined
        ? await files.open(shard)
        : await openAsRows(files, shard, { file, columns: read.snapshot.columns });
    },
    async [Symbol.asyncDispose]() {
      await tools[Symbol.asyncDispose]();
      await files[Symbol.asyncDispose]();
    },
  };
}

interface CatalogSourceOptions extends Pick<TableOptions, "table" | "at"> {
  readonly load: LoadTable;
  /** Opens the store, or the folder, that the table's files are in. */
  readonly open: (table: CatalogTable) => Promise<{ readonly files: Source } & Pick<TableOptions, "folder" | "tools">>;
}

/**
 * The catalog is asked when the table is listed: a finished run does not need it. @param own the source of other files
 */
export function catalogSource(own: Source, { table, at, load, open }: CatalogSourceOptions): Source {
  let opened: Source | undefined;
  let loaded: CatalogTable;
  let shards: ReadonlySet<string> = new Set();
  const ofTable = async (): Promise<Source> => {
    const { files, ...place } = await open(loaded);
    return tableSource(files, {
      table,
      at,
      ...place,
      read: (from, wanted) => readNamed(from, loaded, at, wanted),
    });
  };
  return {
    get readAhead() {
      return (opened ?? own).readAhead;
    },
    published: () => Promise.resolve(unwatched),
    listNames: (path) => own.listNames(path),
    exists: (uri) => own.exists(uri),
    async list(patterns, wanted = {}) {
      if (patterns.length !== 1 || patterns[0] !== table) {
        return await own.list(patterns);
      }
      loaded = await load().catch((error: unknown) => {
        const isGone = wanted.table !== undefined && error instanceof JobError && error.code === "FILE_MISSING";
        throw isGone ? new JobError("INPUT_CHANGED", error.message, { hint: droppedHint, cause: error }) : error;
      });
      opened ??= await ofTable();
      const listing = await opened.list(patterns, wanted);
      shards = new Set(listing.shards.map(({ uri }) => uri));
      return listing;
    },
    open: (shard) => (shards.has(shard.uri) ? (opened ?? own) : own).open(shard),
    async [Symbol.asyncDispose]() {
      await opened?.[Symbol.asyncDispose]();
      await own[Symbol.asyncDispose]();
    },
  };
}

/** The first ones, asked for again when they expire. undefined: the catalog gives out none. */
export function credentialsOf({ credentials: first }: CatalogTable, load: LoadTable): GiveCredentials | undefined {
  let unused = first;
  const give: GiveCredentials = async () => {
    const credentials = unused ?? (await loadAgain(load)).credentials;
    unused = undefined;
    if (credentials === undefined) {
      throw new CredentialsError("the catalog gives out no credentials for the table any more", "grant them again");
    }
    return credentials;
  };
  return first && give;
}

/** @throws CredentialsError, whose hint is missing where a retry may help */
async function loadAgain(load: LoadTable): Promise<CatalogTable> {
  try {
    return await load();
  } catch (error) {
    const {
      message,
      hint = "see whether the catalog still has the table",
      exitCode,
    } = error instanceof JobError ? error : new JobError("NETWORK", messageOf(error));
    throw new CredentialsError(message, exitCode === 75 ? undefined : hint);
  }
}

const droppedHint =
  "the table was dropped, or renamed, after the run was planned; committed spans are kept. Restore it under its name, or give up this run with --new-run";

/** The version that a plan pins is read from its metadata file. @throws JobError INPUT_CHANGED */
async function readNamed(
  { reader, table }: LakePlace,
  { uuid, location, metadata }: CatalogTable,
  at: string,
  wanted: WantedInput,
): Promise<LakeVersion> {
  const { table: pinned } = wanted;
  const read = async (file: string): Promise<LakeVersion> => {
    const name = nameInStore({ table, location }, file);
    const version = await readIcebergAt(reader, { table, at: name, isCatalogs: true }, at, wanted);
    return { ...version, catalog: { uuid, metadata: file } };
  };
  if (pinned?.catalog === undefined) {
    return await read(metadata);
  }
  if (uuid !== pinned.catalog.uuid) {
    throw new JobError(
      "INPUT_CHANGED",
      `reading table ${table}: it is another one than planned: its uuid is ${uuid}, not ${pinned.catalog.uuid}`,
      { hint: "it was dropped and made anew; committed spans are kept. Read the new table with --new-run" },
    );
  }
  try {
    // Old metadata files are cleaned up; newer ones have the same snapshot until it expires.
    return await read(pinned.catalog.metadata).catch((error: unknown) => {
      if (!(error instanceof JobError) || error.code !== "FILE_MISSING" || metadata === pinned.catalog?.metadata) {
        throw error;
      }
      return read(metadata);
    });
  } catch (error) {
    throw error instanceof JobError && error.code === "FILE_MISSING" ? ofPlan(error) : error;
  }
}

async function listFiles(files: Source, { files: named }: LakeSnapshot): Promise<Listing> {
  const perCall = Math.max(1, Math.ceil(named.length / callsAtOnce));
  const calls = Array.from({ length: Math.ceil(named.length / perCall) }, (_, call) =>
    named.slice(call * perCall, (call + 1) * perCall).map(({ uri }) => uri),
  );
  const listings = await mapBounded(calls, callsAtOnce, (uris) => files.list(uris));
  return { ...joinListings([]), shards: joinListings(listings).shards };
}

function requireFiles(
  table: string,
  { version, files }: LakeSnapshot,
  { shards }: Listing,
  changes: Changes | undefined,
): void {
  const sizes = new Map(shards.map(({ uri, sizeBytes }) => [uri, sizeBytes]));
  for (const [index, { uri, sizeBytes }] of files.entries()) {
    if (uri === files[index - 1]?.uri) {
      throw damaged(table, uri, "the table names this file twice, so that its rows are in the table twice");
    }
    const now = sizes.get(uri);
    if (now === undefined && changes !== undefined && changes.from !== null) {
      throw rewritten(table, `a clean-up (VACUUM, expire_snapshots) removed ${uri} before a run has read it`);
    }
    if (now === undefined) {
      throw new JobError("FILE_MISSING", `reading version ${version} of table ${table}: its file ${uri} is not there`, {
        hint: "a clean-up (VACUUM, expire_snapshots) removed it, or it was removed by hand: name a newer version with input.at, or restore the file",
      });
    }
    if (now !== sizeBytes) {
      throw damaged(table, uri, `it has ${now} bytes, the table says ${sizeBytes}`);
    }
  }
}

async function withFacts(shards: readonly ListedShard[], { files }: LakeSnapshot): Promise<ListedShard[]> {
  const byUri = new Map(files.map((file) => [file.uri, file]));
  return await mapBounded(shards, callsAtOnce, async ({ uri, sizeBytes, fingerprint }) => {
    const { partition = new Map(), removedCount, removed } = byUri.get(uri) ?? {};
    const removedRows = removedCount ?? (await removed?.())?.length ?? 0;
    return { uri, sizeBytes, fingerprint, ofTable: { partition, removedRows } };
  });
}

async function openAsRows(
  files: Source,
  shard: ListedShard,
  { file, columns }: { readonly file: LakeFile; readonly columns: readonly TableColumn[] },
): Promise<OpenShard> {
  const { uri, rows, partition } = file;
  const opened = await orGone(() => files.open(shard));
  let removed: Promise<Uint32Array> | undefined;
  const { remote } = opened;
  const isMissing = ({ name, isPartition }: TableColumn): boolean => !isPartition && partition.has(name);
  return {
    path: opened.path,
    name: opened.name,
    partitions: partition,
    table: {
      // A file that lacks a column by which it is partitioned has the value of its partition.
      columns: columns.some(isMissing)
        ? columns.map((column) =>
            isMissing(column) ? { ...column, default: partition.get(column.name) ?? null } : column,
          )
        : columns,
      removed() {
        removed ??= orGone(() => file.removed()).then((all) => {
          if ((all.at(-1) ?? -1) >= (rows ?? Number.POSITIVE_INFINITY)) {
            throw damaged(uri, "its removed rows", `row ${all.at(-1)} of ${rows} is one of them`);
          }
          return all;
        });
        return removed;
      },
    },
    remote: remote && {
      fetch: (ranges, options) => orGone(() => remote.fetch(ranges, options)),
      forget: () => remote.forget(),
    },
    check: () => orGone(() => opened.check()),
    digest: (signal) => opened.digest(signal),
    [Symbol.asyncDispose]: () => opened[Symbol.asyncDispose](),
  };
}

async function orGone<T>(work: () => Promise<T>): Promise<T> {
  try {
    return await work();
  } catch (error) {
    const isGone = error instanceof JobError && (error.code === "INPUT_CHANGED" || error.code === "FILE_MISSING");
    throw isGone ? ofPlan(error) : error;
  }
}

const instant = /^\d{4}-\d{2}-\d{2}(?:[T ]\d{2}:\d{2}(?::\d{2}(?:\.\d+)?)?(?:Z|[+-]\d{2}:\d{2}))?$/;

/** In ms from 1970. A day alone is its end, so that all of it counts. */
function timeOf(at: string): number | undefined {
  if (!instant.test(at)) {
    return undefined;
  }
  const isDay = at.length === 10;
  const ms = Date.parse(isDay ? `${at}T00:00:00Z` : at.replace(" ", "T"));
  return Number.isNaN(ms) ? undefined : ms + (isDay ? 86_399_999 : 0);
}

function deltaVersion(table: string, at: string): DeltaVersion {
  const time = timeOf(at);
  if (at === "latest") {
    return "latest";
  }
  if (time !== undefined) {
    return { before: time };
  }
  if (!/^\d{1,15}$/.test(at)) {
    throw new JobError("SPEC_INVALID", `reading table ${table}: ${JSON.stringify(at)} is no version of a Delta table`, {
      hint: "write input.at as latest, a version such as 12, or a time such as 2026-11-20T06:00:00Z; Delta has no branches and tags",
    });
  }
  return { version: Number(at) };
}

function icebergVersion(at: string): IcebergVersion {
  const time = timeOf(at);
  return at === "latest"
    ? { ref: "main" }
    : time !== undefined
      ? { before: time }
      : /^\d{1,19}$/.test(at)
        ? { snapshot: at }
        : { ref: at };
}
