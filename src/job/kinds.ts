import { realpath } from "node:fs/promises";
import { tmpdir } from "node:os";
import { isAbsolute, relative, resolve, sep } from "node:path";
import { outputColumns } from "../models/binding/contract.js";
import { outputRowBytes } from "../models/binding/row-bytes.js";
import { type DuckDbOptions, openDuckDbLazily } from "../duckdb/instance.js";
import { decoderByFormat } from "../formats/by-format.js";
import type { Decoder } from "../formats/format.js";
import type { ParquetOptions } from "../formats/parquet/duckdb.js";
import type { FileKind, ModelCache, RemoteOptions } from "../models/places/cache.js";
import { fileModels } from "../models/places/model-file.js";
import type { ModelPin, ModelSource, ResolvedModel } from "../models/places/place.js";
import { proxiesOf } from "../base/http/proxies.js";
import { type StorePlace, openStoreAt, storeUrl } from "../stores/objects/open.js";
import type { GiveCredentials } from "../stores/objects/protocol.js";
import type { ObjectStore, RequestOptions } from "../stores/objects/store.js";
import { isCalendarDate, runIdOf } from "../run/plan/identity.js";
import type { Plan } from "../run/plan/plan.js";
import { type OpenKeyDuckDb, openParquetSink, type ParquetSinkOptions } from "../targets/parquet/sink.js";
import { type BeyondFolder, inFolder } from "../targets/parquet/parts.js";
import { layoutOf, plannedLayout } from "../targets/parquet/layout.js";
import { type After, publishingAfter } from "../targets/after/after.js";
import { type Sink, commitConcurrency } from "../targets/target.js";
import type { Secrets } from "../targets/postgres/connect.js";
import type { CatalogSpec } from "./jobfile/catalog-spec.js";
import type { InputSpec, StoreSpec } from "./jobfile/input-spec.js";
import type { JobSpec } from "./jobfile/job-spec.js";
import type { LoadedSpec } from "./jobfile/load.js";
import type { ModelSpec } from "./jobfile/model-spec.js";
import type {
  DeltaOutputSpec,
  IcebergOutputSpec,
  ParquetOutputSpec,
  PostgresOutputSpec,
  StoreOutputSpec,
  TargetSpecs,
} from "./jobfile/output-spec.js";
import type { PublishSpec } from "./jobfile/publish-spec.js";
import { secretFile } from "./jobfile/secrets.js";
import { anyValue } from "./jobfile/template.js";
import {
  isHttpUri,
  isHubUri,
  isMlflowUri,
  isObjectUri,
  objectFolder,
  objectUriText,
  parseObjectUri,
} from "./jobfile/uri.js";
import type { OutputFolder, Source } from "../sources/source.js";
import type { DiskPlan } from "../stores/disk-rehearsal.js";
import { nodeFileSystem, openDiskStore } from "../stores/disk.js";
import { cacheFolder } from "../base/cache-folder.js";
import { JobError, orError } from "../base/errors.js";
import type { CatalogTable } from "../sources/lake/rest-catalog.js";
import type { MemoryBudget } from "../base/memory-budget.js";
import { sha256Of } from "../base/sha256.js";
import { type Spool, openSpool, spoolRoot } from "../base/spool.js";
import { programVersion, type Tools } from "./attempt.js";
import { refuseSmallAddressSpace } from "./machine.js";
import { readSecret } from "./reading.js";
import type { AfterTools } from "./redis.js";
import { combineSources } from "../sources/listing.js";
import { diskSource } from "../sources/disk.js";
import type { OtherFolders } from "../targets/parquet/other-runs.js";
import type { OutputPattern } from "./jobfile/fill-document.js";

/*
 * What a spec can name, a line each: its key or form there, and how it is opened, whose code is loaded only then. Its keys,
 * each with its class, are in `jobfile/`. Other lists: stores in `stores/objects/open.ts`, protocols of servers in
 * `served-models.ts`, readers of units in `threads/serve-units.ts`, checks in `checks/checks.ts`, commands in `cli/program.ts`.
 */

const targets: { readonly [Key in keyof TargetSpecs]-?: TargetKind<NonNullable<TargetSpecs[Key]>> } = {
  parquet: { name: ({ path }) => path, open: openParquet, load: () => import("../targets/parquet/part-file.js") },
  delta: { name: ({ path }) => path, open: openDelta, load: () => import("../targets/parquet/part-file.js") },
  iceberg: { name: ({ table }) => table, open: openIceberg, load: () => import("../targets/parquet/part-file.js") },
  postgres: { name: ({ table }) => table, open: openInPostgres, load: () => import("../targets/postgres/sink.js") },
};

/** Where rows go, too, when they are published at the target, by their keys in `publish`. */
const afterwards: { readonly [Key in keyof PublishSpec]-?: OpenAfter<NonNullable<PublishSpec[Key]>> } = {
  redis: async (spec, tools) => (await import("./redis.js")).openRedisOf(spec, tools),
};

type OpenAfter<Spec> = (spec: Spec, tools: AfterTools) => Promise<After>;

/** The first one that owns a URI resolves it. */
const places: readonly PlaceKind[] = [
  { owns: isObjectUri, open: openObjectModels },
  { owns: isHttpUri, open: openHttpModels },
  { owns: isHubUri, open: openHubModels },
  { owns: isMlflowUri, open: openMlflowModels },
  { owns: () => true, open: (_model, { folder, kind }) => Promise.resolve(fileModels(folder, kind?.open)) },
];

const formats: { readonly [Name in NonNullable<InputSpec["format"]>]: (options: ParquetOptions) => Promise<Decoder> } =
  {
    async parquet(options) {
      return (await import("../formats/parquet/decoder.js")).openParquetDecoder(options);
    },
    async arrow(options) {
      const { openArrowDecoder } = await import("../formats/arrow/decoder.js");
      const { openShards } = await import("../formats/arrow/shards.js");
      return openArrowDecoder({ ...options, areFiles: true, open: openShards() });
    },
  };

interface TargetKind<Spec> {
  readonly name: (spec: Spec) => string;
  readonly open: (spec: Spec, options: TargetOptions) => Promise<Sink>;
  /** Loads what the first span needs. */
  readonly load: () => Promise<unknown>;
}

interface PlaceKind {
  readonly owns: (uri: string) => boolean;
  readonly open: (model: ModelPlace, options: ModelOptions) => Promise<ModelSource>;
}

interface SourceTools extends Tools {
  readonly where: LoadedSpec["where"];
}

/** Opens a decoder that loads the code of each format when the first shard of that format comes. */
export async function openDecoder(
  { input: { format, table, kafka } }: JobSpec,
  options: ParquetOptions,
): Promise<Decoder> {
  if (kafka !== undefined) {
    return await (await import("./kafka.js")).openTopicDecoder(kafka, options);
  }
  return decoderByFormat(table === undefined ? format : "parquet", {
    parquet: () => formats.parquet(options),
    arrow: () => formats.arrow(options),
  });
}

/**
 * Loads the code of the store only when used. @param golden a file read in addition to the shards; "": there is none
 */
export async function openSource(
  input: InputSpec,
  output: OutputFolder | undefined,
  golden: string,
  options: SourceTools,
): Promise<Source> {
  const { table = "", catalog, kafka } = input;
  if (kafka !== undefined) {
    const own = await openFiles([input.ready ?? "", golden], input, output, options);
    return await (await import("./kafka.js")).openTopic(kafka, input.spool, own.source, options);
  }
  if (catalog !== undefined) {
    return await ofCatalog(catalog, input, output, golden, options);
  }
  const files = await openFiles([...input.path, input.ready ?? "", golden], input, output, options);
  return await ofTable(files.source, input, isObjectUri(table) ? files.spool : resolve(options.folder, table));
}

interface OpenFiles {
  readonly source: Source;
  readonly spool: string;
}

/** @param credentials for S3; undefined: those of the environment */
async function openFiles(
  uris: readonly string[],
  input: InputSpec,
  output: OutputFolder | undefined,
  options: Tools,
  credentials?: GiveCredentials,
): Promise<OpenFiles> {
  const { folder, writer, isDead } = options;
  const inStore = output !== undefined && isObjectUri(output.folder);
  const disk = diskSource({ folder, output: inStore ? undefined : output });
  const uri = uris.find(isObjectUri);
  if (uri === undefined) {
    return { source: disk, spool: folder };
  }
  refuseSmallAddressSpace();
  const { openReaderThread } = await import("../sources/reader.js");
  const { place, requests } = placeOf(uri, input, options);
  const reader = openReaderThread(place, requests, credentials); // first: it takes longest to start
  const { objectSource } = await import("../sources/objects.js");
  const { path, max_mb: maxMb } = input.spool;
  const root = spoolRoot(folder, path);
  const spool = openSpool({ root, writer, use: "in", isDead, maxBytes: maxMb * 1024 * 1024 });
  const objects = objectSource({ reader, spool, output: inStore ? output : undefined });
  return { source: combineSources({ disk, objects }), spool: spool.folder };
}

/** The files of a table are in a store that the catalog names, or on this machine. */
async function ofCatalog(
  catalog: CatalogSpec,
  input: InputSpec,
  output: OutputFolder | undefined,
  golden: string,
  options: SourceTools,
): Promise<Source> {
  const { table = "", at = "latest" } = input;
  const { openCatalogTable } = await import("./catalog.js");
  const { catalogSource, credentialsOf, storeName } = await import("../sources/lake/source.js");
  const { openLakeTools } = await import("./duckdb.js");
  const own = await openFiles([input.ready ?? "", golden], input, output, options);
  const { load } = openCatalogTable("input", { catalog, table }, options);
  return catalogSource(own.source, {
    table,
    at,
    load,
    async open(loaded) {
      const location = storeName(table, loaded.location);
      const { endpoint, region, pathStyle } = loaded.storage;
      const place = {
        ...input,
        endpoint: input.endpoint ?? endpoint,
        region: input.region ?? region,
        path_style: input.path_style ?? pathStyle,
      };
      const { source, spool } = await openFiles([location], place, output, options, credentialsOf(loaded, load));
      const folder = isObjectUri(location) ? spool : await realpath(location).catch(() => location);
      return { files: source, folder, tools: await openLakeTools(folder) };
    },
  });
}

/** @param folder in which files are when they are read */
async function ofTable(files: Source, { table, at = "latest" }: InputSpec, folder: string): Promise<Source> {
  if (table === undefined) {
    return files;
  }
  const { openLakeTools } = await import("./duckdb.js");
  const { tableSource } = await import("../sources/lake/source.js");
  const real = await realpath(folder).catch(() => folder); // a folder that is not there is reported when it is read
  return tableSource(files, { table, at, folder: real, tools: await openLakeTools(real) });
}

type PlaceSpec = StoreSpec & Pick<StoreOutputSpec, "sse">;

function placeOf(
  uri: string,
  spec: PlaceSpec,
  { retry, signal }: Tools,
): { readonly place: StorePlace; readonly requests: RequestOptions } {
  const { endpoint, region, path_style: pathStyle, request_payer: requestPayer, timeouts, sse: encryption } = spec;
  const { connect = 10, silence = 20, request = 300 } = timeouts ?? {};
  const settings = { endpoint, region, pathStyle, requestPayer, encryption };
  return {
    place: { scheme: parseObjectUri(uri).scheme, settings },
    requests: {
      timeouts: { connectMs: connect * 1000, silenceMs: silence * 1000, requestMs: request * 1000 },
      retry,
      signal,
    },
  };
}

/** @param credentials for S3; undefined: those of the environment */
async function openStore(
  uri: string,
  spec: PlaceSpec,
  options: Tools,
  credentials?: GiveCredentials,
): Promise<ObjectStore> {
  const { place, requests } = placeOf(uri, spec, options);
  return await openStoreAt(place, requests, credentials);
}

/** Its URL; empty for the one of AWS, Google or Azure. */
function urlOfStore(uri: string, { endpoint }: StoreSpec): string {
  return storeUrl({ scheme: parseObjectUri(uri).scheme, settings: { endpoint } });
}

/** What an attempt is allowed to do that is refused by default. */
export interface Permissions {
  /** A new run may append to a table that has the rows of earlier runs. */
  readonly allowDuplicates?: boolean;
  /** A run may overwrite rows of a newer run. */
  readonly allowOlder?: boolean;
}

export interface SinkOptions extends Tools {
  readonly cores: number;
  readonly memory: MemoryBudget;
  readonly attempt: Permissions;
  readonly outputPattern: OutputPattern;
  readonly variablesOf: LoadedSpec["variablesOf"];
  readonly where: LoadedSpec["where"];
}

interface TargetOptions extends SinkOptions {
  readonly job: Pick<JobSpec, "name" | "params" | "output">;
}

export async function openSink(spec: JobSpec, options: SinkOptions): Promise<Sink> {
  const sink = withTarget(spec, (kind, target) => kind.open(target, { ...options, job: spec }));
  if (sink === undefined) {
    throw new Error("a spec without a target has passed its check");
  }
  return await sink;
}

/** The target of a job, whose runs are published where `publish` says, too. */
export async function withAfterwards({ publish = {} }: JobSpec, sink: Sink, tools: AfterTools): Promise<Sink> {
  let both = sink;
  for (const key of Object.keys(publish) as (keyof PublishSpec)[]) {
    const spec = publish[key];
    both = spec === undefined ? both : publishingAfter(both, await afterwards[key](spec, tools), tools.retry.warn);
  }
  return both;
}

/** Does something with the target that a spec names; undefined: its rows go through a pipe. */
export function withTarget<T>(
  { output }: JobSpec,
  use: <Spec>(kind: TargetKind<Spec>, target: Spec) => T,
): T | undefined {
  const key = (Object.keys(targets) as (keyof TargetSpecs)[]).find((name) => output[name] !== undefined);
  return key && use(targets[key] as TargetKind<unknown>, output[key]);
}

/** Where predictions are written as files, which are no input; undefined: nowhere, or in another store. */
export function writtenTo(
  { name, params, input, output: { parquet } }: JobSpec,
  folder: string,
): OutputFolder | undefined {
  const inStore = parquet !== undefined && isObjectUri(parquet.path);
  if (parquet === undefined || (inStore && urlOfStore(parquet.path, parquet) !== urlOfStore(parquet.path, input))) {
    return undefined; // a bucket of the same name in another store
  }
  const path = inStore ? objectFolder(parquet.path) : resolve(folder, parquet.path);
  const layout = layoutOf(path, runIdOf(name, params, sha256Of));
  return { folder: layout.folder, part: layout.part(0) };
}

async function openInPostgres(postgres: PostgresOutputSpec, options: SinkOptions): Promise<Sink> {
  // Loaded where it is used: a job that writes files starts the sooner.
  const { connectionOf, openPostgresSink } = await import("../targets/postgres/sink.js");
  const isFromFile = [postgres.url, postgres.password ?? ""].some((value) => secretFile(value) !== undefined);
  const read = (): Promise<Secrets> => secretsOf(postgres, options);
  return openPostgresSink({
    spec: postgres,
    settings: connectionOf({ ...postgres, ...(await read()) }, process.env, {
      variables: options.variablesOf(urlKey),
      reread: isFromFile ? read : undefined,
    }),
    retry: options.retry,
    writer: options.writer,
    allowDuplicates: options.attempt.allowDuplicates === true,
    allowOlder: options.attempt.allowOlder === true,
    program: `infer-batch ${programVersion}`,
    spool: spoolOf(options, "rows", undefined),
  });
}

const urlKey = ["output", "postgres", "url"];

/** As they are now. @throws JobError as `readSecret` */
async function secretsOf({ url, password }: PostgresOutputSpec, { folder, where }: SinkOptions): Promise<Secrets> {
  return {
    url: await readSecret(url, { folder, key: where(urlKey) }),
    password:
      password === undefined
        ? undefined
        : await readSecret(password, { folder, key: where(["output", "postgres", "password"]) }),
  };
}

async function openParquet(parquet: ParquetOutputSpec, options: SinkOptions): Promise<Sink> {
  return openParquetSink({ ...(await filesAt(parquet, options, parquet.path)), ...inFolder });
}

/** Each run has a folder in that of the table, whose name starts with its dates. */
async function openDelta(delta: DeltaOutputSpec, options: TargetOptions): Promise<Sink> {
  const { openDeltaSink } = await import("../targets/delta.js");
  const { path, mode, create, partition } = delta;
  const { name, params } = options.job;
  const folder = runFolder(name, params);
  const files = await filesAt(
    { ...delta, path: `${path.replace(/\/+$/, "")}/${folder}` },
    { ...options, outputPattern: runPattern(options.job, options.outputPattern) },
    path,
  );
  const table = files.folder.slice(0, -folder.length - 1);
  return openDeltaSink({
    ...files,
    target: isObjectUri(path) ? table : shortPath(table),
    uri: path,
    table,
    mode,
    create,
    partition,
    allowDuplicates: options.attempt.allowDuplicates === true,
  });
}

async function openIceberg(iceberg: IcebergOutputSpec, options: TargetOptions): Promise<Sink> {
  const { openCatalogTable } = await import("./catalog.js");
  const { credentialsOf, storeName } = await import("../sources/lake/source.js");
  const { openIcebergSink, openNewIcebergTable } = await import("../targets/iceberg.js");
  const { unpackAvro } = await import("./duckdb.js");
  const { table, mode, create, partition, beside } = iceberg;
  const { name, params } = options.job;
  const { retry } = options;
  const { job, series } = beside === undefined ? runPattern(options.job, options.outputPattern) : options.outputPattern;
  const allowDuplicates = options.attempt.allowDuplicates === true;
  const catalog = openCatalogTable("output.iceberg", iceberg, options);
  const facts = { target: table, uri: table, table, mode, create, partition, allowDuplicates, catalog, retry };
  const open = async (loaded: CatalogTable): Promise<Sink> => {
    const tableFolder = storeName(table, loaded.location);
    const { endpoint, region, pathStyle } = loaded.storage;
    const place = {
      ...iceberg,
      endpoint: iceberg.endpoint ?? endpoint,
      region: iceberg.region ?? region,
      path_style: iceberg.path_style ?? pathStyle,
      path: `${tableFolder}/${beside ?? runFolder(name, params)}`,
    };
    const outputPattern = { job: `${tableFolder}${job}`, series: `${tableFolder}${series}` };
    const credentials = credentialsOf(loaded, () => catalog.load());
    const files = await filesAt(place, { ...options, outputPattern }, tableFolder, credentials);
    return beside !== undefined
      ? openParquetSink({ ...files, ...inFolder })
      : openIcebergSink({ ...files, ...facts, loaded, tableFolder, unpack: unpackAvro });
  };
  const loaded = await orError(
    () => catalog.load(),
    ({ code }) => code === "FILE_MISSING",
  );
  if (!(loaded instanceof JobError)) {
    return await open(loaded);
  }
  if (!create && beside === undefined) {
    throw loaded;
  }
  const nowhere = resolve(tmpdir(), `infer-batch-no-table-${options.writer}`);
  const files = filesOnDisk({ ...iceberg, path: nowhere }, { ...options, outputPattern: noRuns }, nowhere);
  if (beside !== undefined) {
    return openParquetSink({ ...files, ...inFolder });
  }
  return openNewIcebergTable({
    ...files,
    ...facts,
    rehearse: () => Promise.resolve(["the right to create the table, and to write to its store"]),
    open: async () => await open(await catalog.load()),
  });
}

/** Matches no folder. */
const noRuns: OutputPattern = { job: "", series: "" };

/** The folder in that of a table in which the runs of its jobs have folders. */
const runsFolder = "_infer-batch";

/** The folder of a run in that of its table. */
export function runFolder(name: string, params: Readonly<Record<string, string>>): string {
  return `${runsFolder}/${[...Object.values(params).filter(isCalendarDate), runIdOf(name, params, sha256Of)].join(".")}`;
}

/** Where the runs of a job have folders, given where its output is. */
export function runPattern({ name, output }: Pick<JobSpec, "name" | "output">, pattern: OutputPattern): OutputPattern {
  const below = (output.delta ?? output.iceberg) === undefined ? "" : `/${runsFolder}/${anyValue}${name}-${anyValue}`;
  return { job: `${pattern.job}${below}`, series: `${pattern.series}${below}` };
}

type FilesOptions = Omit<ParquetSinkOptions, keyof BeyondFolder>;

/** @param read the folder in which DuckDB may read: that of the files, or one above it */
async function filesAt(
  files: ParquetOutputSpec,
  options: SinkOptions,
  read: string,
  credentials?: GiveCredentials,
): Promise<FilesOptions> {
  return isObjectUri(files.path)
    ? await filesInStore(files, options, credentials)
    : filesOnDisk(files, options, resolve(options.folder, read));
}

function filesOnDisk({ path, compression }: ParquetOutputSpec, options: SinkOptions, read: string): FilesOptions {
  const { outputPattern, writer, isDead, warn } = options;
  const folder = resolve(options.folder, path);
  const spool = spoolOf(options, "rows", undefined);
  return {
    folder,
    target: shortPath(folder),
    uri: path,
    storeAt: (root) => openDiskStore({ root, fs: nodeFileSystem, writer, isDead }),
    failure: "DISK",
    duckdb: openDuckDbLazily({ ...encodingOptions(options), allowed: { folders: [read, spool.folder] } }),
    openKeyDuckDb: keyDuckDb(options, folder),
    compression,
    otherRunFolders: {
      root: "",
      ...patternsOf(outputPattern, (pattern) => resolve(options.folder, pattern).split(sep).slice(1)),
    },
    async rehearse(plan) {
      const { rehearseOnDisk: rehearse } = await import("../stores/disk-rehearsal.js"); // which only dry runs need
      return await rehearse(diskPlan(folder, plan));
    },
    async close() {
      await spool[Symbol.asyncDispose]();
    },
    spool,
    writer,
    warn,
  };
}

function diskPlan(folder: string, plan: Plan): DiskPlan {
  const { runs, control, temporary, parts } = plannedLayout(folder, plan);
  return {
    folder,
    working: [runs, control, temporary, ...(parts === folder ? [] : [parts])],
    bytes: plan.input.rows * outputRowBytes(plan.contract),
    columns: outputColumns(plan.contract).length,
  };
}

async function filesInStore(
  parquet: ParquetOutputSpec,
  options: SinkOptions,
  credentials: GiveCredentials | undefined,
): Promise<FilesOptions> {
  const { openStoreOfObjects } = await import("../stores/objects.js");
  const { path, compression } = parquet;
  const { writer, isDead, warn } = options;
  const spool = spoolOf(options, "out", parquet.spool?.path);
  const objects = await openStore(path, parquet, options, credentials);
  const folder = objectFolder(path);
  return {
    folder,
    target: folder,
    uri: path,
    storeAt: () => openStoreOfObjects({ objects, spool, writer, isDead }),
    failure: "OBJECT_STORE",
    duckdb: openDuckDbLazily({ ...encodingOptions(options), allowed: { folders: [spool.folder] } }),
    openKeyDuckDb: keyDuckDb(options, spool.folder),
    compression,
    otherRunFolders: {
      root: objectUriText({ ...parseObjectUri(folder), key: "" }),
      ...patternsOf(options.outputPattern, (pattern) => parseObjectUri(objectFolder(pattern)).key.split("/")),
    },
    rehearse: () => Promise.resolve(["the right to write to the store, and its conditional requests"]),
    async close() {
      await spool[Symbol.asyncDispose]();
      objects[Symbol.dispose]();
    },
    spool,
    writer,
    warn,
  };
}

/** Opens a spool whose size needs no limit: "out" holds two parts at most, the others hold what memory cannot. */
function spoolOf({ folder, writer, isDead }: SinkOptions, use: Spool["use"], path: string | undefined): Spool {
  return openSpool({ root: spoolRoot(folder, path), writer, use, isDead, maxBytes: Number.POSITIVE_INFINITY });
}

/** What does not fit in memory goes to a spool. */
function keyDuckDb({ folder, writer, isDead, cores, memory }: SinkOptions, parts: string): OpenKeyDuckDb {
  return async () => {
    const root = spoolRoot(folder, undefined);
    const spool = openSpool({ root, writer, use: "keys", isDead, maxBytes: Number.POSITIVE_INFINITY });
    await spool.prepare();
    const { duckDbBytes: memoryBytes } = memory;
    const allowed = { folders: [parts] };
    const duckdb = openDuckDbLazily({ threads: cores, memoryBytes, spillFolder: spool.folder, allowed });
    return {
      connect: () => duckdb.connect(),
      async [Symbol.asyncDispose]() {
        await duckdb[Symbol.asyncDispose]();
        await spool[Symbol.asyncDispose]();
      },
    };
  };
}

function patternsOf(
  { job, series }: OutputPattern,
  segmentsOf: (pattern: string) => readonly string[],
): Omit<OtherFolders, "root"> {
  return { job: segmentPatterns(segmentsOf(job)), series: segmentPatterns(segmentsOf(series)) };
}

/** A `RegExp` where a param is part of the name. */
function segmentPatterns(segments: readonly string[]): (string | RegExp)[] {
  return segments.map((segment) =>
    segment.includes(anyValue) ? new RegExp(`^${segment.split(anyValue).map(escapeRegExp).join(".*")}$`) : segment,
  );
}

function escapeRegExp(text: string): string {
  return text.replaceAll(/[\\^$.*+?()[\]{}|]/g, "\\$&");
}

/** Returns a path relative to the working directory if it is below that. */
export function shortPath(path: string): string {
  const short = relative(process.cwd(), path);
  return short !== "" && !short.startsWith("..") && !isAbsolute(short) ? short : path;
}

/** Parts are encoded side by side. With one thread, the caller encodes the part itself, without polling another. */
function encodingOptions({ cores, memory }: SinkOptions): Pick<DuckDbOptions, "threads" | "memoryBytes"> {
  return { threads: Math.max(1, Math.floor(cores / commitConcurrency)), memoryBytes: memory.duckDbBytes };
}

export interface ModelOptions extends Tools {
  /** What is resolved. Default: models. */
  readonly kind?: FileKind | undefined;
}

interface ModelPlace extends Pick<ModelSpec, "sha256" | "registry" | keyof StoreSpec> {
  readonly path: string;
}

/** Resolves a model URI. @param planned the model that the plan of an unfinished run pins */
export async function resolveModel(
  model: ModelPlace,
  options: ModelOptions,
  planned?: ModelPin,
): Promise<ResolvedModel> {
  const kind = places.find(({ owns }) => owns(model.path));
  if (kind === undefined) {
    throw new Error(`no source of models for ${model.path}`);
  }
  using source = await kind.open(model, options);
  const { path, sha256 } = model;
  return await source.resolve(path, planned ?? (sha256 === undefined ? undefined : { sha256 }));
}

async function openObjectModels(model: ModelPlace, options: ModelOptions): Promise<ModelSource> {
  const { objectModels } = await import("../models/places/objects.js");
  const cache = await openCache(options);
  return objectModels({
    store: await openStore(model.path, model, options),
    endpoint: urlOfStore(model.path, model),
    cache,
  });
}

async function openHttpModels(_model: ModelPlace, options: ModelOptions): Promise<ModelSource> {
  const { httpModels } = await import("../models/places/https.js");
  return httpModels(await remoteOptions(options));
}

async function openHubModels(_model: ModelPlace, options: ModelOptions): Promise<ModelSource> {
  const { hubModels, hubSettings } = await import("../models/places/huggingface.js");
  return hubModels({ ...(await remoteOptions(options)), ...(await hubSettings(process.env)) });
}

async function openMlflowModels(model: ModelPlace, options: ModelOptions): Promise<ModelSource> {
  const { mlflowModels } = await import("../models/places/mlflow.js");
  return mlflowModels({
    ...(await remoteOptions(options)),
    registryUrl: model.registry?.url,
    env: process.env,
    async openStore(uri, name) {
      const { objectArtifacts } = await import("../models/places/objects.js");
      const ofMlflow = uri.startsWith("s3:") ? process.env["MLFLOW_S3_ENDPOINT_URL"] : undefined;
      const place = { ...model, endpoint: model.endpoint ?? ofMlflow };
      const artifacts = { store: await openStore(uri, place, options), endpoint: urlOfStore(uri, place) };
      return objectArtifacts(artifacts, uri, `model ${name}`);
    },
  });
}

async function remoteOptions(options: ModelOptions): Promise<RemoteOptions> {
  const { retry, signal } = options;
  return { cache: await openCache(options), retry, signal, findProxy: proxiesOf(process.env) };
}

export async function openCache({ writer, isDead, kind }: ModelOptions): Promise<ModelCache> {
  const { openModelCache } = await import("../models/places/cache.js");
  const folder = cacheFolder(kind === undefined ? "models" : `${kind.noun}s`);
  return openModelCache({ folder, writer, isDead, ...(kind === undefined ? {} : { kind }) });
}
