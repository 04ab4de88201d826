import { randomUUID } from "node:crypto";
import type { DuckDbAccess } from "../duckdb/instance.js";
import { jsonRows } from "../duckdb/json-rows.js";
import type { Plan } from "../run/plan/plan.js";
import {
  actionsOf,
  type AddAction,
  columnsOfDelta,
  type DeltaState,
  deltaTypeOf,
  fieldsOfSchema,
  readDeltaState,
  type SchemaField,
} from "../sources/lake/delta.js";
import type { LakeReader } from "../sources/lake/snapshot.js";
import { namesIn, type Store } from "../stores/store.js";
import { JobError, orError } from "../base/errors.js";
import { jsonText } from "../base/texts.js";
import {
  type AddedFile,
  changedMeanwhile,
  type ColumnStatistics,
  lakeColumnsOf,
  fenceOf,
  integers,
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
import type { RunFolder } from "./parquet/parts.js";
import type { Sink } from "./target.js";

/** What the writer of a version must know, and this one does. */
const knownFeatures = new Set([
  "appendOnly",
  "changeDataFeed",
  "checkConstraints",
  "columnMapping",
  "deletionVectors",
  "domainMetadata",
  "generatedColumns",
  "identityColumns",
  "invariants",
  "timestampNtz",
  "typeWidening",
  "typeWidening-preview",
  "v2Checkpoint",
  "vacuumProtocolCheck",
]);

/** Settings of a table that ask something of the rows, or of the versions, which is not done here. */
const refusedSettings =
  /^delta\.constraints\.|^delta\.enable(RowTracking|InCommitTimestamps)$|^delta\.setTransactionRetentionDuration$/;
/** The same of a column. */
const refusedOfColumn = /^delta\.(generationExpression|identity\.|invariants)/;

/**
 * Opens a Delta table as a target. Its log names runs as `txn`, whose `appId` is the run's id without its number, and whose
 * version is the number. A commit is the next version, which is created unless another writer has created it.
 * @param options `table` is its folder, which the output folder is in
 * @see https://github.com/delta-io/delta/blob/master/PROTOCOL.md
 */
export function openDeltaSink(options: LakeSinkOptions): Sink {
  const { table, duckdb } = options;
  const store = options.storeAt(table);
  const reader = readerOf(store, duckdb);
  return openLakeSink<DeltaState>(options, {
    kind: "delta",
    files: { store, folder: table },
    read: () => stateOf(reader, table),
    lastRun: ({ transactions }, name) => transactions.get(appIdOf(name)),
    requireWritable: (plan, state) => {
      requireWritable(options, plan, state);
    },
    columnIds: () => undefined,
    retried: (work) => work(), // a store tells what it has created
    pinned: (_plan, state) => ({ version: state?.version ?? noVersion }),
    requiredColumns: ({ metaData }) =>
      fieldsOfSchema(metaData.schemaString).flatMap(({ name, nullable }) => (nullable === false ? [name] : [])),
    commit: (run, state, files) => nextVersion(options, { store, reader }, { run, state, files }),
  });
}

function appIdOf(name: RunMark["name"]): string {
  return `infer-batch:${name}`;
}

function readerOf(store: Store, duckdb: DuckDbAccess): LakeReader {
  return {
    list: (folder) => namesIn(store, folder),
    async read(name) {
      const text = await store.readText(name);
      if (text === undefined) {
        throw new JobError("OUTPUT_DAMAGED", `reading ${name}: it is gone`, {
          hint: "a clean-up of the table's log removed it meanwhile: run the same command again",
        });
      }
      return Buffer.from(text);
    },
    async parquet(name, sql) {
      const lines: string[] = [];
      for await (const [path = ""] of store.fetch([name], "whole").groups) {
        lines.push(...(await jsonRows(duckdb, path, sql)));
      }
      return lines;
    },
    unpack(codec) {
      throw new RangeError(`the log of a Delta table has no ${codec}`);
    },
  };
}

async function stateOf(reader: LakeReader, table: string): Promise<DeltaState | undefined> {
  const names = await reader.list(logOf(table));
  return names.some((name) => /^\d{20}\./.test(name)) ? await readDeltaState(reader, table, "latest") : undefined;
}

function logOf(table: string): string {
  return `${table}/_delta_log`;
}

function requireWritable(options: LakeSinkOptions, plan: Plan, state: DeltaState | undefined): void {
  const { table, mode, partition } = options;
  if (state === undefined) {
    if (!options.create) {
      throw new JobError("USAGE", `writing to ${table}: there is no Delta table`, {
        hint: "create it, or set output.delta.create to true",
      });
    }
    newSchema(table, lakeColumnsOf(plan, partition));
    return;
  }
  const unknown = unknownIn(state, mode);
  if (unknown !== undefined) {
    throw notWritten(table, unknown);
  }
  const { metaData } = state;
  requirePartition(options, "delta", metaData.partitionColumns);
  const types = new Map(columnsOfDelta(table, metaData).map(({ name, type }) => [name, type]));
  const required = fieldsOfSchema(metaData.schemaString).filter(
    ({ nullable, metadata = {} }) => nullable === false || "CURRENT_DEFAULT" in metadata,
  );
  requireLakeColumns(
    table,
    lakeColumnsOf(plan, partition),
    types,
    required.map(({ name }) => name),
  );
}

function unknownIn({ protocol, metaData }: DeltaState, mode: LakeSinkOptions["mode"]): string | undefined {
  if (protocol.minWriterVersion > 7) {
    return `writer version ${protocol.minWriterVersion}`;
  }
  const settings = metaData.configuration ?? {};
  const { "delta.columnMapping.mode": mapping = "none" } = settings;
  const column = fieldsOfSchema(metaData.schemaString).find(({ metadata = {} }) =>
    Object.keys(metadata).some((key) => refusedOfColumn.test(key)),
  );
  if (mode === "replace" && settings["delta.appendOnly"] === "true") {
    return "delta.appendOnly, and mode replace removes rows";
  }
  return (
    (protocol.writerFeatures ?? []).find((feature) => !knownFeatures.has(feature)) ??
    Object.keys(settings).find((name) => refusedSettings.test(name) && settings[name] !== "false") ??
    (column && `an expression for column ${column.name}`) ??
    (mapping === "none" ? undefined : `column mapping by ${mapping}`)
  );
}

interface NewVersion {
  readonly run: RunFolder;
  readonly state: DeltaState | undefined;
  readonly files: readonly AddedFile[];
}

async function nextVersion(
  options: LakeSinkOptions,
  { store, reader }: { readonly store: Store; readonly reader: LakeReader },
  { run: { layout, stored, check }, state, files }: NewVersion,
): Promise<() => Promise<boolean>> {
  const { table, mode, partition } = options;
  const { plan } = stored;
  const { name, version } = markOf(plan);
  const replaced = mode === "append" ? [] : await replacedFiles(options, reader, plan, state);
  return async () => {
    const now = Date.now();
    const actions = [
      {
        commitInfo: {
          timestamp: now,
          operation: "WRITE",
          operationParameters: {
            mode: mode === "append" ? "Append" : "Overwrite",
            partitionBy: JSON.stringify(Object.keys(partition)),
          },
          isBlindAppend: mode === "append",
          engineInfo: plan.createdBy.replace(" ", "/"),
          "infer-batch": { runId: plan.runId, planId: stored.planId },
        },
      },
      ...(state === undefined ? creation(options, plan, now) : []),
      { txn: { appId: appIdOf(name), version, lastUpdated: now } },
      ...replaced.map((file) => removal(file, now)),
      ...files.map((file) => ({ add: { ...addOf(file, partition), modificationTime: now } })),
    ];
    const text = actions.map((action) => `${JSON.stringify(action)}\n`).join("");
    const file = `${logOf(table)}/${nameOf((state?.version ?? -1) + 1)}.json`;
    return (await store.create(file, text, fenceOf(layout, check))).outcome === "created";
  };
}

/** The version of a table that does not exist, in a plan. */
const noVersion = -1;

/** @throws JobError PLAN_CHANGED where others changed its rows since the run was planned: none are replaced unseen */
async function replacedFiles(
  options: LakeSinkOptions,
  reader: LakeReader,
  plan: Plan,
  state: DeltaState | undefined,
): Promise<readonly AddAction[]> {
  const { table, partition } = options;
  const isOfPartition = ({ partitionValues: values }: Pick<AddAction, "partitionValues">): boolean =>
    Object.entries(partition).every(([name, value]) => values[name] === value);
  const planned = Number(plan.target["version"]);
  const newest = state?.version ?? noVersion;
  const before =
    planned === noVersion || planned === newest
      ? undefined
      : await orError(
          () => readDeltaState(reader, table, { version: planned }),
          ({ code }) => code === "FILE_MISSING",
        );
  if (before instanceof JobError) {
    throw changedMeanwhile(
      options,
      plan,
      `the table's log has version ${planned} no more, with which the run was planned`,
    );
  }
  const known = new Set([...(before?.files.values() ?? [])].filter(isOfPartition).map(({ path }) => path));
  for (let version = planned + 1; version <= newest; version += 1) {
    for (const { add, remove } of await actionsOf({ reader, table }, `${nameOf(version)}.json`)) {
      const isRemoved = remove && remove.dataChange !== false && known.has(remove.path);
      const isAdded = add && isOfPartition(add);
      if (isRemoved || (isAdded && add.dataChange !== false)) {
        throw changedMeanwhile(options, plan, `version ${version} has changed its rows since the run was planned`);
      }
      if (isAdded) {
        known.add(add.path); // files were joined
      }
    }
  }
  return [...(state?.files.values() ?? [])].filter(isOfPartition);
}

function nameOf(version: number): string {
  return String(version).padStart(20, "0");
}

function removal({ path, partitionValues, size, deletionVector }: AddAction, deletionTimestamp: number): object {
  const removed = { path, deletionTimestamp, dataChange: true, extendedFileMetadata: true, partitionValues, size };
  return { remove: deletionVector ? { ...removed, deletionVector } : removed };
}

function addOf({ name, rows, sizeBytes, columns }: AddedFile, partitionValues: LakeSinkOptions["partition"]): object {
  return {
    path: encodeURIComponent(name),
    partitionValues,
    size: sizeBytes,
    dataChange: true,
    stats: statisticsText(rows, columns),
  };
}

function statisticsText(rows: number, columns: readonly ColumnStatistics[]): string {
  const bounds = (index: 0 | 1): object =>
    Object.fromEntries(
      columns.flatMap(({ name, type, bounds: texts }) =>
        texts === undefined ? [] : [[name, integers.has(type) ? BigInt(texts[index]) : texts[index]]],
      ),
    );
  const nullCount = Object.fromEntries(columns.map(({ name, nulls }) => [name, nulls]));
  return jsonText({ numRecords: rows, minValues: bounds(0), maxValues: bounds(1), nullCount });
}

function creation({ table, partition }: LakeSinkOptions, plan: Plan, now: number): readonly object[] {
  const fields = newSchema(table, lakeColumnsOf(plan, partition));
  const metaData = {
    id: randomUUID(),
    format: { provider: "parquet", options: {} },
    schemaString: JSON.stringify({ type: "struct", fields }),
    partitionColumns: Object.keys(partition),
    configuration: {},
    createdTime: now,
  };
  return [{ protocol: { minReaderVersion: 1, minWriterVersion: 2 } }, { metaData }];
}

function newSchema(table: string, columns: readonly LakeColumn[]): readonly SchemaField[] {
  return columns.map((column) => {
    const type = deltaTypeOf(column.type);
    requireType(type, table, column, "delta");
    return { name: column.name, type, nullable: true, metadata: {} };
  });
}
