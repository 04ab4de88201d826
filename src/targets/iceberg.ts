import { randomBytes } from "node:crypto";
import { readFile, writeFile } from "node:fs/promises";
import { JobError, orError, reworded } from "../base/errors.js";
import { Unsettled } from "../base/http/http.js";
import { mapBounded } from "../base/promises.js";
import { type RetryTools, type RetryVerdict, tryAgain } from "../base/retry.js";
import { jsonText } from "../base/texts.js";
import type { ColumnType } from "../columns/types.js";
import { outputColumns } from "../models/binding/contract.js";
import type { Plan } from "../run/plan/plan.js";
import {
  columnsOfIceberg,
  entriesOf,
  type IcebergTable,
  nameInStore,
  openIcebergTable,
  icebergTypes,
  type Snapshot,
  snapshotOf,
} from "../sources/lake/iceberg.js";
import type { CatalogTable, NamedTable } from "../sources/lake/rest-catalog.js";
import { damaged, type LakeReader } from "../sources/lake/snapshot.js";
import { namesIn, type Store } from "../stores/store.js";
import {
  countsOfAdded,
  isOfPartition,
  manifestEntry,
  type ListedManifest,
  type ManifestFacts,
  manifestList,
  manifestOfAdded,
  readManifestList,
  type RemovedFiles,
  withoutPartition,
} from "./iceberg-manifests.js";
import {
  type AddedFile,
  changedMeanwhile,
  lakeColumnsOf,
  fenceOf,
  type LakeColumn,
  type LakeSinkOptions,
  markOf,
  notWritten,
  openLakeSink,
  requireLakeColumns,
  requirePartition,
  requireType,
  type RunMark,
} from "./lake.js";
import type { ColumnIds } from "./parquet/part-file.js";
import type { RunFolder } from "./parquet/parts.js";
import type { Sink } from "./target.js";

/** `table` is the name in the catalog. */
export interface IcebergSinkOptions extends LakeSinkOptions {
  readonly catalog: NamedTable;
  /** What the catalog said of the table when it was opened; its files are in `folder`. */
  readonly loaded: CatalogTable;
  /** The folder of the table, in which the output folder is. */
  readonly tableFolder: string;
  readonly unpack: LakeReader["unpack"];
  readonly retry: RetryTools;
}

interface State {
  readonly at: string;
  readonly table: IcebergTable;
  /** The newest snapshot of the branch main; undefined: there is none. */
  readonly head: Snapshot | undefined;
}

/**
 * Opens an Iceberg table of a REST catalog as a target. A property of the table, which stays when snapshots expire, names the
 * newest run of some params. A commit is a snapshot with that property, which the catalog takes if the branch `main` is at the
 * snapshot before it.
 * @see https://iceberg.apache.org/spec/
 */
export function openIcebergSink(options: IcebergSinkOptions): Sink {
  const { table, tableFolder, catalog, loaded, retry } = options;
  const store = options.storeAt(tableFolder);
  const reader = readerOf(store, options.unpack);

  const sink = openLakeSink<State>(options, {
    kind: "iceberg",
    files: { store, folder: `${tableFolder}/data` },
    columnIds: ({ target }) => target["columns"] as ColumnIds,
    async read() {
      const now = await orError(
        () => catalog.load(),
        ({ code }) => code === "FILE_MISSING",
      );
      if (now instanceof JobError) {
        return undefined;
      }
      const { uuid, location, metadata } = now;
      if (uuid !== loaded.uuid || location !== loaded.location) {
        throw new JobError("PLAN_CHANGED", `writing to ${table}: it was dropped and made anew meanwhile`, {
          hint: "run the same command again, which writes to the new table",
        });
      }
      const at = nameInStore({ table, location }, metadata);
      const opened = await openIcebergTable(reader, { table, at, isCatalogs: true });
      return { at: metadata, table: opened, head: snapshotOf(opened, { ref: "main" }) };
    },
    lastRun({ table: { meta } }, name) {
      const property = propertyOf(name);
      // Snapshots expire, and a property may be taken off: each says it where the other is gone.
      const texts = [meta.properties, ...meta.snapshots.map(({ summary }) => summary)].map((each) => each?.[property]);
      const versions = texts.flatMap((text) => (text === undefined ? [] : [Number(text)]));
      return versions.length === 0 ? undefined : Math.max(...versions);
    },
    requireWritable(plan, state) {
      requireWritable(options, plan, state);
    },
    pinned: (plan, state) => ({
      uuid: loaded.uuid,
      snapshot: state?.head === undefined ? null : String(state.head["snapshot-id"]),
      columns: state && idsOfColumns(plan, state),
    }),
    requiredColumns: (state) => fieldsOf(state).flatMap(({ name, required }) => (required ? [name] : [])),
    retried: (work) => untilSettled(table, retry, work),
    commit(run, state, files) {
      if (state === undefined) {
        throw new Error("a table that is gone has passed its check");
      }
      return nextSnapshot(options, { store, reader }, { run, state, files });
    },
  });
  // The folder of a table that was dropped may be that of a new one: runs of the old one are none of this table.
  return { ...sink, planTarget: { ...sink.planTarget, uuid: loaded.uuid } };
}

/** `work` must be safe to repeat. */
async function untilSettled(table: string, retry: RetryTools, work: () => Promise<void>): Promise<void> {
  const hint = "run the same command again when the catalog answers: it finds out whether the rows are there";
  await tryAgain(`writing to ${table}`, retry, { judge: settledOrEnd, code: "NETWORK", hint }, work);
}

function settledOrEnd(error: unknown): RetryVerdict {
  return error instanceof Unsettled ? { kind: "again", found: error.message } : { kind: "end", error };
}

/** What a table that does not exist is opened with. */
export interface NewTableOptions extends LakeSinkOptions {
  readonly catalog: NamedTable;
  readonly retry: RetryTools;
  /** Opens the table, when it exists. */
  readonly open: () => Promise<Sink>;
}

/**
 * Opens a table that does not exist, for which `folder` is an empty one. It is created when a run is planned, which has its
 * records in the table's folder.
 */
export function openNewIcebergTable(options: NewTableOptions): Sink {
  const { table, catalog, retry, partition } = options;
  const empty = openLakeSink<State>(options, {
    kind: "iceberg",
    files: { store: options.storeAt(options.folder), folder: options.folder },
    columnIds: () => undefined,
    read: () => Promise.resolve(undefined),
    lastRun: () => undefined,
    requireWritable: (plan) => {
      newSchema(options, plan);
    },
    pinned: () => ({}),
    requiredColumns: () => [],
    retried: (work) => work(),
    commit: () => Promise.reject(new Error("there is no table")),
  });
  let sink = empty;

  async function create(plan: Plan): Promise<void> {
    const schema = newSchema(options, plan);
    const fields = Object.keys(partition).map((name, index) => ({
      "source-id": schema.fields.find((field) => field.name === name)?.id,
      "field-id": 1000 + index,
      name,
      transform: "identity",
    }));
    const partitionSpec = jsonText({ "spec-id": 0, fields });
    await untilSettled(table, retry, () => catalog.create({ schema: jsonText(schema), partitionSpec }));
    sink = await options.open();
  }

  async function makePlace(plan: Plan): Promise<void> {
    await (sink === empty ? create(plan) : undefined);
  }

  return {
    target: empty.target,
    get planTarget() {
      return sink.planTarget;
    },
    table: undefined,
    openKeyedRows: () => Promise.resolve(undefined),
    get ledger() {
      // What is noted in the empty folder would be lost.
      return sink === empty ? { ...empty.ledger, create: () => Promise.reject(noTable(table)) } : sink.ledger;
    },
    find: (...args) => sink.find(...args),
    published: (...args) => sink.published(...args),
    readProfile: (...args) => sink.readProfile(...args),
    readPublished: (...args) => sink.readPublished(...args),
    history: (...args) => sink.history(...args),
    prune: (...args) => sink.prune(...args),
    rehearse: (...args) => sink.rehearse(...args),
    open: (...args) => sink.open(...args),
    makePlace,
    async create(plan, insteadOf) {
      await makePlace(plan);
      return await sink.create(plan, insteadOf);
    },
    async [Symbol.asyncDispose]() {
      await (sink === empty ? undefined : sink[Symbol.asyncDispose]());
      await empty[Symbol.asyncDispose]();
    },
  };
}

function noTable(table: string): JobError {
  return new JobError("FILE_MISSING", `making a note on a run in the folder of ${table}: there is no table yet`, {
    hint: "run the job, which makes it",
  });
}

/** Has the version of a run in the summary of its snapshot, and that of the last one in the properties of the table. */
function propertyOf(name: RunMark["name"]): string {
  return `infer-batch.${name}`;
}

function readerOf(store: Store, unpack: LakeReader["unpack"]): LakeReader {
  return {
    list: (folder) => namesIn(store, folder),
    async read(name) {
      for await (const [path = ""] of store.fetch([name], "whole").groups) {
        return await readFile(path);
      }
      throw new RangeError(`${name} was not read`);
    },
    parquet: () => Promise.reject(new RangeError("rows of the table are not read")),
    unpack,
  };
}

type Field = ReturnType<typeof fieldsOf>[number];

function fieldsOf({ table: { meta } }: State): NonNullable<IcebergTable["meta"]["schema"]>["fields"] {
  return schemaOf(meta).fields;
}

function schemaOf(meta: IcebergTable["meta"]): NonNullable<IcebergTable["meta"]["schema"]> {
  const schema = meta.schemas?.find((each) => each["schema-id"] === meta["current-schema-id"]) ?? meta.schema;
  if (schema === undefined) {
    throw new RangeError("there is no schema");
  }
  return schema;
}

function requireWritable(options: IcebergSinkOptions, plan: Plan, state: State | undefined): void {
  const { table, partition } = options;
  if (state === undefined) {
    throw new JobError("PLAN_CHANGED", `writing to ${table}: the catalog has no such table any more`, {
      hint: "restore it under its name; or score the rows for a new table, with --new-run",
      damage: { runId: plan.runId },
    });
  }
  const { meta } = state.table;
  const byId = new Map(fieldsOf(state).map(({ id, name }) => [id, name]));
  const parted = specOf(meta).fields;
  const transformed = parted.find(({ transform, "source-id": id }) => transform !== "identity" || !byId.has(id));
  const unknown = Object.keys(meta.properties).find((name) => name.startsWith("encryption."));
  if (transformed !== undefined || unknown !== undefined) {
    throw notWritten(table, transformed === undefined ? String(unknown) : `a partition by ${transformed.transform}`);
  }
  requirePartition(
    options,
    "iceberg",
    parted.map(({ "source-id": id }) => byId.get(id) ?? ""),
  );

  const types = new Map<string, ColumnType | undefined>(
    columnsOfIceberg(state.table, meta["current-schema-id"]).columns.map(({ name, type }) => [name, type]),
  );
  for (const { name, type } of fieldsOf(state)) {
    if (!isWritten(type)) {
      types.set(name, undefined);
    }
  }
  const must = fieldsOf(state).filter((field) => field.required || "write-default" in field);
  requireLakeColumns(
    table,
    lakeColumnsOf(plan, partition),
    types,
    must.map(({ name }) => name),
  );

  const { columns = {} } = plan.target; // none: the run is not planned yet
  const now = idsOfColumns(plan, state);
  const changed = Object.entries(columns as ColumnIds).find(
    ([name, id]) => JSON.stringify(id) !== JSON.stringify(now[name]),
  );
  if (changed !== undefined) {
    throw new JobError(
      "PLAN_CHANGED",
      `writing to ${table}: column ${changed[0]} is another one than when the run was planned`,
      {
        hint: "it was dropped and added anew: score the run anew, with --new-run",
        damage: { runId: plan.runId },
      },
    );
  }
}

/** As Parquet files have them: values of a fixed length are not, nor what must be in a list. */
function isWritten(type: unknown): boolean {
  if (typeof type === "string") {
    return !type.startsWith("fixed[");
  }
  const {
    element,
    fields,
    "element-required": required,
  } = Object(type) as {
    element?: unknown;
    fields?: readonly Field[];
    "element-required"?: boolean;
  };
  return (
    required !== true &&
    (element === undefined || isWritten(element)) &&
    (fields ?? []).every((field) => !field.required && isWritten(field.type))
  );
}

function specOf(meta: IcebergTable["meta"]): IcebergTable["meta"]["partition-specs"][number] {
  const id = meta["default-spec-id"];
  return meta["partition-specs"].find((spec) => spec["spec-id"] === id) ?? { "spec-id": id, fields: [] };
}

function idsOfColumns({ contract }: Plan, state: State): ColumnIds {
  const named = new Set(outputColumns(contract).map(({ name }) => name));
  const own = fieldsOf(state).filter(({ name }) => named.has(name));
  return Object.fromEntries(own.map(({ name, id, type }) => [name, idOf(id, type)]));
}

function idOf(id: number, type: unknown): ColumnIds[string] {
  const {
    element,
    "element-id": elementId,
    fields,
  } = Object(type) as {
    element?: unknown;
    "element-id"?: number;
    fields?: readonly Field[];
  };
  const inside =
    elementId === undefined
      ? (fields ?? []).map((field) => [field.name, idOf(field.id, field.type)] as const)
      : [["element", idOf(elementId, element)] as const];
  return inside.length === 0 ? id : [id, Object.fromEntries(inside)];
}

interface NewSnapshot {
  readonly run: RunFolder;
  readonly state: State;
  readonly files: readonly AddedFile[];
}

/** Manifests that are read at once. */
const readsAtOnce = 16;
/** The longest pause after another writer was first. */
const conflictMs = 200;

async function nextSnapshot(
  options: IcebergSinkOptions,
  { store, reader }: { readonly store: Store; readonly reader: LakeReader },
  { run, state, files }: NewSnapshot,
): Promise<() => Promise<boolean>> {
  const { table, tableFolder, mode, partition, catalog, retry, unpack } = options;
  const { layout, stored, check } = run;
  const { plan } = stored;
  const mark = markOf(plan);
  const names = { [propertyOf(mark.name)]: String(mark.version) };
  const { meta, whereIs } = state.table;
  const { head } = state;
  const facts = factsOf(state, partition);
  const id = randomBytes(6).readUIntBE(0, 6) + 1;
  const numbers = {
    id: BigInt(id),
    parent: head && BigInt(head["snapshot-id"]),
    sequence: BigInt(meta["last-sequence-number"]) + 1n,
    nextRow: BigInt(meta["next-row-id"]),
  };
  const before = await manifestsOf(state, reader);
  const removals = new Map<ListedManifest, RemovedFiles>();
  if (mode === "replace") {
    await requireUnchanged(options, plan, state, facts);
    await mapBounded(before, readsAtOnce, async (manifest) => {
      if (manifest.added_files_count + manifest.existing_files_count === 0) {
        return;
      }
      if (manifest.partition_spec_id !== facts.specId) {
        throw notWritten(table, "files of an older partitioning, whose rows may be those that are replaced");
      }
      const bytes = await reader.read(whereIs(manifest.manifest_path));
      const removed = withoutPartition(facts, manifest, { bytes, snapshotId: numbers.id, unpack });
      if (removed !== undefined) {
        removals.set(manifest, removed);
      }
    });
  }

  return async () => {
    const fence = fenceOf(layout, check);
    const folder = `${tableFolder}/metadata`;
    const location = meta.location.replace(/\/+$/, "");
    const write = async (name: string, bytes: Buffer): Promise<string> => {
      await store.create(`${folder}/${name}`, (path) => writeFile(path, bytes), fence);
      return `${location}/metadata/${name}`;
    };
    const own = `${plan.runId}.${randomBytes(8).toString("hex")}`;

    const manifests: ListedManifest[] = [];
    if (files.length > 0) {
      const ids = new Map(fieldsOf(state).map((field) => [field.name, field.id]));
      const located = files.map((file) => ({ ...file, uri: `${location}/data/${file.name}` }));
      const bytes = manifestOfAdded(facts, located, { snapshotId: numbers.id, idOf: (name) => ids.get(name) });
      const manifest_path = await write(`${own}-m0.avro`, bytes);
      manifests.push(manifestEntry(facts, numbers, { manifest_path, content: 0, bytes, counts: countsOfAdded(files) }));
    }
    for (const manifest of before) {
      const removed = removals.get(manifest);
      if (removed === undefined) {
        manifests.push(manifest);
      } else {
        const { bytes, counts, min_sequence_number = numbers.sequence } = removed;
        const manifest_path = await write(`${own}-m${manifests.length + 1}.avro`, bytes);
        const { content, partitions } = manifest;
        manifests.push(
          manifestEntry(facts, numbers, { manifest_path, content, bytes, counts, min_sequence_number, partitions }),
        );
      }
    }
    const { bytes, numberedRows } = manifestList(meta["format-version"], numbers, manifests);
    const list = await write(`snap-${id}-${own}.avro`, bytes);

    const removedFiles = [...removals.values()].flatMap((removed) => removed.files);
    const snapshot = {
      "snapshot-id": numbers.id,
      ...(numbers.parent === undefined ? {} : { "parent-snapshot-id": numbers.parent }),
      ...(meta["format-version"] === 1 ? {} : { "sequence-number": numbers.sequence }),
      ...(meta["format-version"] < 3 ? {} : { "first-row-id": numbers.nextRow, "added-rows": numberedRows }),
      "timestamp-ms": Math.max(Date.now(), meta["last-updated-ms"]),
      "manifest-list": list,
      summary: {
        operation: removedFiles.length === 0 ? "append" : "overwrite",
        ...summaryOf(head, files, removedFiles),
        "engine-name": "infer-batch",
        "infer-batch.run-id": plan.runId,
        ...names,
        "infer-batch.plan-id": stored.planId,
      },
      "schema-id": meta["current-schema-id"],
    };
    const { main: branch = { type: "branch" } } = meta.refs;
    const requirements = [
      { type: "assert-table-uuid", uuid: options.loaded.uuid },
      { type: "assert-ref-snapshot-id", ref: "main", "snapshot-id": numbers.parent ?? null },
      { type: "assert-current-schema-id", "current-schema-id": meta["current-schema-id"] },
      { type: "assert-default-spec-id", "default-spec-id": facts.specId },
    ];
    const updates = [
      { action: "set-properties", updates: names },
      { action: "add-snapshot", snapshot },
      { ...branch, action: "set-snapshot-ref", "ref-name": "main", "snapshot-id": numbers.id }, // with how long snapshots stay
    ];
    if (await isCommitted(catalog, state, { requirements: jsonText(requirements), updates: jsonText(updates) })) {
      return true;
    }
    // What it has written stays: a request may be sent again on its way, and be told of a conflict with itself.
    await retry.sleep(retry.random() * conflictMs);
    return false;
  };
}

/** @throws JobError where the catalog refuses the commit, though nothing else has changed the table */
async function isCommitted(
  catalog: NamedTable,
  { at }: State,
  change: Parameters<NamedTable["commit"]>[0],
): Promise<boolean> {
  try {
    return await catalog.commit(change);
  } catch (error) {
    if (!(error instanceof JobError) || error.code !== "SPEC_INVALID") {
      throw error;
    }
    // Some catalogs answer so where another branch has got the sequence number.
    if ((await catalog.load()).metadata !== at) {
      return false;
    }
    throw reworded(error, { hint: "see what the catalog says: it takes no such commit to this table" });
  }
}

function factsOf({ table: { meta } }: State, partition: LakeSinkOptions["partition"]): ManifestFacts {
  const schema = schemaOf(meta);
  const { "spec-id": specId, fields } = specOf(meta);
  return {
    formatVersion: meta["format-version"],
    schema: jsonText(schema),
    partitionSpec: jsonText(fields),
    specId,
    partition: fields.map(({ name, "source-id": source, "field-id": id = 1000 }) => {
      const column = schema.fields.find((field) => field.id === source);
      const type = column?.type === "date" ? "date" : "string";
      return { name, id, type, value: partition[column?.name ?? ""] ?? "" };
    }),
  };
}

async function manifestsOf({ table: { table, whereIs }, head }: State, reader: LakeReader): Promise<ListedManifest[]> {
  const list = head?.["manifest-list"];
  if (list === undefined) {
    if (head !== undefined) {
      throw notWritten(table, "snapshots without lists of manifests");
    }
    return [];
  }
  const bytes = await reader.read(whereIs(list));
  try {
    return readManifestList(bytes, (codec, packed, most) => reader.unpack(codec, packed, most));
  } catch (error) {
    throw damaged(table, list, error);
  }
}

/** @throws JobError PLAN_CHANGED where others changed its rows since the run was planned: none are replaced unseen */
async function requireUnchanged(
  options: LakeSinkOptions,
  plan: Plan,
  { table, head }: State,
  facts: ManifestFacts,
): Promise<void> {
  const planned = plan.target["snapshot"] as string | null;
  const byId = new Map(table.meta.snapshots.map((each) => [String(each["snapshot-id"]), each]));
  for (let id = head && String(head["snapshot-id"]); (id ?? null) !== planned; ) {
    const each = byId.get(String(id));
    if (each === undefined) {
      const from = planned === null ? "its first snapshot" : `snapshot ${planned}`;
      throw changedMeanwhile(
        options,
        plan,
        `its history does not lead back to ${from}, with which the run was planned`,
      );
    }
    const entries =
      each.summary?.operation === "replace" ? [] : await entriesOf(table, each, BigInt(each["snapshot-id"]));
    if (entries.some(({ file, spec }) => spec !== facts.specId || isOfPartition(facts, file.partition))) {
      throw changedMeanwhile(options, plan, `snapshot ${id} has changed its rows since the run was planned`);
    }
    const parent = each["parent-snapshot-id"];
    id = parent === undefined || parent === null ? undefined : String(parent);
  }
}

function sum(numbers: readonly (number | bigint)[]): bigint {
  return numbers.reduce<bigint>((all, each) => all + BigInt(each), 0n);
}

/** Counts for people, and the totals of the table, where the snapshot before has them. */
function summaryOf(
  head: Snapshot | undefined,
  files: readonly AddedFile[],
  removed: RemovedFiles["files"],
): Readonly<Record<string, string>> {
  const data = removed.filter(({ content }) => (content ?? 0) === 0);
  const changes = {
    "data-files": { added: BigInt(files.length), deleted: BigInt(data.length) },
    records: { added: sum(files.map(({ rows }) => rows)), deleted: sum(data.map((file) => file.record_count)) },
    "delete-files": { added: 0n, deleted: BigInt(removed.length - data.length) },
    "files-size": {
      added: sum(files.map(({ sizeBytes }) => sizeBytes)),
      deleted: sum(removed.map((file) => file.file_size_in_bytes)),
    },
  };
  const texts: Record<string, string> = {};
  for (const [what, { added, deleted }] of Object.entries(changes)) {
    const total = head === undefined ? "0" : head.summary?.[`total-${what}`];
    if (added > 0n) {
      texts[`added-${what}`] = String(added);
    }
    if (deleted > 0n) {
      texts[`${what === "files-size" ? "removed" : "deleted"}-${what}`] = String(deleted);
    }
    if (typeof total === "string" && /^\d+$/.test(total)) {
      texts[`total-${what}`] = String(BigInt(total) + added - deleted);
    }
  }
  return texts;
}

interface NewSchema {
  readonly type: "struct";
  readonly "schema-id": 0;
  readonly fields: readonly {
    readonly id: number;
    readonly name: string;
    readonly type: unknown;
    readonly required: false;
  }[];
}

function newSchema({ table, partition }: LakeSinkOptions, plan: Plan): NewSchema {
  let last = 0;
  const next = (): number => {
    last += 1;
    return last;
  };
  const fields = lakeColumnsOf(plan, partition).map((column: LakeColumn) => {
    const id = next();
    const type = icebergTypeOf(column.type, next);
    requireType(type, table, column, "iceberg");
    return { id, name: column.name, type, required: false as const };
  });
  return { type: "struct", "schema-id": 0, fields };
}

/** undefined: a new table cannot have it. */
function icebergTypeOf(type: ColumnType, next: () => number): unknown {
  if (typeof type === "string") {
    const name = Object.keys(icebergTypes).find((each) => icebergTypes[each] === type);
    return name === "timestamp_ns" ? undefined : name; // it asks for version 3
  }
  if (type.kind === "decimal") {
    return type.precision > 38 ? undefined : `decimal(${type.precision}, ${type.scale})`;
  }
  if (type.kind === "list") {
    const id = next();
    const element = icebergTypeOf(type.element, next);
    return element && { type: "list", "element-id": id, element, "element-required": false };
  }
  const fields = type.fields.map(({ name, type: inner }) => ({
    id: next(),
    name,
    type: icebergTypeOf(inner, next),
    required: false,
  }));
  return fields.some((field) => field.type === undefined) ? undefined : { type: "struct", fields };
}
