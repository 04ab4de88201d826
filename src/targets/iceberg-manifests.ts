import { type AvroSchema, avroFile, avroName, avroRecords, avroSchema } from "../sources/lake/avro.js";
import type { LakeReader } from "../sources/lake/snapshot.js";
import type { ColumnType } from "../columns/types.js";
import { type AddedFile, integers } from "./lake.js";

/*
 * Manifests, which name the files of a table, and lists of manifests, of which each snapshot has one:
 * https://iceberg.apache.org/spec/#manifests
 */

const required = (id: number, name: string, type: unknown) => ({ name, type, "field-id": id });
const optional = (id: number, name: string, type: unknown) => ({
  name,
  type: ["null", type],
  default: null,
  "field-id": id,
});
const record = (name: string, fields: AvroSchema["fields"]): AvroSchema & { readonly name: string } => ({
  type: "record",
  name,
  fields,
});
const byColumn = (key: number, value: number, type: string) => ({
  type: "array",
  items: record(`k${key}_v${value}`, [required(key, "key", "int"), required(value, "value", type)]),
  logicalType: "map",
});

/** A column that a table is partitioned by, itself, with the value of a run. */
export interface PartitionValue {
  readonly name: string;
  /** The id of the field in the partition. */
  readonly id: number;
  readonly type: "date" | "string";
  readonly value: string;
}

/** Of a table, what its manifests repeat. */
export interface ManifestFacts {
  /** 1, 2 or 3. */
  readonly formatVersion: number;
  /** JSON. */
  readonly schema: string;
  readonly partitionSpec: string;
  readonly specId: number;
  readonly partition: readonly PartitionValue[];
}

/** Status of an entry. */
const existing = 0;
const added = 1;
const removed = 2;
/** Content of a manifest, or of a file. */
const dataContent = 0;

function entrySchema({ formatVersion, partition }: ManifestFacts): AvroSchema {
  const parted = partition.map(({ id, name, type }) =>
    optional(id, avroName(name), type === "date" ? { type: "int", logicalType: "date" } : "string"),
  );
  const isFirst = formatVersion === 1;
  const file = record("r2", [
    ...(isFirst ? [] : [required(134, "content", "int")]),
    required(100, "file_path", "string"),
    required(101, "file_format", "string"),
    required(102, "partition", record("r102", parted)),
    required(103, "record_count", "long"),
    required(104, "file_size_in_bytes", "long"),
    ...(isFirst ? [required(105, "block_size_in_bytes", "long")] : []),
    optional(109, "value_counts", byColumn(119, 120, "long")),
    optional(110, "null_value_counts", byColumn(121, 122, "long")),
    optional(125, "lower_bounds", byColumn(126, 127, "bytes")),
    optional(128, "upper_bounds", byColumn(129, 130, "bytes")),
  ]);
  return ofVersion(
    record("manifest_entry", [
      required(0, "status", "int"),
      optional(1, "snapshot_id", "long"),
      required(2, "data_file", file),
    ]),
    formatVersion,
  );
}

/** The schema may be of an older version. */
function ofVersion(schema: AvroSchema, formatVersion: number): AvroSchema {
  const lacking = (fields: AvroSchema["fields"], more: readonly ReturnType<typeof optional>[]): typeof more =>
    more.filter((field) => !fields.some((known) => known["field-id"] === field["field-id"]));
  const ofEntry =
    formatVersion === 1 ? [] : [optional(3, "sequence_number", "long"), optional(4, "file_sequence_number", "long")];
  const ofFile = [
    ...(formatVersion === 1 ? [] : [optional(134, "content", "int")]),
    ...(formatVersion < 3 ? [] : [optional(142, "first_row_id", "long")]),
  ];
  const fields = schema.fields.map((field) => {
    if (field["field-id"] !== 2) {
      return field;
    }
    const file = field.type as AvroSchema;
    return { ...field, type: { ...file, fields: [...file.fields, ...lacking(file.fields, ofFile)] } };
  });
  return { ...schema, fields: [...fields, ...lacking(schema.fields, ofEntry)] };
}

function manifestOf(
  { formatVersion, schema, partitionSpec, specId }: ManifestFacts,
  content: number,
  entries: AvroSchema,
  records: readonly unknown[],
): Buffer {
  const meta = {
    schema,
    "partition-spec": partitionSpec,
    "partition-spec-id": String(specId),
    "format-version": String(formatVersion),
    ...(formatVersion === 1 ? {} : { content: content === dataContent ? "data" : "deletes" }),
  };
  return avroFile(entries, meta, records);
}

/** Writes the manifest of files that a snapshot adds. @param idOf the id of a column */
export function manifestOfAdded(
  facts: ManifestFacts,
  files: readonly (AddedFile & { readonly uri: string })[],
  { snapshotId, idOf }: { readonly snapshotId: bigint; readonly idOf: (column: string) => number | undefined },
): Buffer {
  const partition = Object.fromEntries(facts.partition.map((part) => [avroName(part.name), partitionValue(part)]));
  const records = files.map(({ uri, rows, sizeBytes, columns }) => {
    const known = columns.flatMap((column) => {
      const key = idOf(column.name);
      return key === undefined ? [] : [{ key, ...column }];
    });
    const bounded = known.flatMap(({ key, type, bounds }) =>
      bounds === undefined ? [] : [{ key, type, min: bounds[0], max: bounds[1] }],
    );
    return {
      status: added,
      snapshot_id: snapshotId,
      data_file: {
        content: dataContent,
        file_path: uri,
        file_format: "PARQUET",
        partition,
        record_count: BigInt(rows),
        file_size_in_bytes: BigInt(sizeBytes),
        block_size_in_bytes: 67_108_864n, // as Iceberg writes it
        value_counts: known.map(({ key }) => ({ key, value: BigInt(rows) })),
        null_value_counts: known.map(({ key, nulls }) => ({ key, value: BigInt(nulls) })),
        lower_bounds: bounded.map(({ key, type, min }) => ({ key, value: boundBytes(type, min) })),
        upper_bounds: bounded.map(({ key, type, max }) => ({ key, value: boundBytes(type, max) })),
      },
    };
  });
  return manifestOf(facts, dataContent, entrySchema(facts), records);
}

function partitionValue({ type, value }: PartitionValue): string | number {
  return type === "date" ? daysOf(value) : value;
}

function daysOf(date: string): number {
  return Date.parse(`${date}T00:00:00Z`) / 86_400_000;
}

/** A value as bounds have it: https://iceberg.apache.org/spec/#binary-single-value-serialization */
function boundBytes(type: ColumnType, value: string): Buffer {
  if (type === "utf8") {
    return Buffer.from(value);
  }
  const isLong = type === "int64";
  const bytes = Buffer.alloc(isLong ? 8 : 4);
  if (isLong) {
    bytes.writeBigInt64LE(BigInt(value));
  } else {
    bytes.writeInt32LE(integers.has(type) ? Number(value) : daysOf(value));
  }
  return bytes;
}

/** A manifest, as a list has it. */
export interface ListedManifest {
  readonly manifest_path: string;
  readonly manifest_length: bigint;
  readonly partition_spec_id: number;
  readonly content: number;
  readonly sequence_number: bigint;
  readonly min_sequence_number: bigint;
  readonly added_snapshot_id: bigint;
  readonly added_files_count: number;
  readonly existing_files_count: number;
  readonly deleted_files_count: number;
  readonly added_rows_count: bigint;
  readonly existing_rows_count: bigint;
  readonly deleted_rows_count: bigint;
  readonly partitions: unknown;
  readonly key_metadata: unknown;
  readonly first_row_id: bigint | null;
}

const summary = record("r508", [
  required(509, "contains_null", "boolean"),
  optional(518, "contains_nan", "boolean"),
  optional(510, "lower_bound", "bytes"),
  optional(511, "upper_bound", "bytes"),
]);

function listSchema(formatVersion: number): AvroSchema {
  return record("manifest_file", [
    required(500, "manifest_path", "string"),
    required(501, "manifest_length", "long"),
    required(502, "partition_spec_id", "int"),
    ...(formatVersion === 1
      ? []
      : [
          required(517, "content", "int"),
          required(515, "sequence_number", "long"),
          required(516, "min_sequence_number", "long"),
        ]),
    required(503, "added_snapshot_id", "long"),
    required(504, "added_files_count", "int"),
    required(505, "existing_files_count", "int"),
    required(506, "deleted_files_count", "int"),
    required(512, "added_rows_count", "long"),
    required(513, "existing_rows_count", "long"),
    required(514, "deleted_rows_count", "long"),
    optional(507, "partitions", { type: "array", items: summary, "element-id": 508 }),
    optional(519, "key_metadata", "bytes"),
    ...(formatVersion < 3 ? [] : [optional(520, "first_row_id", "long")]),
  ]);
}

/**
 * Reads a list of manifests, whose fields older writers name otherwise.
 * @throws RangeError for one that does not count files, or that is damaged
 */
export function readManifestList(bytes: Buffer, unpack: LakeReader["unpack"]): ListedManifest[] {
  const { fields } = avroSchema(bytes);
  const names = listSchema(3).fields.flatMap(({ name, "field-id": id }) => {
    const theirs = fields.find((field) => field["field-id"] === id);
    return theirs === undefined ? [] : [[name, theirs.name] as const];
  });
  return Array.from(avroRecords(bytes, unpack), (listed) => {
    const known = Object.fromEntries(names.map(([name, theirs]) => [name, listed[theirs]]));
    if (known["added_files_count"] === undefined || known["added_files_count"] === null) {
      throw new RangeError("it does not count the files of manifests");
    }
    return {
      content: dataContent,
      sequence_number: 0n,
      min_sequence_number: 0n,
      partitions: null,
      key_metadata: null,
      first_row_id: null,
      ...known,
    } as unknown as ListedManifest;
  });
}

/** The numbers of a snapshot. */
export interface SnapshotNumbers {
  readonly id: bigint;
  readonly parent: bigint | undefined;
  readonly sequence: bigint;
  /** The number that the next row of the table gets. */
  readonly nextRow: bigint;
}

/** Writes the list of manifests of a snapshot. @returns with how many rows get numbers (version 3) */
export function manifestList(
  formatVersion: number,
  { id, parent, sequence, nextRow }: SnapshotNumbers,
  manifests: readonly ListedManifest[],
): { readonly bytes: Buffer; readonly numberedRows: bigint } {
  let next = nextRow;
  const listed = manifests.map((manifest) => {
    if (manifest.content !== dataContent || manifest.first_row_id !== null) {
      return manifest;
    }
    const first_row_id = next;
    next += manifest.added_rows_count + manifest.existing_rows_count;
    return { ...manifest, first_row_id };
  });
  const meta = {
    "snapshot-id": String(id),
    "parent-snapshot-id": parent === undefined ? "null" : String(parent),
    "format-version": String(formatVersion),
    ...(formatVersion === 1 ? {} : { "sequence-number": String(sequence) }),
    ...(formatVersion < 3 ? {} : { "first-row-id": String(nextRow) }),
  };
  return { bytes: avroFile(listSchema(formatVersion), meta, listed), numberedRows: next - nextRow };
}

type Counts = Pick<
  ListedManifest,
  `${"added" | "existing" | "deleted"}_files_count` | `${"added" | "existing" | "deleted"}_rows_count`
>;

/** The entry of a list for a manifest that a snapshot writes. */
export function manifestEntry(
  { specId, partition }: ManifestFacts,
  { id, sequence }: SnapshotNumbers,
  manifest: Pick<ListedManifest, "manifest_path" | "content"> & {
    readonly bytes: Buffer;
    readonly counts: Counts;
  } & Partial<Pick<ListedManifest, "min_sequence_number" | "partitions">>,
): ListedManifest {
  const { bytes, counts, manifest_path, content, min_sequence_number = sequence } = manifest;
  const ofRun = partition.map(({ type, value }) => {
    const bound = boundBytes(type === "date" ? "date32" : "utf8", value);
    return { contains_null: false, contains_nan: null, lower_bound: bound, upper_bound: bound };
  });
  return {
    manifest_path,
    manifest_length: BigInt(bytes.length),
    partition_spec_id: specId,
    content,
    sequence_number: sequence,
    min_sequence_number,
    added_snapshot_id: id,
    ...counts,
    partitions: manifest.partitions === undefined ? ofRun : manifest.partitions, // null: they are not known
    key_metadata: null,
    first_row_id: null,
  };
}

export function countsOfAdded(files: readonly AddedFile[]): Counts {
  return {
    added_files_count: files.length,
    existing_files_count: 0,
    deleted_files_count: 0,
    added_rows_count: BigInt(files.reduce((sum, { rows }) => sum + rows, 0)),
    existing_rows_count: 0n,
    deleted_rows_count: 0n,
  };
}

/** What is needed of an entry of a manifest; it has more. */
interface RawEntry {
  readonly status: number;
  readonly snapshot_id: bigint | null;
  readonly sequence_number?: bigint | null;
  readonly file_sequence_number?: bigint | null;
  readonly data_file: {
    readonly content?: number | null;
    readonly partition: Readonly<Record<string, unknown>>;
    readonly record_count: bigint;
    readonly file_size_in_bytes: bigint;
    readonly first_row_id?: bigint | null;
  };
}

/** What is removed from a manifest. */
export interface RemovedFiles {
  /** The manifest anew, in which the files of the partition are removed ones. */
  readonly bytes: Buffer;
  readonly counts: Counts;
  readonly min_sequence_number: bigint | undefined;
  readonly files: readonly RawEntry["data_file"][];
}

function rowsOf(entries: readonly RawEntry[]): bigint {
  return entries.reduce((sum, { data_file: file }) => sum + file.record_count, 0n);
}

/** Whether a partition is that of the facts. */
export function isOfPartition({ partition }: ManifestFacts, values: Readonly<Record<string, unknown>>): boolean {
  const theirs = Object.values(values);
  return partition.every((part, index) => theirs[index] === partitionValue(part));
}

/**
 * Removes the files of a partition from a manifest.
 * @returns undefined: it has none
 * @see https://iceberg.apache.org/spec/#manifest-entry-fields, for what entries inherit
 */
export function withoutPartition(
  facts: ManifestFacts,
  manifest: ListedManifest,
  {
    bytes,
    snapshotId,
    unpack,
  }: { readonly bytes: Buffer; readonly snapshotId: bigint; readonly unpack: LakeReader["unpack"] },
): RemovedFiles | undefined {
  let row = manifest.first_row_id;
  const live = Array.from(avroRecords(bytes, unpack), (each) => each as unknown as RawEntry).flatMap((entry) => {
    if (entry.status === removed) {
      return [];
    }
    const { data_file: file } = entry;
    const { first_row_id: own = null } = file;
    const first_row_id = own ?? row;
    if (own === null && row !== null) {
      row += file.record_count;
    }
    const whole = {
      ...entry,
      snapshot_id: entry.snapshot_id ?? manifest.added_snapshot_id,
      sequence_number: entry.sequence_number ?? manifest.sequence_number,
      file_sequence_number: entry.file_sequence_number ?? manifest.sequence_number,
      data_file: { ...file, content: file.content ?? dataContent, first_row_id },
    };
    return [
      isOfPartition(facts, file.partition)
        ? { ...whole, status: removed, snapshot_id: snapshotId }
        : { ...whole, status: existing },
    ];
  });
  const gone = live.filter(({ status }) => status === removed);
  if (gone.length === 0) {
    return undefined;
  }
  const kept = live.filter(({ status }) => status === existing);
  const [first, ...others] = kept.map((entry) => entry.sequence_number);
  return {
    bytes: manifestOf(facts, manifest.content, ofVersion(avroSchema(bytes), facts.formatVersion), live),
    counts: {
      added_files_count: 0,
      existing_files_count: kept.length,
      deleted_files_count: gone.length,
      added_rows_count: 0n,
      existing_rows_count: rowsOf(kept),
      deleted_rows_count: rowsOf(gone),
    },
    min_sequence_number:
      first === undefined ? undefined : others.reduce((least, each) => (each < least ? each : least), first),
    files: gone.map(({ data_file: file }) => file),
  };
}
