import { gunzipSync } from "node:zlib";
import type { ColumnType, ScalarType, TableColumn } from "../../columns/types.js";
import { JobError } from "../../base/errors.js";
import { z } from "../../base/zod.js";
import {
  isObjectUri,
  objectUriProblem,
  objectUriText,
  otherStoreProblem,
  parseObjectUri,
} from "../../job/jobfile/uri.js";
import { avroRecords } from "./avro.js";
import { type RemovedRows, rowsOfPuffin } from "./removed-rows.js";
import {
  addedFiles,
  damaged,
  exactIntegers,
  insideOf,
  type LakeChanges,
  type LakeFile,
  type LakeReader,
  type LakeSnapshot,
  mostMetadataBytes,
  rewritten,
  unread,
  type WantedChanges,
} from "./snapshot.js";

/** By branch, tag or id, or the last before a time in ms from 1970. `schemaId`: not the schema it was written with. */
export type IcebergVersion =
  | { readonly ref: string }
  | { readonly snapshot: string; readonly schemaId?: number | undefined }
  | { readonly before: number };

/** Numbers of 64 bits, of which JSON may make numbers or bigints. */
const long = z.union([z.number(), z.bigint()]);
const field = z.looseObject({
  id: z.number(),
  name: z.string(),
  type: z.unknown(),
  required: z.boolean().default(false),
  "initial-default": z.unknown().optional(),
});
type Field = z.infer<typeof field>;
const schema = z.looseObject({ "schema-id": z.number().optional(), fields: z.array(field) });
const snapshot = z.object({
  "snapshot-id": long,
  "parent-snapshot-id": long.nullish(),
  summary: z.looseObject({ operation: z.string().optional() }).optional(),
  "timestamp-ms": z.number(),
  "manifest-list": z.string().optional(),
  "schema-id": z.number().optional(),
});
export type Snapshot = z.infer<typeof snapshot>;
const partitionField = z.object({
  "source-id": z.number(),
  "field-id": z.number().optional(),
  transform: z.string(),
  name: z.string(),
});
const partitionSpec = z.object({ "spec-id": z.number(), fields: z.array(partitionField) });
const metadata = z.object({
  "format-version": z.number(),
  "table-uuid": z.string().optional(),
  location: z.string(),
  "last-sequence-number": long.default(0),
  "last-updated-ms": z.number().default(0),
  "next-row-id": long.default(0),
  "default-spec-id": z.number().default(0),
  "current-snapshot-id": long.nullish(),
  "current-schema-id": z.number().optional(),
  schema: schema.optional(),
  schemas: z.array(schema).optional(),
  snapshots: z.array(snapshot).default([]),
  "snapshot-log": z.array(z.object({ "snapshot-id": long, "timestamp-ms": z.number() })).default([]),
  refs: z.record(z.string(), z.looseObject({ "snapshot-id": long, type: z.string() })).default({}),
  "partition-specs": z.array(partitionSpec).default([]),
  properties: z.record(z.string(), z.string()).default({}),
});
export type TableMetadata = z.infer<typeof metadata>;

/** Longs of Avro are bigints. */
const manifest = z.object({
  manifest_path: z.string(),
  partition_spec_id: z.number(),
  content: z.number().nullish(),
  sequence_number: z.bigint().nullish(),
  added_snapshot_id: z.bigint().nullish(),
  key_metadata: z.unknown().nullish(),
});
const entry = z.object({
  status: z.number(),
  sequence_number: z.bigint().nullish(),
  data_file: z.object({
    content: z.number().nullish(),
    file_path: z.string(),
    file_format: z.string(),
    partition: z.custom<Readonly<Record<string, unknown>>>((value) => typeof value === "object" && value !== null),
    record_count: z.bigint(),
    file_size_in_bytes: z.bigint(),
    key_metadata: z.unknown().nullish(),
    referenced_data_file: z.string().nullish(),
    content_offset: z.bigint().nullish(),
    content_size_in_bytes: z.bigint().nullish(),
  }),
});

export interface ManifestEntry {
  readonly isRemoved: boolean;
  readonly file: z.infer<typeof entry>["data_file"];
  readonly sequence: bigint;
  readonly spec: number;
}

interface Place {
  readonly reader: LakeReader;
  readonly table: string;
}

/** Finds the newest metadata file in a table's folder. @throws JobError FILE_MISSING */
export async function newestMetadata(reader: LakeReader, table: string): Promise<string> {
  const folder = `${table}/metadata`;
  const names = await reader.list(folder);
  const versions = names.flatMap((name) => {
    const [, version] = /^v?(\d+)(?:-[^/]*)?(?:\.gz)?\.metadata\.json(?:\.gz)?$/.exec(name) ?? [];
    return version === undefined ? [] : [{ name, version: Number(version) }];
  });
  const hint = names.includes("version-hint.text")
    ? Number((await reader.read(`${folder}/version-hint.text`)).toString().trim())
    : undefined;
  let newest = hint ?? Math.max(...versions.map(({ version }) => version));
  // Without a catalog, a file named v12 is committed as soon as it is there; the hint follows, unless its writer dies.
  while (names.some((name) => name.startsWith(`v${newest + 1}.`))) {
    newest += 1;
  }
  const [first, another] = versions.filter(({ version }) => version === newest);
  if (first === undefined) {
    throw new JobError("FILE_MISSING", `reading table ${table}: ${folder} has no metadata file`, {
      hint: "name the folder of an Iceberg table, in which metadata/ is",
    });
  }
  if (another !== undefined) {
    throw new JobError(
      "SPEC_INVALID",
      `reading table ${table}: ${first.name} and ${another.name} are both of version ${newest}, and only a catalog says which one counts`,
      { hint: "name the table's catalog with input.catalog, or one of these files" },
    );
  }
  return `${folder}/${first.name}`;
}

/**
 * Reads which files an Iceberg table has in a snapshot.
 * @param at the metadata file
 * @param isCatalogs whether a catalog named it: files may be anywhere in the table's store then
 * @throws JobError FILE_MISSING for a snapshot that is not there; SPEC_INVALID for what is not read; SHARD_CORRUPT
 * @see https://iceberg.apache.org/spec/
 */
export async function readIceberg(
  reader: LakeReader,
  metadataFile: MetadataFile,
  wanted: IcebergVersion,
): Promise<LakeSnapshot> {
  const table = await openIcebergTable(reader, metadataFile);
  const found = snapshotOf(table, wanted);
  const entries = found === undefined ? [] : await entriesOf(table, found);
  return versionOf(table, { wanted, found, entries });
}

export interface MetadataFile {
  readonly table: string;
  readonly at: string;
  readonly isCatalogs: boolean;
}

/**
 * @param schemaId undefined: the one that the table has now @throws JobError as `readIceberg`; INPUT_REWRITTEN where
 * rows were not only added, or a snapshot between is gone
 */
export async function readIcebergChanges(
  reader: LakeReader,
  metadataFile: MetadataFile,
  { from, to, onRewrite, schemaId }: WantedChanges & { readonly schemaId: number | undefined },
): Promise<LakeChanges> {
  const table = await openIcebergTable(reader, metadataFile);
  const { "table-uuid": uuid = "" } = table.meta;
  const [start, end] = [from, to].map((position) => (position === null ? undefined : snapshotIn(position)));
  if ([start, end].some((known) => known !== undefined && known.uuid !== uuid)) {
    throw rewritten(table.table, "it is another table than the last run has read");
  }
  const wanted = end === undefined ? { ref: "main" } : { snapshot: end.id, schemaId };
  const found = snapshotOf(table, wanted);
  const position = `${found === undefined ? noSnapshot : String(found["snapshot-id"])} ${uuid}`;
  if (start === undefined || found === undefined) {
    const all = found === undefined ? [] : await entriesOf(table, found);
    return { ...versionOf(table, { wanted, found, entries: all }), position };
  }

  const { added, commit } = addedFiles<ManifestEntry>(table.table, onRewrite);
  for (const each of pathTo(table, found, start.id)) {
    const id = each["snapshot-id"];
    const own = each["manifest-list"] === undefined ? [] : await entriesOf(table, each, BigInt(id));
    const data = own.filter(({ file }) => (file.content ?? content.data) === content.data);
    const operation = each.summary?.operation;
    const removed = data.filter(({ isRemoved }) => isRemoved).map(({ file }) => file.file_path);
    const isCompaction = operation === "replace";
    commit(`snapshot ${id}`, {
      files: isCompaction
        ? []
        : data.flatMap((changed) => (changed.isRemoved ? [] : [[changed.file.file_path, changed]])),
      removed: isCompaction ? [] : removed,
      joined: isCompaction ? removed : [],
      isRewrite: !isCompaction && operation !== "append",
    });
  }
  const isRemoval = ({ file }: ManifestEntry): boolean => (file.content ?? content.data) !== content.data;
  const deletes = onRewrite === "fail" ? [] : (await entriesOf(table, found)).filter(isRemoval);
  return { ...versionOf(table, { wanted, found, entries: [...added.values(), ...deletes] }), position };
}

/** Stands for the snapshot of a table before its first one. */
const noSnapshot = "0";

/** With the table's UUID: another table may be made under the same name. */
function snapshotIn(position: string): { readonly id: string; readonly uuid: string } {
  const [id = "", uuid = ""] = position.split(" ");
  return { id, uuid };
}

function pathTo({ table, meta }: IcebergTable, last: Snapshot, from: string): readonly Snapshot[] {
  const byId = new Map(meta.snapshots.map((each) => [String(each["snapshot-id"]), each]));
  const path: Snapshot[] = [];
  for (let next = last; String(next["snapshot-id"]) !== from; ) {
    path.unshift(next);
    const parent = byId.get(String(next["parent-snapshot-id"]));
    if (parent === undefined) {
      const found = `snapshot ${from}, which the last run has read, does not lead to snapshot ${last["snapshot-id"]}`;
      throw rewritten(table, `${found}: one between expired, or the table was rolled back`);
    }
    next = parent;
  }
  return path;
}

/** A table as one of its metadata files has it. */
export interface IcebergTable extends Located {
  readonly meta: TableMetadata;
}

/** Reads a metadata file. @throws JobError SPEC_INVALID for what is not read; SHARD_CORRUPT */
export async function openIcebergTable(
  reader: LakeReader,
  { table, at, isCatalogs }: MetadataFile,
): Promise<IcebergTable> {
  const meta = await metadataAt({ reader, table }, at);
  if (meta["format-version"] > 3) {
    throw unread(table, `version ${meta["format-version"]} of Iceberg`, "copy the rows into a table of version 3");
  }
  const whereIs = (uri: string): string =>
    isCatalogs ? nameInStore({ table, location: meta.location }, uri) : relocated({ table, meta }, uri);
  return { reader, table, meta, whereIs };
}

function versionOf(
  table: IcebergTable,
  {
    wanted,
    found,
    entries,
  }: {
    readonly wanted: IcebergVersion;
    readonly found: Snapshot | undefined;
    readonly entries: readonly ManifestEntry[];
  },
): LakeSnapshot {
  const { meta } = table;
  const { schemaId, columns } = columnsOfIceberg(table, schemaOf(meta, wanted, found));
  const files = filesOf(table, { entries: entries.filter(({ isRemoved }) => !isRemoved), meta, columns });
  return {
    version: found === undefined ? noSnapshot : String(found["snapshot-id"]),
    schemaId,
    columns,
    files: files.toSorted((left, right) => (left.uri < right.uri ? -1 : 1)),
  };
}

async function metadataAt({ reader, table }: Place, at: string): Promise<TableMetadata> {
  const bytes = await reader.read(at);
  try {
    const text = bytes[0] === 0x1f ? gunzipSync(bytes, { maxOutputLength: mostMetadataBytes }) : bytes;
    return metadata.parse(exactIntegers(text.toString("utf8")));
  } catch (error) {
    throw damaged(table, at, error);
  }
}

/** The snapshot that is wanted; undefined: the table has none yet. */
export function snapshotOf(
  { table, meta }: { readonly table: string; readonly meta: TableMetadata },
  wanted: IcebergVersion,
): Snapshot | undefined {
  const byId = new Map(meta.snapshots.map((each) => [String(each["snapshot-id"]), each]));
  const current = meta["current-snapshot-id"];
  let id: string | undefined;
  let what: string;
  if ("snapshot" in wanted) {
    id = wanted.snapshot;
    what = `snapshot ${id}`;
  } else if ("before" in wanted) {
    what = `a snapshot as of ${new Date(wanted.before).toISOString()}`;
    id = meta["snapshot-log"]
      .filter((each) => each["timestamp-ms"] <= wanted.before)
      .map((each) => String(each["snapshot-id"]))
      .at(-1);
  } else {
    what = `branch or tag ${wanted.ref}`;
    id = meta.refs[wanted.ref] && String(meta.refs[wanted.ref]?.["snapshot-id"]);
    if (id === undefined && wanted.ref === "main") {
      if (current === undefined || current === null || String(current) === "-1") {
        return undefined;
      }
      id = String(current);
    }
  }
  const found = id === undefined ? undefined : byId.get(id);
  if (found === undefined) {
    const refs = Object.keys(meta.refs);
    throw new JobError("FILE_MISSING", `reading table ${table}: it has no ${what}`, {
      hint: `it has ${meta.snapshots.length} snapshots${refs.length === 0 ? "" : `, and ${refs.join(", ")}`}: a snapshot that expired cannot be read any more`,
    });
  }
  return found;
}

/** The one that the snapshot was written with; for a branch, the one that the table has now, as in other engines. */
function schemaOf(meta: TableMetadata, wanted: IcebergVersion, found: Snapshot | undefined): number | undefined {
  const asked = "snapshot" in wanted ? wanted.schemaId : undefined;
  return asked ?? (isBranch(meta, wanted) ? undefined : found?.["schema-id"]) ?? meta["current-schema-id"];
}

export function columnsOfIceberg(
  { table, meta }: { readonly table: string; readonly meta: TableMetadata },
  id: number | undefined,
): Pick<LakeSnapshot, "schemaId" | "columns"> {
  const fields = (meta.schemas?.find((each) => each["schema-id"] === id) ?? meta.schema)?.fields;
  if (fields === undefined) {
    throw damaged(table, "its metadata", `there is no schema ${id}`);
  }
  const mapped = nameMapping(table, meta);
  const columns = fields.map((each) => {
    const { "initial-default": initial } = each;
    const text = textOf(initial);
    const isKnown = initial === undefined || initial === null || text !== undefined;
    const { id: fieldId, name } = each;
    const storedNames = mapped.get(fieldId) ?? [];
    const type = isKnown ? typeOf(each.type) : undefined;
    const leafIds = leafIdsOf(fieldId, each.type);
    return { name, storedNames, fieldId, leafIds, type, default: text ?? null, isPartition: false };
  });
  return { schemaId: id, columns };
}

const mappedNames = z.array(z.object({ "field-id": z.number().optional(), names: z.array(z.string()) }));

/** Names that columns have in files which do not number them, by id. */
function nameMapping(table: string, { properties }: TableMetadata): ReadonlyMap<number, readonly string[]> {
  const property = "schema.name-mapping.default";
  try {
    const mapped = mappedNames.parse(JSON.parse(properties[property] ?? "[]"));
    return new Map(mapped.flatMap(({ "field-id": id, names }) => (id === undefined ? [] : [[id, names] as const])));
  } catch (error) {
    throw damaged(table, property, error);
  }
}

function textOf(value: unknown): string | undefined {
  return typeof value === "string" ||
    typeof value === "number" ||
    typeof value === "bigint" ||
    typeof value === "boolean"
    ? `${Object.is(value, -0) ? "-" : ""}${value}` // -0, which a filter may tell from 0
    : undefined;
}

function isBranch({ refs }: TableMetadata, wanted: IcebergVersion): boolean {
  return "ref" in wanted && refs[wanted.ref]?.type !== "tag";
}

/** The types of Iceberg that are one of ours. */
export const icebergTypes: Readonly<Record<string, ScalarType>> = {
  boolean: "bool",
  int: "int32",
  long: "int64",
  float: "float32",
  double: "float64",
  date: "date32",
  time: "time64[us]",
  timestamp: "timestamp[us]",
  timestamptz: "timestamp[us, UTC]",
  timestamp_ns: "timestamp[ns]",
  string: "utf8",
  uuid: "uuid",
  binary: "binary",
};

function typeOf(type: unknown): ColumnType | undefined {
  if (typeof type === "string") {
    const [, precision, scale] = /^decimal\((\d+),\s*(\d+)\)$/.exec(type) ?? [];
    if (precision !== undefined) {
      return { kind: "decimal", precision: Number(precision), scale: Number(scale) };
    }
    return /^fixed\[\d+\]$/.test(type) ? "binary" : icebergTypes[type];
  }
  const { type: kind, element, fields } = type as { type: string; element?: unknown; fields?: Field[] };
  if (kind === "list") {
    const inner = typeOf(element);
    return inner && { kind: "list", element: inner };
  }
  const typed = fields?.map((each) => ({ name: each.name, type: typeOf(each.type) })) ?? [];
  return kind === "struct" && typed.every((each): each is { name: string; type: ColumnType } => each.type !== undefined)
    ? { kind: "struct", fields: typed }
    : undefined;
}

function leafIdsOf(id: number, type: unknown): number[] {
  const {
    fields,
    element,
    "element-id": elementId,
  } = Object(type) as {
    fields?: Field[];
    element?: unknown;
    "element-id"?: number;
  };
  return elementId === undefined
    ? (fields?.flatMap((each) => leafIdsOf(each.id, each.type)) ?? [id])
    : leafIdsOf(elementId, element);
}

function localName(uri: string): string {
  return uri.replace(/^file:(?:\/\/)?(?=\/)/, "");
}

/**
 * Anywhere in the store of the table's location; on this machine below that: metadata of strangers names no other
 * files. @throws JobError SPEC_INVALID
 */
export function nameInStore(
  { table, location }: { readonly table: string; readonly location: string },
  uri: string,
): string {
  const [name, folder] = [storeName(table, uri), storeName(table, location)];
  if (isObjectUri(name) && isObjectUri(folder) && parseObjectUri(name).scheme === parseObjectUri(folder).scheme) {
    return name;
  }
  if (isObjectUri(name) || !name.startsWith(`${folder}/`)) {
    throw unread(
      table,
      `files outside of the store or folder of its location ${location} (${uri})`,
      "copy the rows into another table",
    );
  }
  return below(table, folder, name.slice(folder.length + 1));
}

function below(table: string, folder: string, name: string): string {
  try {
    return insideOf(folder, name);
  } catch (error) {
    throw damaged(table, "its metadata", error);
  }
}

/** The name that a URI of Iceberg has here, without a slash at its end. @throws JobError SPEC_INVALID for a store that is not read */
export function storeName(table: string, uri: string): string {
  const name = localName(uri.replace(/^s3[an]:/i, "s3:")).replace(/\/+$/, "");
  if (isObjectUri(name) && objectUriProblem(name) === undefined) {
    return objectUriText(parseObjectUri(name));
  }
  if (!name.startsWith("/")) {
    const problem = otherStoreProblem(name) ?? "this is no place that can be read";
    throw unread(table, `files at ${uri}`, problem);
  }
  return name;
}

/** Where a file is that the metadata names: below the table's folder, wherever that was when it was written. */
function relocated({ table, meta }: { readonly table: string; readonly meta: TableMetadata }, uri: string): string {
  const location = `${localName(meta.location).replace(/\/+$/, "")}/`;
  const path = localName(uri);
  if (!path.startsWith(location)) {
    throw unread(
      table,
      `files outside of its folder (${uri})`,
      "name the table's catalog with input.catalog, which says where its files may be",
    );
  }
  return below(table, table, path.slice(location.length));
}

interface Located extends Place {
  readonly whereIs: (uri: string) => string;
}

/** The files of a snapshot; or only those that it has added and removed itself. @param own its id */
export async function entriesOf(
  { reader, table, whereIs }: Located,
  found: Snapshot,
  own?: bigint,
): Promise<readonly ManifestEntry[]> {
  const list = found["manifest-list"];
  if (list === undefined) {
    throw unread(table, "a snapshot without a list of manifests", "rewrite the table's manifests");
  }
  const entries: ManifestEntry[] = [];
  for (const each of await recordsOf({ reader, table }, whereIs(list), manifest)) {
    if (own !== undefined && each.added_snapshot_id !== own) {
      continue;
    }
    refuseEncrypted(table, each.key_metadata);
    const inherited = each.sequence_number ?? 0n;
    for (const { status, sequence_number: sequence, data_file: file } of await recordsOf(
      { reader, table },
      whereIs(each.manifest_path),
      entry,
    )) {
      if (own === undefined || status !== entryStatus.existing) {
        refuseEncrypted(table, file.key_metadata);
        const isRemoved = status === entryStatus.removed;
        entries.push({ file, isRemoved, sequence: sequence ?? inherited, spec: each.partition_spec_id });
      }
    }
  }
  return entries;
}

const entryStatus = { existing: 0, added: 1, removed: 2 };
const content = { data: 0, positions: 1, equality: 2 };

function refuseEncrypted(table: string, key: unknown): void {
  if (key !== undefined && key !== null) {
    throw unread(table, "encryption", "copy the rows into a table without it");
  }
}

async function recordsOf<T>({ reader, table }: Place, name: string, type: z.ZodType<T>): Promise<T[]> {
  const bytes = await reader.read(name);
  try {
    return Array.from(
      avroRecords(bytes, (codec, packed, most) => reader.unpack(codec, packed, most)),
      (record) => type.parse(record),
    );
  } catch (error) {
    throw damaged(table, name, error);
  }
}

function filesOf(
  place: Located,
  {
    entries,
    meta,
    columns,
  }: {
    readonly entries: readonly ManifestEntry[];
    readonly meta: TableMetadata;
    readonly columns: readonly TableColumn[];
  },
): LakeFile[] {
  const { table, whereIs } = place;
  const deletes = entries.filter(({ file }) => (file.content ?? content.data) !== content.data);
  if (deletes.some(({ file }) => file.content === content.equality)) {
    throw unread(
      table,
      "equality deletes",
      "rewrite its data files: CALL catalog.system.rewrite_data_files(table => '…', options => map('delete-file-threshold', '1')) in Spark",
    );
  }
  const removal = removalsOf(place, deletes);
  const specs = new Map(meta["partition-specs"].map((spec) => [spec["spec-id"], spec.fields]));
  const byId = new Map(columns.map((column) => [column.fieldId, column]));
  return entries
    .filter(({ file }) => (file.content ?? content.data) === content.data)
    .map(({ file, sequence, spec }) => {
      if (file.file_format.toLowerCase() !== "parquet") {
        throw unread(
          table,
          `data files in ${file.file_format}`,
          "rewrite its data files with write.format.default = parquet",
        );
      }
      const { removedCount, removed } = removal({ path: file.file_path, sequence, rows: Number(file.record_count) });
      const fields = specs.get(spec) ?? [];
      const values = Object.values(file.partition);
      if (values.length !== fields.length) {
        throw damaged(table, file.file_path, `it has ${values.length} partition values, its spec ${fields.length}`);
      }
      return {
        uri: whereIs(file.file_path),
        sizeBytes: Number(file.file_size_in_bytes),
        rows: Number(file.record_count),
        partition: new Map(
          fields.flatMap(({ "source-id": id, transform }, index) => {
            const column = byId.get(id);
            return transform === "identity" && column?.type !== undefined
              ? [[column.name, partitionText(values[index], column.type)]]
              : [];
          }),
        ),
        removedCount,
        removed,
      };
    });
}

function partitionText(value: unknown, type: ColumnType): string | null {
  if (value === null || value === undefined) {
    return null;
  }
  if (value instanceof Uint8Array) {
    const hex = Buffer.from(value).toString("hex");
    if (typeof type === "object" && type.kind === "decimal") {
      return decimalText(BigInt.asIntN(value.length * 8, BigInt(`0x${hex === "" ? "0" : hex}`)), type.scale);
    }
    return type === "uuid" ? hex.replace(/^(.{8})(.{4})(.{4})(.{4})(.{12})$/, "$1-$2-$3-$4-$5") : hex;
  }
  if (type === "date32") {
    return new Date(Number(value) * 86_400_000).toISOString().slice(0, 10);
  }
  if (typeof value === "bigint" && typeof type === "string" && type.startsWith("time")) {
    const [perSecond, digits] = type.includes("ns") ? [1_000_000_000n, 9] : [1_000_000n, 6];
    const fraction = ((value % perSecond) + perSecond) % perSecond;
    const time = new Date(Number((value - fraction) / perSecond) * 1000).toISOString().slice(0, 19);
    const exact = `${time.replace("T", " ")}.${String(fraction).padStart(digits, "0")}`;
    return type.startsWith("time64") ? exact.slice(11) : `${exact}${type.endsWith("UTC]") ? "+00" : ""}`;
  }
  return textOf(value) ?? JSON.stringify(value);
}

function decimalText(unscaled: bigint, scale: number): string {
  const digits = String(unscaled < 0n ? -unscaled : unscaled).padStart(scale + 1, "0");
  const at = digits.length - scale;
  return `${unscaled < 0n ? "-" : ""}${digits.slice(0, at)}${scale === 0 ? "" : `.${digits.slice(at)}`}`;
}

interface DataFile {
  readonly path: string;
  readonly sequence: bigint;
  readonly rows: number;
}

/** Rows are removed by the file's deletion vector, or else by the position deletes that came later. */
function removalsOf(
  { reader, table, whereIs }: Located,
  deletes: readonly ManifestEntry[],
): (file: DataFile) => Pick<LakeFile, "removedCount" | "removed"> {
  const vectors = new Map<string, ManifestEntry>();
  const positions = new Map<string, ManifestEntry[]>();
  for (const each of deletes) {
    const { file_format: format, referenced_data_file: of } = each.file;
    if (format.toLowerCase() === "puffin") {
      vectors.set(of ?? "", each);
    } else {
      const some = positions.get(of ?? "") ?? [];
      positions.set(of ?? "", [...some, each]);
    }
  }
  const read = new Map<string, Promise<ReadonlyMap<string, readonly number[]>>>();
  /** The positions of a delete file, by data file. */
  const positionsIn = async (name: string): Promise<ReadonlyMap<string, readonly number[]>> => {
    const known = read.get(name) ?? readPositions({ reader, table }, name);
    read.set(name, known);
    return await known;
  };
  return ({ path, sequence, rows }) => {
    const vector = vectors.get(path);
    if (vector !== undefined) {
      const count = Number(vector.file.record_count);
      return {
        removedCount: count,
        removed: async () => await vectorOf({ reader, table }, { vector, name: whereIs(vector.file.file_path), count }),
      };
    }
    const later = [...(positions.get(path) ?? []), ...(positions.get("") ?? [])].filter(
      (each) => each.sequence >= sequence,
    );
    return {
      removedCount: later.length === 0 ? 0 : undefined,
      async removed() {
        const all = new Set<number>();
        for (const { file } of later) {
          for (const row of (await positionsIn(whereIs(file.file_path))).get(path) ?? []) {
            if (row >= rows) {
              throw damaged(table, file.file_path, `it removes row ${row} of ${path}, which has ${rows}`);
            }
            all.add(row);
          }
        }
        return Uint32Array.from(all).toSorted();
      },
    };
  };
}

const position = z.object({ file_path: z.string(), pos: z.array(z.number()) });

async function readPositions({ reader, table }: Place, name: string): Promise<ReadonlyMap<string, readonly number[]>> {
  try {
    const lines = await reader.parquet(name, {
      select: "file_path, list(pos) AS pos",
      where: "true GROUP BY file_path",
    });
    return new Map(
      lines.map((line) => {
        const { file_path: path, pos } = position.parse(JSON.parse(line));
        return [path, pos];
      }),
    );
  } catch (error) {
    throw damaged(table, name, error);
  }
}

async function vectorOf(
  { reader, table }: Place,
  { vector, name, count }: { readonly vector: ManifestEntry; readonly name: string; readonly count: number },
): Promise<RemovedRows> {
  const start = Number(vector.file.content_offset ?? 0n);
  const size = Number(vector.file.content_size_in_bytes ?? 0n);
  const blob = await reader.read(name, { start, end: start + size });
  try {
    if (size < 8 || blob.length !== size) {
      throw new RangeError(`there is no deletion vector of ${size} bytes at byte ${start}`);
    }
    return rowsOfPuffin(blob, count);
  } catch (error) {
    throw damaged(table, name, error);
  }
}
