import { z } from "../../base/zod.js";
import type { ColumnType, ScalarType, TableColumn } from "../../columns/types.js";
import { assertNever, JobError } from "../../base/errors.js";
import { rowsOfDelta, type RemovedRows, unpackZ85 } from "./removed-rows.js";
import {
  addedFiles,
  damaged,
  insideOf,
  type LakeChanges,
  type LakeFile,
  type LakeReader,
  type LakeSnapshot,
  rewritten,
  unread,
  type WantedChanges,
} from "./snapshot.js";

/** Features of readers that change nothing here, or are read. */
const knownFeatures = new Set([
  "columnMapping",
  "deletionVectors",
  "timestampNtz",
  "typeWidening",
  "typeWidening-preview",
  "v2Checkpoint",
  "vacuumProtocolCheck",
]);

/** Which version of a table is read: the newest, one by number, or the last one before a time in ms from 1970. */
export type DeltaVersion = "latest" | { readonly version: number } | { readonly before: number };

const deletionVector = z.object({
  storageType: z.string(),
  pathOrInlineDv: z.string(),
  offset: z.number().nullish(),
  sizeInBytes: z.number(),
  cardinality: z.number(),
});
type DeletionVector = z.infer<typeof deletionVector>;

const fileAction = z.object({
  path: z.string(),
  deletionVector: deletionVector.nullish(),
  dataChange: z.boolean().nullish(),
});
const addAction = fileAction.extend({
  partitionValues: z.record(z.string(), z.string().nullable()),
  size: z.number(),
  stats: z.string().nullish(),
});
export type AddAction = z.infer<typeof addAction>;

const protocol = z.object({
  minReaderVersion: z.number(),
  readerFeatures: z.array(z.string()).nullish(),
  minWriterVersion: z.number().default(7),
  writerFeatures: z.array(z.string()).nullish(),
});
const metaData = z.object({
  id: z.string(),
  schemaString: z.string(),
  partitionColumns: z.array(z.string()),
  format: z.object({ provider: z.string() }),
  configuration: z.record(z.string(), z.string()).nullish(),
});
const commitInfo = z.object({ inCommitTimestamp: z.number().nullish(), timestamp: z.number().nullish() });
const sidecar = z.object({ path: z.string() });
const transaction = z.object({ appId: z.string(), version: z.number() });

/** Actions of which nothing is needed are passed over. */
const action = z.object({
  add: addAction.nullish(),
  remove: fileAction.nullish(),
  protocol: protocol.nullish(),
  metaData: metaData.nullish(),
  commitInfo: commitInfo.nullish(),
  sidecar: sidecar.nullish(),
  txn: transaction.nullish(),
});
type Action = z.infer<typeof action>;

interface Log {
  readonly commits: ReadonlyMap<number, string>;
  /** Names of the files of each whole checkpoint, by version. */
  readonly checkpoints: ReadonlyMap<number, readonly string[]>;
  /** -1: there is none. */
  readonly newest: number;
}

interface State {
  readonly files: Map<string, AddAction>;
  /** The last version of each program that numbers what it writes. */
  readonly transactions: Map<string, number>;
  protocol: z.infer<typeof protocol> | undefined;
  metaData: z.infer<typeof metaData> | undefined;
}

export interface DeltaState extends Readonly<State> {
  readonly version: number;
  readonly protocol: z.infer<typeof protocol>;
  readonly metaData: z.infer<typeof metaData>;
}

/**
 * Reads which files a Delta table has at a version.
 * @throws JobError FILE_MISSING for a version that is not there; SPEC_INVALID for what is not read; SHARD_CORRUPT
 * @see https://github.com/delta-io/delta/blob/master/PROTOCOL.md
 */
export async function readDelta(reader: LakeReader, table: string, wanted: DeltaVersion): Promise<LakeSnapshot> {
  return snapshotOf({ reader, table }, await readDeltaState(reader, table, wanted));
}

/** Reads the log of a table up to a version. @throws JobError as `readDelta` */
export async function readDeltaState(reader: LakeReader, table: string, wanted: DeltaVersion): Promise<DeltaState> {
  const log = await readLog(reader, table);
  const version = await versionOf({ reader, table, ...log }, wanted);
  return await stateAt({ reader, table }, { ...log, version, files: "all" });
}

/** @throws JobError as `readDelta`; INPUT_REWRITTEN if rows were not only added, or the log lacks some commits */
export async function readDeltaChanges(
  reader: LakeReader,
  table: string,
  { from, to, onRewrite }: WantedChanges,
): Promise<LakeChanges> {
  const place = { reader, table };
  const log = await readLog(reader, table);
  const { commits, newest } = log;
  const version = to === null ? newest : versionIn(to).version;
  const state = await stateAt(place, { ...log, version, files: from === null ? "all" : "none" });
  const position = positionAt(state);
  const known = [from, to].flatMap((each) => (each === null ? [] : [versionIn(each)]));
  if (known.some(({ version: last, id }) => newest < last || id !== state.metaData.id)) {
    throw rewritten(table, "it is another table than the last run has read");
  }
  if (from === null) {
    return { ...snapshotOf(place, state), position };
  }

  const { added, commit } = addedFiles<AddAction>(table, onRewrite);
  for (let each = versionIn(from).version + 1; each <= version; each += 1) {
    const name = commits.get(each);
    if (name === undefined) {
      throw rewritten(table, `the log has version ${each} no more`);
    }
    const actions = await actionsOf(place, name);
    const adds = actions.flatMap(({ add }) => (add && add.dataChange !== false ? [add] : []));
    const removes = actions.flatMap(({ remove }) => (remove ? [remove] : []));
    const removed = removes.filter(({ dataChange }) => dataChange !== false).map(({ path }) => path);
    commit(`version ${each}`, {
      files: adds.map((add) => [add.path, add]),
      removed,
      joined: removes.filter(({ dataChange }) => dataChange === false).map(({ path }) => path),
      isRewrite: removed.length > 0,
    });
  }
  return { ...snapshotOf(place, { ...state, files: added }), position };
}

/** With the table's id: another table may be written into the same folder. */
function positionAt({ version, metaData: { id } }: DeltaState): string {
  return `${version} ${id}`;
}

function versionIn(position: string): { readonly version: number; readonly id: string } {
  const [version = "", id = ""] = position.split(" ");
  return { version: Number(version), id };
}

async function readLog(reader: LakeReader, table: string): Promise<Log> {
  const folder = `${table}/_delta_log`;
  const log = logOf(await reader.list(folder));
  if (log.newest < 0) {
    throw new JobError("FILE_MISSING", `reading table ${table}: ${folder} has no version`, {
      hint: "name the folder of a Delta table, in which _delta_log is",
    });
  }
  return log;
}

/** @param files "none": of a checkpoint, only what is said of the table itself is read */
async function stateAt(
  place: Place,
  { version, files, ...log }: Log & { readonly version: number; readonly files: "all" | "none" },
): Promise<DeltaState> {
  const { table } = place;
  const { commits, checkpoints, newest } = log;
  const start = Math.max(-1, ...[...checkpoints.keys()].filter((each) => each <= version));
  const state: State = { files: new Map(), transactions: new Map(), protocol: undefined, metaData: undefined };
  for (const name of checkpoints.get(start) ?? []) {
    await readCheckpoint(place, { name, state, files });
  }
  for (let each = start + 1; each <= version; each += 1) {
    const name = commits.get(each);
    if (name === undefined) {
      throw new JobError(
        "FILE_MISSING",
        `reading version ${version} of table ${table}: the log has no version ${each}`,
        {
          hint: `the table's log keeps the versions from ${firstWhole(log)} to ${newest}: name one of these`,
        },
      );
    }
    for (const done of await actionsOf(place, name)) {
      apply(state, done);
    }
  }
  const { protocol: asked, metaData: meta } = state;
  if (asked === undefined || meta === undefined) {
    throw damaged(table, "_delta_log", `version ${version} has no ${asked === undefined ? "protocol" : "metaData"}`);
  }
  return { ...state, version, protocol: asked, metaData: meta };
}

export async function actionsOf({ reader, table }: Place, name: string): Promise<Action[]> {
  const file = `${table}/_delta_log/${name}`;
  return [...linesOf(await reader.read(file))].map((line) => parseAction(line, { table, file }));
}

function logOf(names: readonly string[]): Log {
  const commits = new Map<number, string>();
  const checkpoints = new Map<number, readonly string[]>();
  const parts = new Map<string, string[]>();
  for (const name of names) {
    const [, number = "", rest = ""] = /^(\d{20})\.(.*)$/.exec(name) ?? [];
    const version = Number(number);
    if (rest === "json") {
      commits.set(version, name);
    } else if (/^checkpoint\.parquet$|^checkpoint\.[\da-f-]{36}\.(?:parquet|json)$/.test(rest)) {
      checkpoints.set(version, [name]);
    } else {
      const [, of] = /^checkpoint\.\d{10}\.(\d{10})\.parquet$/.exec(rest) ?? [];
      if (of !== undefined) {
        const all = [...(parts.get(`${number}.${of}`) ?? []), name];
        parts.set(`${number}.${of}`, all);
        if (all.length === Number(of)) {
          checkpoints.set(version, all.toSorted());
        }
      }
    }
  }
  const newest = [...commits.keys(), ...checkpoints.keys()].reduce((most, version) => Math.max(most, version), -1);
  return { commits, checkpoints, newest };
}

/** The earliest version from which on the log tells all. */
function firstWhole({ commits, checkpoints, newest }: Log): number {
  let first = newest;
  for (let version = newest; version >= 0; version -= 1) {
    if (checkpoints.has(version) || (version === 0 && commits.has(0))) {
      first = version;
    }
    if (!commits.has(version)) {
      break;
    }
  }
  return first;
}

interface Place {
  readonly reader: LakeReader;
  readonly table: string;
}

async function versionOf(
  { reader, table, commits, newest }: Place & Pick<Log, "commits" | "newest">,
  wanted: DeltaVersion,
): Promise<number> {
  if (wanted === "latest") {
    return newest;
  }
  if ("version" in wanted) {
    if (wanted.version > newest) {
      throw new JobError(
        "FILE_MISSING",
        `reading version ${wanted.version} of table ${table}: its newest is ${newest}`,
      );
    }
    return wanted.version;
  }
  for (const version of [...commits.keys()].toSorted((left, right) => right - left)) {
    const file = `${table}/_delta_log/${commits.get(version) ?? ""}`;
    for (const line of linesOf(await reader.read(file))) {
      const info = parseAction(line, { table, file }).commitInfo;
      const time = info?.inCommitTimestamp ?? info?.timestamp;
      if (time !== undefined && time !== null && time <= wanted.before) {
        return version;
      }
    }
  }
  throw new JobError(
    "FILE_MISSING",
    `reading table ${table} as of ${new Date(wanted.before).toISOString()}: its log has no version that old`,
    { hint: "the log of older versions was removed, or the table is younger: name a later time, or a version" },
  );
}

function* linesOf(bytes: Buffer): Generator<string> {
  for (const line of bytes.toString("utf8").split("\n")) {
    if (line.trim() !== "") {
      yield line;
    }
  }
}

function parseAction(line: string, { table, file }: { readonly table: string; readonly file: string }): Action {
  try {
    return action.parse(JSON.parse(line));
  } catch (error) {
    throw damaged(table, file, error);
  }
}

/** A commit that removes rows removes a file and adds it with another vector. */
function keyOf({ path, deletionVector: vector }: z.infer<typeof fileAction>): string {
  return vector ? `${path}\n${vector.storageType}${vector.pathOrInlineDv}@${vector.offset ?? ""}` : path;
}

function apply(state: State, { add, remove, txn, protocol: newProtocol, metaData: newMetaData }: Action): void {
  state.protocol = newProtocol ?? state.protocol;
  state.metaData = newMetaData ?? state.metaData;
  if (remove) {
    state.files.delete(keyOf(remove));
  }
  if (add) {
    state.files.set(keyOf(add), add);
  }
  if (txn) {
    state.transactions.set(txn.appId, txn.version);
  }
}

async function readCheckpoint(
  { reader, table }: Place,
  { name, state, files }: { readonly name: string; readonly state: State; readonly files: "all" | "none" },
): Promise<void> {
  const log = `${table}/_delta_log`;
  const parquet = async (of: string): Promise<readonly string[]> => {
    try {
      const where = files === "all" ? "true" : "protocol IS NOT NULL OR metaData IS NOT NULL";
      return await reader.parquet(of, { select: "*", where });
    } catch (error) {
      throw damaged(table, of, error);
    }
  };
  const file = `${log}/${name}`;
  const lines = name.endsWith(".json") ? [...linesOf(await reader.read(file))] : await parquet(file);
  const sidecars: string[] = [];
  for (const line of lines) {
    const parsed = parseAction(line, { table, file });
    apply(state, parsed);
    if (parsed.sidecar) {
      sidecars.push(parsed.sidecar.path);
    }
  }
  for (const path of files === "all" ? sidecars : []) {
    const of = insideOf(`${log}/_sidecars`, path);
    for (const line of await parquet(of)) {
      apply(state, parseAction(line, { table, file: of }));
    }
  }
}

function snapshotOf(
  place: Place,
  state: Omit<DeltaState, "files"> & { readonly files: ReadonlyMap<string, AddAction> },
): LakeSnapshot {
  const { table } = place;
  const { version, protocol: wanted, metaData: meta } = state;
  const unknown = (wanted.readerFeatures ?? []).find((feature) => !knownFeatures.has(feature));
  if (unknown !== undefined || wanted.minReaderVersion > 3) {
    throw unread(
      table,
      unknown === undefined ? `reader version ${wanted.minReaderVersion} of Delta` : `the feature ${unknown}`,
      "copy the rows into a table without it, or export them to Parquet files",
    );
  }
  if (meta.format.provider !== "parquet") {
    throw unread(table, `files of format ${meta.format.provider}`, "export the rows to Parquet files");
  }
  const columns = columnsOfDelta(table, meta);
  const parted = new Map(columns.flatMap((column) => column.storedNames.map((name) => [name, column])));
  let files: LakeFile[];
  try {
    files = [...state.files.values()].map((add) => fileOf(place, { add, parted }));
  } catch (error) {
    throw damaged(table, "_delta_log", error);
  }
  return {
    version: String(version),
    schemaId: undefined,
    columns,
    files: files.toSorted((left, right) => (left.uri < right.uri ? -1 : 1)),
  };
}

export interface SchemaField {
  readonly name: string;
  readonly type: unknown;
  readonly nullable?: boolean | undefined;
  readonly metadata?: Readonly<Record<string, unknown>> | undefined;
}

export function fieldsOfSchema(schemaString: string): readonly SchemaField[] {
  return (JSON.parse(schemaString) as { fields: readonly SchemaField[] }).fields;
}

/** The columns of a table. @throws JobError SPEC_INVALID, SHARD_CORRUPT */
export function columnsOfDelta(
  table: string,
  { schemaString, partitionColumns, configuration }: DeltaState["metaData"],
): readonly TableColumn[] {
  const mode = configuration?.["delta.columnMapping.mode"] ?? "none";
  if (!["none", "name", "id"].includes(mode)) {
    throw unread(table, `column mapping ${mode}`, "copy the rows into a table without it");
  }
  try {
    return fieldsOfSchema(schemaString).map(({ name, type, metadata = {} }) => ({
      name,
      storedNames: [mode === "none" ? name : String(metadata["delta.columnMapping.physicalName"])],
      fieldId: mode === "id" ? Number(metadata["delta.columnMapping.id"]) : undefined,
      type: partitionColumns.includes(name) && type === "binary" ? undefined : typeOf(type),
      default: null,
      isPartition: partitionColumns.includes(name),
    }));
  } catch (error) {
    throw damaged(table, "schemaString", error);
  }
}

const scalarTypes: Readonly<Record<string, ScalarType>> = {
  string: "utf8",
  long: "int64",
  integer: "int32",
  short: "int16",
  byte: "int8",
  float: "float32",
  double: "float64",
  boolean: "bool",
  binary: "binary",
  date: "date32",
  timestamp: "timestamp[us, UTC]",
  timestamp_ntz: "timestamp[us]",
};

function typeOf(type: unknown): ColumnType | undefined {
  if (typeof type === "string") {
    const [, precision, scale] = /^decimal\((\d+),\s*(\d+)\)$/.exec(type) ?? [];
    return precision === undefined
      ? scalarTypes[type]
      : { kind: "decimal", precision: Number(precision), scale: Number(scale) };
  }
  const { type: kind, elementType, fields } = type as { type: string; elementType?: unknown; fields?: SchemaField[] };
  if (kind === "array") {
    const element = typeOf(elementType);
    return element && { kind: "list", element };
  }
  const typed = fields?.map((field) => ({ name: field.name, type: typeOf(field.type) })) ?? [];
  return kind === "struct" &&
    typed.every((field): field is { name: string; type: ColumnType } => field.type !== undefined)
    ? { kind: "struct", fields: typed }
    : undefined;
}

/** A type in the schema of a table; undefined: a new table cannot have it. The opposite of `typeOf`. */
export function deltaTypeOf(type: ColumnType): unknown {
  if (typeof type === "string") {
    const name = Object.keys(scalarTypes).find((each) => scalarTypes[each] === type);
    return name === "timestamp_ntz" ? undefined : name; // it asks for a newer protocol
  }
  switch (type.kind) {
    case "decimal":
      return `decimal(${type.precision},${type.scale})`;
    case "list": {
      const elementType = deltaTypeOf(type.element);
      return elementType === undefined ? undefined : { type: "array", elementType, containsNull: true };
    }
    case "struct": {
      const fields = type.fields.map(({ name, type: inner }) => ({
        name,
        type: deltaTypeOf(inner),
        nullable: true,
        metadata: {},
      }));
      return fields.some((each) => each.type === undefined) ? undefined : { type: "struct", fields };
    }
    default:
      return assertNever(type);
  }
}

function fileOf(
  { reader, table }: Place,
  { add, parted }: { readonly add: AddAction; readonly parted: ReadonlyMap<string, TableColumn> },
): LakeFile {
  const { path, partitionValues, size, stats, deletionVector: vector } = add;
  if (/^[\w+.-]+:/.test(path) || path.startsWith("/")) {
    throw unread(
      table,
      `files outside of its folder (${path})`,
      "read the table that it was cloned from, or copy its rows",
    );
  }
  return {
    uri: insideOf(table, decodeURIComponent(path)),
    sizeBytes: size,
    rows: rowsIn(stats),
    partition: new Map(
      Object.entries(partitionValues).map(([name, value]) => {
        const column = parted.get(name);
        return [column?.name ?? name, partitionText(value, column?.type)];
      }),
    ),
    removedCount: vector?.cardinality ?? 0,
    removed: async () => (vector ? await removedBy({ reader, table }, vector) : new Uint32Array(0)),
  };
}

/** The value of a partition, of which the log has a text: an empty one is NULL. Times without a zone are in UTC. */
function partitionText(value: string | null, type: ColumnType | undefined): string | null {
  if (value === null || value === "") {
    return null;
  }
  return type === "timestamp[us, UTC]" && !/(?:Z|[+-]\d{2}:?\d{2})$/.test(value) ? `${value}+00` : value;
}

function rowsIn(stats: string | null | undefined): number | undefined {
  try {
    const { numRecords } = JSON.parse(stats ?? "{}") as { numRecords?: unknown };
    return typeof numRecords === "number" ? numRecords : undefined;
  } catch {
    return undefined; // statistics are a hint; the file's footer counts
  }
}

async function removedBy({ reader, table }: Place, vector: DeletionVector): Promise<RemovedRows> {
  const { storageType, pathOrInlineDv: text, offset, sizeInBytes, cardinality } = vector;
  if (storageType === "p") {
    throw unread(table, `a deletion vector outside of its folder (${text})`, "read the table that it was cloned from");
  }
  try {
    if (storageType === "i") {
      return rowsOfDelta(unpackZ85(text).subarray(0, sizeInBytes), cardinality);
    }
    // The last 20 digits are a UUID; what is before them is a folder.
    const id = unpackZ85(text.slice(-20))
      .toString("hex")
      .replace(/^(.{8})(.{4})(.{4})(.{4})(.{12})$/, "$1-$2-$3-$4-$5");
    const folder = text.slice(0, -20);
    const file = insideOf(table, `${folder === "" ? "" : `${folder}/`}deletion_vector_${id}.bin`);
    const start = offset ?? 0;
    const bytes = await reader.read(file, { start, end: start + 4 + sizeInBytes });
    if (bytes.length !== 4 + sizeInBytes || bytes.readUInt32BE(0) !== sizeInBytes) {
      throw new RangeError(`${file} has no deletion vector of ${sizeInBytes} bytes at byte ${start}`);
    }
    return rowsOfDelta(bytes.subarray(4), cardinality);
  } catch (error) {
    throw damaged(table, "a deletion vector", error);
  }
}
