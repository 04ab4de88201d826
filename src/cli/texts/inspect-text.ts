import { batchDependence, lostOutputs, type ModelTraits } from "../../binding/model-traits.js";
import { showTensor } from "../../binding/side-by-side.js";
import type { ModelSignature, TensorSignature } from "../../columnar/tensor.js";
import type { ShardDetails } from "../../formats/port.js";
import type { OnnxFile } from "../../models/model-file.js";
import { printable } from "../../util/printable.js";
import { modelName, showBytes } from "../../report/plan-text.js";
import { count, showCount } from "../../report/report.js";
import { table } from "../../report/table.js";

/** A model file, and its signature. */
export interface InspectedModel extends OnnxFile {
  /** Inputs and outputs, as ONNX Runtime reports them. */
  readonly signature: ModelSignature;
  /** The version that the model's URI resolves to. */
  readonly version?: string | undefined;
  /** The differences from the signature that the registry declares, a text each. */
  readonly differences: readonly string[];
}

const maxCharacters = 100;

/** A model as a table. */
export function modelText(model: InspectedModel): string {
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
  return lines([
    ...factLines(facts),
    ...section("metadata", table([...proto.metadataProps].map(([key, value]) => [key, firstLine(value)]))),
    ...section("inputs", table(signature.inputs.map((tensor) => [tensor.name, showTensor(tensor)]))),
    ...section("outputs", table(signature.outputs.map((tensor) => [tensor.name, outputType(tensor, traits)]))),
    ...section(
      "notes",
      notesOf(model).map((note) => `  ${note}`),
    ),
  ]);
}

/** A model as one line of JSON. */
export function modelJson(model: InspectedModel): string {
  const { path, version, fileBytes, sha256, externalData, proto, signature } = model;
  const notes = notesOf(model);
  return JSON.stringify({
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
  });
}

function outputType(tensor: TensorSignature, { otherOutputs }: ModelTraits): string {
  return otherOutputs.find(({ name }) => name === tensor.name)?.type ?? showTensor(tensor);
}

/** Warnings about using the model in a job. */
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

/** A shard as a table. */
export function shardText(shard: ShardDetails): string {
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
  return lines([...factLines(facts), "", ...table([header, ...rows], { right: [2, 4, 5] })]);
}

/** A shard as one line of JSON. */
export function shardJson(shard: ShardDetails): string {
  return JSON.stringify({
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
  });
}

function rowRange({ min, max }: { readonly min: number; readonly max: number }): string {
  return min === max ? count(max, "row") : `${showCount(min)} to ${count(max, "row")}`;
}

/** Name and value of each fact; facts without a value are left out. */
function factLines(facts: readonly (readonly [string, string])[]): string[] {
  const shown = facts.filter(([, value]) => value !== "");
  const width = Math.max(...shown.map(([name]) => name.length));
  return shown.map(([name, value]) => `${name.padEnd(width)}  ${printable(value)}`);
}

function section(title: string, body: readonly string[]): string[] {
  return body.length === 0 ? [] : ["", `${title}:`, ...body];
}

function lines(all: readonly string[]): string {
  return `${all.join("\n")}\n`;
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
