import { type CommandLine, jsonFlag, type CommandAnswer } from "../flags.js";
import { type FileHandle, open, readdir, stat } from "node:fs/promises";
import { extname, resolve } from "node:path";
import { attemptServices } from "../../job/attempt.js";
import { resolveModel } from "../../job/kinds.js";
import { fileError } from "../../job/reading.js";
import { startScoringWorker } from "../../job/threads/worker-threads.js";
import { showTensor, signatureDifferences } from "../../models/binding/signatures.js";
import { type ModelTraits, batchDependence, lostOutputs } from "../../models/binding/model-facts.js";
import type { ModelSignature, TensorSignature } from "../../columns/tensor.js";
import { openOnnxEngine } from "../../models/onnx/engine.js";
import { inspectArrow } from "../../formats/arrow/inspect.js";
import { showType } from "../../columns/types.js";
import { openLakeTools } from "../../job/duckdb.js";
import { diskSource } from "../../sources/disk.js";
import { lakeReader, readLake } from "../../sources/lake/source.js";
import { inspectParquet } from "../../formats/parquet/inspect.js";
import type { ShardDetails } from "../../formats/format.js";
import { type OnnxFile, openModelFile } from "../../models/places/model-file.js";
import type { ResolvedModel } from "../../models/places/place.js";
import { modelName } from "../../report/plan-text.js";
import { showBytes, showCount, count } from "../../base/shown-numbers.js";
import { table } from "../../report/table.js";
import { isModelUri, isObjectUri, modelUriProblem, objectUriProblem } from "../../job/jobfile/uri.js";
import { JobError, messageOf } from "../../base/errors.js";
import { printable } from "../../base/texts.js";
import type { SafeIo } from "../io.js";
import { createWarningLog } from "../logger.js";

export const inspectCommand: CommandLine = {
  argument: [
    "ONNX model, Parquet file, Arrow file or stream, or folder of a Delta or Iceberg table on this machine, detected by content; or the URI of a model, as model.path",
  ],
  flags: {
    "--at <version>": "Of a table: a version or the id of a snapshot, a time, a branch or a tag; default: the newest",
    ...jsonFlag,
  },
  examples: [
    "infer-batch inspect churn.onnx",
    "infer-batch inspect data/part-0.parquet",
    "infer-batch inspect lake/features --at 2026-11-20",
  ],
  run: inspect,
};

/** Nothing is written, except that a model at a URI is fetched into the cache. */
async function inspect(file: string, { at = "latest" }: { readonly at?: string }, io: SafeIo): Promise<CommandAnswer> {
  const problem = modelUriProblem(file) ?? (isObjectUri(file) ? objectUriProblem(file) : undefined);
  if (problem !== undefined || isModelUri(file)) {
    return await inspectRemote(file, problem, io);
  }

  const showShard = (details: ShardDetails): CommandAnswer => {
    const shard = { ...details, path: file };
    return { json: () => shardJson(shard), text: () => shardText(shard) };
  };
  if ((await stat(file).catch(() => undefined))?.isDirectory() === true) {
    return await inspectTable(file, at);
  }
  const ends = await readEnds(file);
  if (parquetMagic.test(ends.head) || parquetMagic.test(ends.tail)) {
    return showShard(await inspectParquet(resolve(file)));
  }
  if (arrowMagic.test(ends.head) || arrowName.test(file)) {
    return showShard(await inspectArrow(resolve(file)));
  }
  const model = await openModelFile(resolve(file), (_path, cause) => neither(file, ends.head, cause));
  return await showModel(model, file);
}

async function inspectTable(folder: string, at: string): Promise<CommandAnswer> {
  const names = await readdir(folder).catch((error: unknown) => {
    throw fileError(`inspecting ${folder}`, error, readable);
  });
  if (!names.includes("_delta_log") && !names.includes("metadata")) {
    throw new JobError("FILE_MISSING", `inspecting ${folder}: it is a folder, and no Delta or Iceberg table`, {
      hint: "name one .onnx, .parquet or .arrow file, or the folder of a table",
    });
  }
  const root = resolve(folder);
  const source = diskSource({ folder: root, output: undefined });
  await using tools = await openLakeTools(root);
  const { format, snapshot } = await readLake({ source, reader: lakeReader(source, tools), table: root }, at);
  const { version, columns, files } = snapshot;
  const counted = await Promise.all(
    files.map(async (file) => ({ ...file, removed: file.removedCount ?? (await file.removed()).length })),
  );
  const sum = (of: (file: (typeof counted)[number]) => number): number =>
    counted.reduce((all, file) => all + of(file), 0);
  const [rows, removed, bytes] = [
    sum((file) => file.rows ?? Number.NaN),
    sum((file) => file.removed),
    sum((file) => file.sizeBytes),
  ];
  const shown = columns.map(({ name, type }) => ({ name, type: type === undefined ? null : showType(type) }));
  const facts: [string, string][] = [
    ["table", folder],
    ["format", format === "delta" ? "Delta" : "Iceberg"],
    [format === "delta" ? "version" : "snapshot", version],
    ["rows", Number.isNaN(rows) ? "unknown: not all files tell theirs" : showCount(rows - removed)],
    ["removed", removed === 0 ? "" : `${count(removed, "row")} of the files below`],
    ["files", `${count(files.length, "file")}, ${showBytes(bytes)}`],
  ];
  const types = shown.map(({ name, type }) => [name, type ?? "a type that is not read"]);
  const about = { kind: "table", path: folder, format, version, rows: rows - removed, rows_removed: removed };
  return {
    json: () => ({ ...about, files: files.length, size_bytes: bytes, columns: shown }), // as JSON, NaN is null
    text: () => [...factLines(facts), ...section("columns", table(types))],
  };
}

async function inspectRemote(uri: string, problem: string | undefined, io: SafeIo): Promise<CommandAnswer> {
  if (problem !== undefined || shardName.test(uri)) {
    throw new JobError("USAGE", `inspecting ${uri}: ${problem ?? "shards are inspected on this machine only"}`, {
      hint: "a URI names a model, as model.path does; fetch a shard first, such as with `aws s3 cp` or curl",
    });
  }
  const { signal } = new AbortController();
  const services = attemptServices({ retry: { max_seconds: retrySeconds } }, createWarningLog(io.stderr), signal);
  const resolved = await resolveModel({ path: uri }, { folder: ".", ...services });
  return await showModel(await openModelFile(resolved.file.path), uri, resolved);
}

/** `inspect` retries only for a short time, because a person waits for it. */
const retrySeconds = 30;

/** The last argument is what a registry says of the model. */
async function showModel(
  model: OnnxFile,
  path: string,
  { version, signature: declared }: Partial<ResolvedModel> = {},
): Promise<CommandAnswer> {
  const alone = { sessions: 1, intraOpThreads: 1 };
  await using engine = await openOnnxEngine({ model, providers: ["cpu"], startWorker: startScoringWorker, ...alone });
  const { signature } = engine;
  const differences = declared === undefined ? [] : signatureDifferences(declared, signature);
  const shown = { ...model, path, signature, version, differences };
  return { json: () => modelJson(shown), text: () => modelText(shown) };
}

/** Both ends of a Parquet file; PARE if its footer is encrypted. One end is enough to tell what the file should be. */
const parquetMagic = /^PAR[1E]/;
/** The start of an Arrow file, or of a stream since Arrow 0.15. */
const arrowMagic = /^(ARROW1|FEA1|\xff{4})/;
const shardName = /\.(parquet|pq|arrow|arrows|feather|ipc)$/i;
const arrowName = /\.(arrow|arrows|feather|ipc)$/i;
const tailBytes = 4;
const headBytes = 32;

const readable =
  "name one .onnx, .parquet or .arrow file that this user can read; the path is relative to the working folder";

/** In latin1. */
async function readEnds(path: string): Promise<{ readonly head: string; readonly tail: string }> {
  try {
    const stats = await stat(path);
    if (!stats.isFile()) {
      throw new JobError("FILE_MISSING", `inspecting ${path}: it is not a plain file`, {
        hint: "name one .onnx, .parquet or .arrow file",
      });
    }
    await using file = await open(path);
    return {
      head: await readAt(file, 0, Math.min(headBytes, stats.size)),
      tail: await readAt(file, Math.max(0, stats.size - tailBytes), tailBytes),
    };
  } catch (error) {
    throw fileError(`inspecting ${path}`, error, readable);
  }
}

async function readAt(file: FileHandle, position: number, length: number): Promise<string> {
  const { buffer, bytesRead } = await file.read(Buffer.alloc(length), 0, length, position);
  return buffer.toString("latin1", 0, bytesRead);
}

const others = [
  { head: "PK\x03\x04", what: "a zip archive, as PyTorch saves", hint: "export the model to ONNX" },
  { head: "\x80", what: "a Python pickle", hint: "convert the model to ONNX, such as with skl2onnx" },
  { head: "\x89HDF", what: "an HDF5 file, as Keras saves", hint: "convert the model to ONNX, such as with tf2onnx" },
  { head: "\x1f\x8b", what: "gzip", hint: "unpack it" },
  { head: "version https://git-lfs", what: "a Git LFS pointer", hint: "fetch the file: git lfs pull" },
];
const nothing = { what: "empty", hint: "was it copied whole?" };

/** With the code that a run would have: a shard is data, a model is part of the job. */
function neither(path: string, head: string, cause: unknown): JobError {
  const known = head === "" ? nothing : others.find((kind) => head.startsWith(kind.head));
  const code = /^\.(parquet|pq)$/i.test(extname(path)) ? "SHARD_CORRUPT" : "MODEL_INVALID";
  const what =
    known === undefined
      ? `it is neither Parquet (no PAR1 at its start or end), nor Arrow, nor ONNX (read as protobuf: ${messageOf(cause)})`
      : `it is ${known.what}, neither an ONNX model nor a shard in Parquet or Arrow`;
  return new JobError(code, `inspecting ${path}: ${what}`, {
    hint: known?.hint ?? "is this the right file, and was it copied whole?",
    cause,
  });
}

interface InspectedModel extends OnnxFile {
  readonly signature: ModelSignature;
  readonly version?: string | undefined;
  readonly differences: readonly string[];
}

const maxCharacters = 100;

function modelText(model: InspectedModel): string[] {
  const { path, version, fileBytes, sha256, externalData, proto, signature, traits } = model;
  const facts: [string, string][] = [
    ["model", modelName({ uri: path, version })],
    ["size", exactBytes(fileBytes)],
    ...externalData.map((file): [string, string] => ["external", `${file.location}, ${exactBytes(file.sizeBytes)}`]),
    ["sha256", sha256],
    ["opset", proto.opsetImports.map(({ domain, version: opset }) => `${opsetDomain(domain)} ${opset}`).join(", ")],
    ["ir", String(proto.irVersion)],
    ["producer", firstLine(`${proto.producerName} ${proto.producerVersion}`)],
    ["domain", proto.domain],
    ["version", proto.modelVersion === 0n ? "" : String(proto.modelVersion)],
    ["doc", firstLine(proto.docString)],
  ];
  return [
    ...factLines(facts),
    ...section("metadata", table([...proto.metadataProps].map(([key, value]) => [key, firstLine(value)]))),
    ...section("inputs", table(signature.inputs.map((tensor) => [tensor.name, showTensor(tensor)]))),
    ...section("outputs", table(signature.outputs.map((tensor) => [tensor.name, outputType(tensor, traits)]))),
    ...section(
      "notes",
      notesOf(model).map((note) => `  ${note}`),
    ),
  ];
}

function modelJson(model: InspectedModel): object {
  const { path, version, fileBytes, sha256, externalData, proto, signature } = model;
  const notes = notesOf(model);
  return {
    kind: "model",
    path,
    ...(version === undefined ? {} : { version }),
    size_bytes: fileBytes,
    sha256,
    external_data: externalData.map((file) => ({ location: file.location, size_bytes: file.sizeBytes })),
    ir_version: jsonInteger(proto.irVersion),
    opset_imports: proto.opsetImports.map(({ domain, version: opset }) => ({
      domain: opsetDomain(domain),
      version: jsonInteger(opset),
    })),
    producer_name: proto.producerName,
    producer_version: proto.producerVersion,
    domain: proto.domain,
    model_version: jsonInteger(proto.modelVersion),
    doc_string: proto.docString,
    metadata_props: Object.fromEntries(proto.metadataProps),
    inputs: signature.inputs.map(tensorJson),
    outputs: signature.outputs.map(tensorJson),
    ...(notes.length === 0 ? {} : { notes }),
  };
}

function outputType(tensor: TensorSignature, { otherOutputs }: ModelTraits): string {
  return otherOutputs.find(({ name }) => name === tensor.name)?.type ?? showTensor(tensor);
}

function notesOf({ traits, differences }: InspectedModel): string[] {
  const dependence = batchDependence(traits);
  const signature =
    differences.length === 0 ? [] : [`the registry declares another signature: ${differences.join("; ")}`];
  return [...lostOutputs(traits, undefined), ...(dependence === undefined ? [] : [dependence]), ...signature];
}

/** `dtype` and `shape` are null for a value that is not a tensor; a dynamic dimension is null. */
function tensorJson({ name, dtype, shape }: TensorSignature): object {
  return { name, dtype: dtype ?? null, shape: dtype === undefined ? null : shape };
}

/** The name of an operator set's domain; the default domain has two spellings. */
function opsetDomain(domain: string): string {
  return domain === "" ? "ai.onnx" : domain;
}

function shardText(shard: ShardDetails): string[] {
  const { rowGroups, rowGroupRows, columns } = shard;
  const compressed = columns.reduce((sum, column) => sum + column.compressedBytes, 0);
  const uncompressed = columns.reduce((sum, column) => sum + column.uncompressedBytes, 0);
  const facts: [string, string][] = [
    ["shard", shard.path],
    ["size", `${exactBytes(shard.sizeBytes)}, of which footer ${showBytes(shard.footerBytes)}`],
    ["rows", showCount(shard.rows)],
    ["groups", rowGroupRows === null ? "none" : `${count(rowGroups, "row group")} of ${rowRange(rowGroupRows)}`],
    ["writer", [shard.createdBy ?? "unknown", `format version ${shard.formatVersion}`].join(", ")],
    ["metadata", shard.metadataKeys.join(", ")],
    ["columns", `${columns.length}, ${showBytes(compressed)} compressed, ${showBytes(uncompressed)} uncompressed`],
  ];
  const header = ["name", "type", "NULLs", "codec", "compressed", "uncompressed"];
  const rows = columns.map((column) => [
    column.name,
    column.type,
    column.nulls === null ? "unknown" : showCount(column.nulls),
    column.codecs.join(", "),
    showBytes(column.compressedBytes),
    showBytes(column.uncompressedBytes),
  ]);
  return [...factLines(facts), "", ...table([header, ...rows], { right: [2, 4, 5] })];
}

function shardJson(shard: ShardDetails): object {
  return {
    kind: "shard",
    path: shard.path,
    size_bytes: shard.sizeBytes,
    footer_bytes: shard.footerBytes,
    created_by: shard.createdBy,
    format_version: shard.formatVersion,
    rows: shard.rows,
    row_groups: shard.rowGroups,
    row_group_rows_min: shard.rowGroupRows?.min ?? null,
    row_group_rows_max: shard.rowGroupRows?.max ?? null,
    metadata_keys: shard.metadataKeys,
    columns: shard.columns.map((column) => ({
      name: column.name,
      type: column.type,
      nulls: column.nulls,
      codecs: column.codecs,
      compressed_bytes: column.compressedBytes,
      uncompressed_bytes: column.uncompressedBytes,
    })),
  };
}

function rowRange({ min, max }: { readonly min: number; readonly max: number }): string {
  return min === max ? count(max, "row") : `${showCount(min)} to ${count(max, "row")}`;
}

function factLines(facts: readonly (readonly [string, string])[]): string[] {
  const shown = facts.filter(([, value]) => value !== "");
  const width = Math.max(...shown.map(([name]) => name.length));
  return shown.map(([name, value]) => `${name.padEnd(width)}  ${printable(value)}`);
}

function section(title: string, body: readonly string[]): string[] {
  return body.length === 0 ? [] : ["", `${title}:`, ...body];
}

/** "1.0 KiB (1,037 bytes)". */
function exactBytes(bytes: number): string {
  return bytes < 1024 ? count(bytes, "byte") : `${showBytes(bytes)} (${count(bytes, "byte")})`;
}

/** The first line of a text, cut to 100 characters: some exporters write whole vocabularies into one. */
function firstLine(text: string): string {
  const [first = ""] = text.trim().split(/\r?\n/, 1);
  return first.length > maxCharacters
    ? `${first.slice(0, maxCharacters)}…`
    : first === text.trim()
      ? first
      : `${first} …`;
}

/** A JSON number, or text where a double would lose digits. */
function jsonInteger(value: bigint): number | string {
  const number = Number(value);
  return Number.isSafeInteger(number) ? number : String(value);
}
