import { isAbsolute, relative, resolve, sep } from "node:path";
import { openDuckDbLazily } from "../duckdb/instance.js";
import { runIdOf, type Sha256 } from "../plan/identity.js";
import type { RetryTools } from "../util/retry.js";
import { nodeFileSystem } from "../sink/parquet/common/file-system.js";
import { layoutOf } from "../sink/parquet/common/layout.js";
import { openParquetSink } from "../sink/parquet/local/sink.js";
import { commitConcurrency, type Sink } from "../sink/port.js";
import type { OutputFolder } from "../storage/output-folder.js";
import { anyValue } from "../spec/fill-document.js";
import type { JobSpec, TargetSpecs } from "../spec/job-spec.js";
import type { LoadedSpec } from "../spec/load.js";
import { type ParquetOutputSpec, s3Folder } from "../spec/parquet-spec.js";
import type { PostgresOutputSpec } from "../spec/postgres-spec.js";
import { isS3Uri } from "../spec/s3-uri.js";
import { readSecret } from "./secrets.js";
import { secretFile } from "../spec/secrets.js";
import type { Secrets } from "../sink/postgres/connect.js";
import { openTarget, spoolRoot, storeUrl } from "./open-store.js";
import { programVersion } from "./version.js";

/** What an attempt may do that is refused by default. */
export interface Permissions {
  /** A new run may add rows that an earlier one has added before. */
  readonly allowDuplicates?: boolean;
  /** Rows may take the place of those of a run that was planned later. */
  readonly allowOlder?: boolean;
}

export interface SinkTools {
  /** The spec's. */
  readonly folder: string;
  /** Names this process among all on all machines. */
  readonly writer: string;
  readonly isDead: (writer: string) => boolean;
  readonly retry: RetryTools;
  readonly warn: (message: string) => void;
  readonly signal: AbortSignal;
  readonly cores: number;
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
  open(tools: SinkTools): Promise<Sink>;
  /** Where predictions are written as files, which are no input. Default: nowhere. */
  writtenTo?(spec: JobSpec, place: Place): OutputFolder | undefined;
}

interface Place {
  /** The spec's. */
  readonly folder: string;
  readonly sha256: Sha256;
}

/** All kinds of targets. A new one: its key in `TargetSpecs`, its sink below `src/sink/`, and an entry here. */
const targetKinds: Readonly<Record<keyof TargetSpecs, (output: TargetSpecs) => ChosenTarget | undefined>> = {
  parquet: ({ parquet }) =>
    parquet && {
      name: parquet.path,
      open: (tools) => (isS3Uri(parquet.path) ? openInS3(parquet, tools) : openOnDisk(parquet, tools)),
      writtenTo: (spec, place) => filesOf(parquet, spec, place),
    },
  postgres: ({ postgres }) => postgres && { name: postgres.table, open: (tools) => openInPostgres(postgres, tools) },
};

/** undefined where rows go through a pipe. */
function chosenTarget({ output }: JobSpec): ChosenTarget | undefined {
  return Object.values(targetKinds)
    .map((choose) => choose(output))
    .find((target) => target !== undefined);
}

/** Opens the target that a spec names: files on a disk or in S3, or a table in Postgres. */
export async function openSink(spec: JobSpec, tools: SinkTools): Promise<Sink> {
  const target = chosenTarget(spec);
  if (target === undefined) {
    throw new Error("a spec without a target has passed its check");
  }
  return await target.open(tools);
}

/** Names the target in reports. */
export function targetName(spec: JobSpec): string {
  return chosenTarget(spec)?.name ?? "stdout";
}

/** Where predictions are written as files, which are no input. */
export function writtenTo(spec: JobSpec, place: Place): OutputFolder | undefined {
  return chosenTarget(spec)?.writtenTo?.(spec, place);
}

async function openInPostgres(postgres: PostgresOutputSpec, tools: SinkTools): Promise<Sink> {
  // Loaded where it is used: a job that writes files starts the sooner.
  const { connectionOf, openPostgresSink } = await import("../sink/postgres/sink.js");
  const isFromFile = [postgres.url, postgres.password ?? ""].some((value) => secretFile(value) !== undefined);
  const read = (): Promise<Secrets> => secretsOf(postgres, tools);
  return openPostgresSink({
    spec: postgres,
    settings: connectionOf({ ...postgres, ...(await read()) }, process.env, {
      variables: tools.variablesOf(urlKey),
      reread: isFromFile ? read : undefined,
    }),
    retry: tools.retry,
    writer: tools.writer,
    allowDuplicates: tools.attempt.allowDuplicates === true,
    allowOlder: tools.attempt.allowOlder === true,
    program: `infer-batch ${programVersion}`,
  });
}

const urlKey = ["output", "postgres", "url"];

/** As they are now. @throws JobError as `readSecret` */
async function secretsOf({ url, password }: PostgresOutputSpec, { folder, where }: SinkTools): Promise<Secrets> {
  return {
    url: await readSecret(url, { folder, key: where(urlKey) }),
    password:
      password === undefined
        ? undefined
        : await readSecret(password, { folder, key: where(["output", "postgres", "password"]) }),
  };
}

async function openOnDisk({ path, compression }: ParquetOutputSpec, tools: SinkTools): Promise<Sink> {
  const { folder, outputPattern, writer, isDead, warn } = tools;
  return openParquetSink({
    folder: resolve(folder, path),
    duckdb: openDuckDbLazily({ threads: encodingThreads(tools.cores), allowed: { folders: [resolve(folder, path)] } }),
    target: shortPath(resolve(folder, path)),
    uri: path,
    compression,
    siblings: segmentPatterns(resolve(folder, outputPattern).split(sep).slice(1)),
    fs: nodeFileSystem,
    writer,
    isDead,
    warn,
  });
}

async function openInS3(parquet: ParquetOutputSpec, tools: SinkTools): Promise<Sink> {
  const { openS3Sink } = await import("../sink/parquet/s3/sink.js");
  const { openSpool } = await import("../s3/spool.js");
  const { path, compression, spool } = parquet;
  const { writer, isDead, warn } = tools;
  const root = spoolRoot(tools.folder, spool?.path);
  // Of bytes it is asked nothing: at most two parts are there at once.
  const outgoing = openSpool({ root, writer, use: "out", isDead, maxBytes: Number.POSITIVE_INFINITY });
  return openS3Sink({
    store: await openTarget(parquet, tools),
    folder: s3Folder(path),
    uri: path,
    spool: outgoing,
    duckdb: openDuckDbLazily({ threads: encodingThreads(tools.cores), allowed: { folders: [outgoing.folder] } }),
    compression,
    siblings: segmentPatterns(s3Folder(tools.outputPattern).split("/").slice(3)),
    writer,
    isDead,
    warn,
  });
}

function filesOf(
  parquet: ParquetOutputSpec,
  { name, params, input }: JobSpec,
  { folder, sha256 }: Place,
): OutputFolder | undefined {
  const inS3 = isS3Uri(parquet.path);
  if (inS3 && storeUrl(parquet) !== storeUrl(input)) {
    return undefined; // a bucket of the same name in another store
  }
  const path = inS3 ? s3Folder(parquet.path) : resolve(folder, parquet.path);
  const layout = layoutOf(path, runIdOf(name, params, sha256));
  return { folder: layout.folder, part: layout.part(0) };
}

/** Names on the way to a folder; a `RegExp` where a param makes the name. */
function segmentPatterns(segments: readonly string[]): (string | RegExp)[] {
  return segments.map((segment) =>
    segment.includes(anyValue) ? new RegExp(`^${segment.split(anyValue).map(escapeRegExp).join(".*")}$`) : segment,
  );
}

function escapeRegExp(text: string): string {
  return text.replaceAll(/[\\^$.*+?()[\]{}|]/g, "\\$&");
}

/** Relative where that is shorter to read: below the working directory. */
function shortPath(path: string): string {
  const short = relative(process.cwd(), path);
  return short !== "" && !short.startsWith("..") && !isAbsolute(short) ? short : path;
}

/**
 * DuckDB's for each of its parts, which are encoded side by side: where it has one of its own, the thread that waits for
 * a part encodes it, and does not ask again and again whether another one has.
 */
function encodingThreads(cores: number): number {
  return Math.max(1, Math.floor(cores / commitConcurrency));
}
