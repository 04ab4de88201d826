import { basename, isAbsolute, relative, resolve, sep } from "node:path";
import { outputColumns } from "../binding/contract.js";
import { outputRowBytes } from "../binding/row-bytes.js";
import { type DuckDbOptions, openDuckDbLazily } from "../duckdb/instance.js";
import type { FileKind, ModelCache, RemoteOptions } from "../models/cache.js";
import { fileModels } from "../models/model-file.js";
import type { ModelPin, ModelSource, ResolvedModel } from "../models/port.js";
import { type StorePlace, openStoreAt, storeUrl } from "../objects/open.js";
import type { ObjectStore, RequestOptions } from "../objects/store.js";
import { type Sha256, runIdOf } from "../plan/identity.js";
import type { Plan } from "../plan/plan.js";
import { type OpenKeyDuckDb, openParquetSink } from "../sink/parquet/sink.js";
import { layoutOf, plannedLayout } from "../sink/parquet/layout.js";
import type { OtherFolders } from "../sink/parquet/other-runs.js";
import { type Sink, commitConcurrency } from "../sink/port.js";
import type { Secrets } from "../sink/postgres/connect.js";
import type { InputSpec, StoreSpec } from "../spec/input-spec.js";
import type { JobSpec } from "../spec/job-spec.js";
import type { LoadedSpec } from "../spec/load.js";
import type { ModelSpec } from "../spec/model-spec.js";
import type { ParquetOutputSpec, PostgresOutputSpec, StoreOutputSpec, TargetSpecs } from "../spec/output-spec.js";
import { secretFile } from "../spec/secrets.js";
import type { OutputPattern } from "../spec/fill-document.js";
import { anyValue } from "../spec/template.js";
import {
  isHttpUri,
  isHubUri,
  isMlflowUri,
  isObjectUri,
  objectFolder,
  objectUriText,
  parseObjectUri,
} from "../spec/uri.js";
import type { OutputFolder, Source } from "../storage/port.js";
import type { DiskPlan } from "../stores/disk-rehearsal.js";
import { nodeFileSystem, openDiskStore } from "../stores/disk.js";
import { cacheFolder } from "../util/cache-folder.js";
import type { MemoryBudget } from "../util/memory-budget.js";
import type { RetryTools } from "../util/retry.js";
import { type Spool, openSpool, spoolRoot } from "../util/spool.js";
import { programVersion } from "./attempt.js";
import { refuseSmallAddressSpace } from "./machine.js";
import { readSecret } from "./reading.js";
import { proxiesOf } from "../net/request.js";
import { combineSources } from "../storage/listing.js";
import { diskSource } from "../storage/disk.js";

interface SourceOptions {
  /** The folder of the spec. */
  readonly folder: string;
  readonly output: OutputFolder | undefined;
  /** A file that is read in addition to the shards. */
  readonly golden: string | undefined;
  readonly retry: RetryTools;
  /** Identifies this process among all processes on all machines. */
  readonly writer: string;
  readonly isDead: (writer: string) => boolean;
  readonly signal: AbortSignal;
}

/** Opens the source of the shards: the disk, and the store that the spec names. The code for that is loaded only then. */
export async function openSource(input: InputSpec, options: SourceOptions): Promise<Source> {
  const { folder, output, golden = "", writer, isDead } = options;
  const inStore = output !== undefined && isObjectUri(output.folder);
  const disk = diskSource({ folder, output: inStore ? undefined : output });
  const uri = [...input.path, input.ready ?? "", golden].find(isObjectUri);
  if (uri === undefined) {
    return disk;
  }
  refuseSmallAddressSpace();
  const { openReaderThread } = await import("../storage/reader.js");
  const { place, requests } = placeOf(uri, input, options);
  const reader = openReaderThread(place, requests); // first: it takes longest to start
  const { objectSource } = await import("../storage/objects.js");
  const { path, max_mb: maxMb } = input.spool;
  const root = spoolRoot(folder, path);
  const spool = openSpool({ root, writer, use: "in", isDead, maxBytes: maxMb * 1024 * 1024 });
  return combineSources({ disk, objects: objectSource({ reader, spool, output: inStore ? output : undefined }) });
}

type PlaceSpec = StoreSpec & Pick<StoreOutputSpec, "sse">;

/** The store that a URI of a part of the spec is in. */
interface PlaceInStore {
  readonly place: StorePlace;
  readonly requests: RequestOptions;
}

/** Returns how to reach the store that `uri` is in, as a part of the spec says. */
function placeOf(uri: string, spec: PlaceSpec, { retry, signal }: StoreOptions): PlaceInStore {
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

type StoreOptions = Pick<RequestOptions, "retry" | "signal">;

/** Opens the store that `uri` is in. */
async function openStore(uri: string, spec: PlaceSpec, options: StoreOptions): Promise<ObjectStore> {
  const { place, requests } = placeOf(uri, spec, options);
  return await openStoreAt(place, requests);
}

/** Identifies the store that `uri` is in: its URL; empty for the one of AWS, Google or Azure. */
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

export interface SinkOptions {
  /** The folder of the spec. */
  readonly folder: string;
  /** Identifies this process among all processes on all machines. */
  readonly writer: string;
  readonly isDead: (writer: string) => boolean;
  readonly retry: RetryTools;
  readonly warn: (message: string) => void;
  readonly signal: AbortSignal;
  readonly cores: number;
  readonly memory: MemoryBudget;
  readonly attempt: Permissions;
  readonly outputPattern: OutputPattern;
  readonly variablesOf: LoadedSpec["variablesOf"];
  readonly where: LoadedSpec["where"];
}

/** A target that a spec names, as the program uses it. */
interface ChosenTarget {
  /** Names the target in reports. */
  readonly name: string;
  open(options: SinkOptions): Promise<Sink>;
  /** Where predictions are written as files, which are no input. Default: nowhere. */
  writtenTo?(spec: JobSpec, place: Place): OutputFolder | undefined;
}

interface Place {
  /** The folder of the spec. */
  readonly folder: string;
  readonly sha256: Sha256;
}

/** The kinds of targets. A new kind needs a key in `TargetSpecs`, a sink below `src/sink/`, and an entry here. */
const targetKinds: Readonly<Record<keyof TargetSpecs, (output: TargetSpecs) => ChosenTarget | undefined>> = {
  parquet: ({ parquet }) =>
    parquet && {
      name: parquet.path,
      open: (options) => (isObjectUri(parquet.path) ? openInStore(parquet, options) : openOnDisk(parquet, options)),
      writtenTo: (spec, place) => filesOf(parquet, spec, place),
    },
  postgres: ({ postgres }) =>
    postgres && { name: postgres.table, open: (options) => openInPostgres(postgres, options) },
};

/** undefined where rows go through a pipe. */
function chosenTarget({ output }: JobSpec): ChosenTarget | undefined {
  return Object.values(targetKinds)
    .map((choose) => choose(output))
    .find((target) => target !== undefined);
}

/** Opens the target that a spec names: files on a disk or in a store of objects, or a table in Postgres. */
export async function openSink(spec: JobSpec, options: SinkOptions): Promise<Sink> {
  const target = chosenTarget(spec);
  if (target === undefined) {
    throw new Error("a spec without a target has passed its check");
  }
  return await target.open(options);
}

/** Names the target in reports. */
export function targetName(spec: JobSpec): string {
  return chosenTarget(spec)?.name ?? "stdout";
}

/** Where predictions are written as files, which are no input. */
export function writtenTo(spec: JobSpec, place: Place): OutputFolder | undefined {
  return chosenTarget(spec)?.writtenTo?.(spec, place);
}

async function openInPostgres(postgres: PostgresOutputSpec, options: SinkOptions): Promise<Sink> {
  // Loaded where it is used: a job that writes files starts the sooner.
  const { connectionOf, openPostgresSink } = await import("../sink/postgres/sink.js");
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

/** Reads URL and password as they are now. @throws JobError as `readSecret` */
async function secretsOf({ url, password }: PostgresOutputSpec, { folder, where }: SinkOptions): Promise<Secrets> {
  return {
    url: await readSecret(url, { folder, key: where(urlKey) }),
    password:
      password === undefined
        ? undefined
        : await readSecret(password, { folder, key: where(["output", "postgres", "password"]) }),
  };
}

// oxlint-disable-next-line require-await -- a kind of target is opened asynchronously
async function openOnDisk({ path, compression }: ParquetOutputSpec, options: SinkOptions): Promise<Sink> {
  const { outputPattern, writer, isDead, warn } = options;
  const folder = resolve(options.folder, path);
  return openParquetSink({
    folder,
    target: shortPath(folder),
    uri: path,
    storeAt: (root) => openDiskStore({ root, fs: nodeFileSystem, writer, isDead }),
    failure: "DISK",
    duckdb: openDuckDbLazily({ ...encodingOptions(options), allowed: { folders: [folder] } }),
    openKeyDuckDb: keyDuckDb(options, folder),
    compression,
    otherRunFolders: {
      root: "",
      ...patternsOf(outputPattern, (pattern) => resolve(options.folder, pattern).split(sep).slice(1)),
    },
    async rehearse(plan) {
      const { rehearse } = await import("../stores/disk-rehearsal.js"); // which only dry runs need
      return await rehearse(onDisk(folder, plan));
    },
    close: () => Promise.resolve(),
    writer,
    warn,
  });
}

/** What a run would write into a folder. */
function onDisk(folder: string, plan: Plan): DiskPlan {
  const { runs, control, temporary, parts, rejects, success, manifest } = plannedLayout(folder, plan);
  return {
    folder,
    working: [runs, control, temporary, ...(parts === folder ? [] : [parts])],
    folders: [basename(rejects)],
    files: [basename(success), basename(manifest)],
    bytes: plan.input.rows * outputRowBytes(plan.contract),
    columns: outputColumns(plan.contract).length,
  };
}

async function openInStore(parquet: ParquetOutputSpec, options: SinkOptions): Promise<Sink> {
  const { openStoreOfObjects } = await import("../stores/objects.js");
  const { path, compression } = parquet;
  const { writer, isDead, warn } = options;
  const spool = spoolOf(options, "out", parquet.spool?.path);
  const objects = await openStore(path, parquet, options);
  const folder = objectFolder(path);
  return openParquetSink({
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
    writer,
    warn,
  });
}

/** Opens a spool whose size needs no limit: "out" holds two parts at most, the others hold what memory cannot. */
function spoolOf({ folder, writer, isDead }: SinkOptions, use: Spool["use"], path: string | undefined): Spool {
  return openSpool({ root: spoolRoot(folder, path), writer, use, isDead, maxBytes: Number.POSITIVE_INFINITY });
}

/** Opens a DuckDB for the keys of all rows of a run: what does not fit in memory goes to a spool. */
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

function filesOf(
  parquet: ParquetOutputSpec,
  { name, params, input }: JobSpec,
  { folder, sha256 }: Place,
): OutputFolder | undefined {
  const inStore = isObjectUri(parquet.path);
  if (inStore && urlOfStore(parquet.path, parquet) !== urlOfStore(parquet.path, input)) {
    return undefined; // a bucket of the same name in another store
  }
  const path = inStore ? objectFolder(parquet.path) : resolve(folder, parquet.path);
  const layout = layoutOf(path, runIdOf(name, params, sha256));
  return { folder: layout.folder, part: layout.part(0) };
}

function patternsOf(
  { job, series }: OutputPattern,
  segmentsOf: (pattern: string) => readonly string[],
): Omit<OtherFolders, "root"> {
  return { job: segmentPatterns(segmentsOf(job)), series: segmentPatterns(segmentsOf(series)) };
}

/** Turns the segments of a path into names, or into a `RegExp` where a param is part of the name. */
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

/**
 * Returns how many threads and how much memory DuckDB uses to encode parts, which are encoded side by side. With one
 * thread, the caller encodes the part itself and does not poll for another thread.
 */
function encodingOptions({ cores, memory }: SinkOptions): Pick<DuckDbOptions, "threads" | "memoryBytes"> {
  return { threads: Math.max(1, Math.floor(cores / commitConcurrency)), memoryBytes: memory.duckDbBytes };
}

export interface ModelOptions {
  /** The folder of the spec. */
  readonly folder: string;
  readonly retry: RetryTools;
  /** Identifies this process among all processes on all machines. */
  readonly writer: string;
  readonly isDead: (writer: string) => boolean;
  readonly signal: AbortSignal;
  /** What is resolved. Default: models. */
  readonly kind?: FileKind | undefined;
}

interface SourceKind {
  readonly owns: (uri: string) => boolean;
  readonly open: (model: ModelPlace, options: ModelOptions) => Promise<ModelSource>;
}

/** The kinds of model URIs. The first one that owns a URI resolves it. */
const kinds: readonly SourceKind[] = [
  { owns: isObjectUri, open: openObjectModels },
  { owns: isHttpUri, open: openHttpModels },
  { owns: isHubUri, open: openHubModels },
  { owns: isMlflowUri, open: openMlflowModels },
  { owns: () => true, open: (_model, { folder, kind }) => Promise.resolve(fileModels(folder, kind?.open)) },
];

/** The keys of `model` that say where it is. */
interface ModelPlace extends Pick<ModelSpec, "sha256" | "registry" | keyof StoreSpec> {
  readonly path: string;
}

/** Resolves a model URI. @param planned the model that the plan of an unfinished run pins */
export async function resolveModel(
  model: ModelPlace,
  options: ModelOptions,
  planned?: ModelPin,
): Promise<ResolvedModel> {
  const kind = kinds.find(({ owns }) => owns(model.path));
  if (kind === undefined) {
    throw new Error(`no source of models for ${model.path}`);
  }
  using source = await kind.open(model, options);
  const { path, sha256 } = model;
  return await source.resolve(path, planned ?? (sha256 === undefined ? undefined : { sha256 }));
}

async function openObjectModels(model: ModelPlace, options: ModelOptions): Promise<ModelSource> {
  const { objectModels } = await import("../models/objects.js");
  const cache = await openCache(options);
  return objectModels({
    store: await openStore(model.path, model, options),
    endpoint: urlOfStore(model.path, model),
    cache,
  });
}

async function openHttpModels(_model: ModelPlace, options: ModelOptions): Promise<ModelSource> {
  const { httpModels } = await import("../models/https.js");
  return httpModels(await remoteOptions(options));
}

async function openHubModels(_model: ModelPlace, options: ModelOptions): Promise<ModelSource> {
  const { hubModels, hubSettings } = await import("../models/huggingface.js");
  return hubModels({ ...(await remoteOptions(options)), ...(await hubSettings(process.env)) });
}

async function openMlflowModels(model: ModelPlace, options: ModelOptions): Promise<ModelSource> {
  const { mlflowModels } = await import("../models/mlflow.js");
  return mlflowModels({
    ...(await remoteOptions(options)),
    registryUrl: model.registry?.url,
    env: process.env,
    async openStore(uri, name) {
      const { objectArtifacts } = await import("../models/objects.js");
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

/** Opens the cache of this machine's models. */
export async function openCache({ writer, isDead, kind }: ModelOptions): Promise<ModelCache> {
  const { openModelCache } = await import("../models/cache.js");
  const folder = cacheFolder(kind === undefined ? "models" : `${kind.noun}s`);
  return openModelCache({ folder, writer, isDead, ...(kind === undefined ? {} : { kind }) });
}
