import { basename, isAbsolute, relative, resolve, sep } from "node:path";
import { outputColumns } from "../binding/contract.js";
import { outputRowBytes } from "../binding/row-bytes.js";
import { type DuckDbOptions, openDuckDbLazily } from "../duckdb/instance.js";
import { runIdOf, type Sha256 } from "../plan/identity.js";
import type { Plan } from "../plan/plan.js";
import { type OpenKeyDuckDb, openParquetSink } from "../sink/parquet/sink.js";
import { layoutOf, plannedLayout } from "../sink/parquet/layout.js";
import { commitConcurrency, type Sink } from "../sink/port.js";
import type { Secrets } from "../sink/postgres/connect.js";
import type { JobSpec } from "../spec/job-spec.js";
import type { LoadedSpec } from "../spec/load.js";
import { isObjectUri, objectFolder, objectUriText, parseObjectUri } from "../spec/object-uri.js";
import type { ParquetOutputSpec, TargetSpecs } from "../spec/parquet-spec.js";
import type { PostgresOutputSpec } from "../spec/postgres-spec.js";
import { secretFile } from "../spec/secrets.js";
import { anyValue } from "../spec/template.js";
import type { OutputFolder } from "../storage/port.js";
import type { DiskPlan } from "../stores/disk-rehearsal.js";
import { nodeFileSystem, openDiskStore } from "../stores/disk.js";
import type { MemoryBudget } from "../util/memory-budget.js";
import type { RetryTools } from "../util/retry.js";
import { openSpool, type Spool, spoolRoot } from "../util/spool.js";
import { openStore, urlOfStore } from "./open-store.js";
import { readSecret } from "./reading/given-files.js";
import { programVersion } from "./version.js";

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
  /** The output's path with `anyValue` in the place of each param. */
  readonly outputPattern: string;
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
    otherRunFolders: { root: "", pattern: segmentPatterns(resolve(options.folder, outputPattern).split(sep).slice(1)) },
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
  const { key, ...place } = parseObjectUri(objectFolder(options.outputPattern));
  return openParquetSink({
    folder,
    target: folder,
    uri: path,
    storeAt: () => openStoreOfObjects({ objects, spool, writer, isDead }),
    failure: "OBJECT_STORE",
    duckdb: openDuckDbLazily({ ...encodingOptions(options), allowed: { folders: [spool.folder] } }),
    openKeyDuckDb: keyDuckDb(options, spool.folder),
    compression,
    otherRunFolders: { root: objectUriText({ ...place, key: "" }), pattern: segmentPatterns(key.split("/")) },
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
