import { randomUUID } from "node:crypto";
import { outputColumns } from "../models/binding/contract.js";
import { type ColumnType, showType } from "../columns/types.js";
import type { DuckDbAccess, DuckDBConnection } from "../duckdb/instance.js";
import { jsonRows } from "../duckdb/json-rows.js";
import { quotePaths, quoteText } from "../duckdb/sql.js";
import { isCalendarDate, numberedRunId, splitRunId } from "../run/plan/identity.js";
import type { Plan } from "../run/plan/plan.js";
import {
  actionsOf,
  type AddAction,
  columnsOf,
  type DeltaState,
  deltaTypeOf,
  fieldsOf,
  readDeltaState,
  type SchemaField,
} from "../sources/lake/delta.js";
import type { LakeReader } from "../sources/lake/snapshot.js";
import { type Fence, flush, namesIn, type Store } from "../stores/store.js";
import { JobError } from "../base/errors.js";
import { mapBounded } from "../base/promises.js";
import type { ManifestPart } from "./parquet/manifest.js";
import { type Layout, layoutOf } from "./parquet/layout.js";
import { eachFooter, type RunFolder } from "./parquet/parts.js";
import { type ParquetSinkOptions, openParquetSink } from "./parquet/sink.js";
import type { Sink } from "./target.js";

export interface DeltaSinkOptions extends Omit<ParquetSinkOptions, "publish"> {
  /** The table's folder. The output folder is in it. */
  readonly table: string;
  /** replace: a run takes the place of all rows of its partition. */
  readonly mode: "append" | "replace";
  /** Whether a table that does not exist is created. */
  readonly create: boolean;
  /** Values of the columns that the table is partitioned by. */
  readonly partition: Readonly<Record<string, string>>;
  /** Whether a new run may add its rows to those of an earlier one. */
  readonly allowDuplicates: boolean;
}

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

/** Versions that other writers may create while one is created. */
const triesLimit = 1000;

/**
 * Opens a Delta table as a target. A run has an output folder as one of Parquet files has it, below `_infer-batch/` in the
 * table's folder, which no reader of the table sees and no clean-up removes. Publishing has one step more, before
 * `_SUCCESS`: the parts are copied into the table's folder, and one version adds them.
 *
 * 1. The table's log names the runs that it has: as `txn`, whose `appId` is the run's id without its number, and whose
 *    version is the number. Whoever finds the run there has nothing to add.
 * 2. Otherwise the next version is created, unless another writer has created it: then from 1.
 *
 * With mode replace, that version removes what the partition had; nobody may have changed its rows since the run was
 * planned, when the plan has noted the table's version.
 *
 * The copies are the table's, whose writers may rewrite and remove them.
 * @see https://github.com/delta-io/delta/blob/master/PROTOCOL.md
 */
export function openDeltaSink(options: DeltaSinkOptions): Sink {
  const { table, uri, duckdb, mode, partition } = options;
  const store = options.storeAt(table);
  const reader = readerOf(store, duckdb);
  const log = { store, reader };
  const sink = openParquetSink({ ...options, publish: (run, parts) => addVersion(options, log, run, parts) });

  /** @throws JobError for a table that could not take the rows of a run */
  async function check(plan: Plan): Promise<void> {
    requireWritable(options, plan, await stateOf(reader, table));
  }

  return {
    ...sink,
    // Runs of the same params replace each other, where they replace a partition: no `mode` says so.
    planTarget: { kind: "delta", uri, partition, ...(mode === "append" ? { mode } : { replaces: "partition" }) },
    async rehearse(plan, isPlanned) {
      await check(plan);
      return await sink.rehearse(plan, isPlanned);
    },
    async create(plan, insteadOf) {
      if (plan.erasure !== undefined) {
        throw new JobError(
          "USAGE",
          `erasing rows of ${table}: they are a table's, whose files other programs rewrite`,
          {
            hint: "delete them with an engine that writes the table: DELETE FROM … WHERE …, then VACUUM",
          },
        );
      }
      const { base, number } = splitRunId(plan.runId);
      const state = await stateOf(reader, table); // first: a run that it names was planned before
      const latest = await sink.find(base);
      if (latest !== undefined && splitRunId(latest.plan.runId).number >= number) {
        return await sink.create(plan, insteadOf);
      }
      requireWritable(options, plan, state);
      await requireExclusive(
        store,
        table,
        fenceOf(layoutOf(options.folder, plan.runId), () => Promise.resolve()),
      );
      const added = state?.transactions.get(appIdOf(base));
      if (added !== undefined && added >= number) {
        throw new JobError(
          "OUTPUT_DAMAGED",
          `planning run ${plan.runId}: ${table} has the rows of run ${numberedRunId(base, added)}, and what is known of it is gone`,
          {
            hint: `restore ${options.folder}; or delete the rows from the table, and run the job with another name`,
          },
        );
      }
      if (added !== undefined && mode === "append" && !options.allowDuplicates) {
        throw addedBefore("USAGE", table, plan.runId, numberedRunId(base, added));
      }
      const target = { ...plan.target, version: state?.version ?? noVersion };
      return await sink.create({ ...plan, target }, insteadOf);
    },
  };
}

function addedBefore(code: "USAGE" | "PLAN_CHANGED", table: string, runId: string, earlier: string): JobError {
  return new JobError(
    code,
    `adding run ${runId} to ${table}: it has the rows of run ${earlier}, which would be there twice`,
    {
      hint: `delete those rows first, with an engine that writes the table, and then run with --new-run --allow-duplicates`,
    },
  );
}

function appIdOf(base: string): string {
  return `infer-batch:${base}`;
}

/** Reads the log of the table through the store of a target. */
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

/** The newest version of the table; undefined: there is no table. */
async function stateOf(reader: LakeReader, table: string): Promise<DeltaState | undefined> {
  const names = await reader.list(logOf(table));
  return names.some((name) => /^\d{20}\./.test(name)) ? await readDeltaState(reader, table, "latest") : undefined;
}

function logOf(table: string): string {
  return `${table}/_delta_log`;
}

/** @throws JobError USAGE, CONTRACT for a table that cannot take the rows of a run */
function requireWritable(
  { table, mode, create, partition }: DeltaSinkOptions,
  plan: Plan,
  state: DeltaState | undefined,
): void {
  const columns = outputColumns(plan.contract);
  if (state === undefined) {
    if (!create) {
      throw new JobError("USAGE", `writing to ${table}: there is no Delta table`, {
        hint: "create it, or set output.delta.create to true",
      });
    }
    newSchema(table, columns, partition);
    return;
  }
  const unknown = unknownIn(state, mode);
  if (unknown !== undefined) {
    throw new JobError("USAGE", `writing to ${table}: it uses ${unknown}, which infer-batch does not write`, {
      hint: "write to a table without it; or to Parquet files (output.parquet), from which an engine that writes the table takes the rows",
    });
  }
  requirePartition(table, state, partition);
  requireColumns(table, state, columns.concat(partitionColumns(partition)));
}

/** What a table asks of those who write to it, and this program does not do; undefined: nothing. */
function unknownIn({ protocol, metaData }: DeltaState, mode: DeltaSinkOptions["mode"]): string | undefined {
  if (protocol.minWriterVersion > 7) {
    return `writer version ${protocol.minWriterVersion}`;
  }
  const settings = metaData.configuration ?? {};
  const { "delta.columnMapping.mode": mapping = "none" } = settings;
  const column = fieldsOf(metaData.schemaString).find(({ metadata = {} }) =>
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

/** @throws JobError USAGE where the table is not partitioned as the spec says */
function requirePartition(table: string, { metaData }: DeltaState, partition: DeltaSinkOptions["partition"]): void {
  const { partitionColumns: theirs } = metaData;
  const ours = Object.keys(partition);
  if (theirs.length !== ours.length || theirs.some((name) => !ours.includes(name))) {
    const wanted = theirs.length === 0 ? "{}" : `{ ${theirs.map((name) => `${name}: …`).join(", ")} }`;
    const how = theirs.length === 0 ? "not partitioned" : `partitioned by ${theirs.join(", ")}`;
    throw new JobError("USAGE", `writing to ${table}: it is ${how}`, {
      hint: `a run writes rows of one partition: set output.delta.partition to ${wanted}, as in { ds: \${ds} }`,
    });
  }
}

/** @throws JobError CONTRACT where the columns of the output are not those of the table */
function requireColumns(
  table: string,
  { metaData }: DeltaState,
  columns: readonly { readonly name: string; readonly type: ColumnType }[],
): void {
  const types = new Map(columnsOf(table, metaData).map(({ name, type }) => [name, type]));
  const problems = columns.flatMap(({ name, type }) => {
    const theirs = types.get(name);
    if (!types.has(name)) {
      return [`the table has no column ${name} (${showType(type)})`];
    }
    const isSame = theirs !== undefined && showType(theirs) === showType(type);
    return isSame
      ? []
      : [`${name} is ${showType(type)}, and ${theirs ? showType(theirs) : "of another type"} in the table`];
  });
  const named = new Set(columns.map(({ name }) => name));
  const missing = fieldsOf(metaData.schemaString).filter(
    ({ name, nullable, metadata = {} }) => !named.has(name) && (nullable === false || "CURRENT_DEFAULT" in metadata),
  );
  problems.push(...missing.map(({ name }) => `column ${name} of the table must have values, and the output has none`));
  if (problems.length > 0) {
    throw new JobError("CONTRACT", `writing to ${table}: ${problems.join("; ")}`, {
      hint: "name the columns with output.columns and model.outputs; input.columns can cast one: id: CAST(id AS BIGINT)",
    });
  }
}

/** The columns of a partition: dates, or texts. */
function partitionColumns(partition: DeltaSinkOptions["partition"]): { name: string; type: ColumnType }[] {
  return Object.entries(partition).map(([name, value]) => ({ name, type: isCalendarDate(value) ? "date32" : "utf8" }));
}

/** Adds the parts of a run to the table, as its next version; does nothing where they are there. */
async function addVersion(
  options: DeltaSinkOptions,
  log: { readonly store: Store; readonly reader: LakeReader },
  run: RunFolder,
  parts: readonly ManifestPart[],
): Promise<void> {
  const { table, partition } = options;
  const { layout, stored, check } = run;
  const { plan } = stored;
  const { base, number } = splitRunId(plan.runId);
  const adds = await addedFiles(run, parts, partition);
  const fence = fenceOf(layout, check);
  let isCopied = false;
  await requireExclusive(log.store, table, fence);

  for (let tries = 0; tries < triesLimit; tries += 1) {
    await check();
    const state = await stateOf(log.reader, table);
    const added = state?.transactions.get(appIdOf(base));
    if (added === number) {
      return;
    }
    if (added !== undefined && (options.mode === "append" ? !options.allowDuplicates : added > number)) {
      throw addedBefore("PLAN_CHANGED", table, plan.runId, numberedRunId(base, added));
    }
    requireWritable(options, plan, state);
    requireValues(table, state, adds);
    const replaced = options.mode === "append" ? [] : await replacedFiles(options, log.reader, plan, state);
    await (isCopied ? undefined : copyParts(log.store, adds, { from: layout.folder, to: table }));
    isCopied = true;
    const now = Date.now();
    const version = (state?.version ?? -1) + 1;
    const actions = [
      {
        commitInfo: {
          timestamp: now,
          operation: "WRITE",
          operationParameters: {
            mode: options.mode === "append" ? "Append" : "Overwrite",
            partitionBy: JSON.stringify(Object.keys(partition)),
          },
          isBlindAppend: options.mode === "append",
          engineInfo: plan.createdBy.replace(" ", "/"),
          "infer-batch": { runId: plan.runId, planId: stored.planId },
        },
      },
      ...(state === undefined ? creation(options, plan, now) : []),
      { txn: { appId: appIdOf(base), version: number, lastUpdated: now } },
      ...replaced.map((file) => removal(file, now)),
      ...adds.map(({ add }) => ({ add: { ...add, modificationTime: now } })),
    ];
    const text = actions.map((action) => `${JSON.stringify(action)}\n`).join("");
    const name = `${logOf(table)}/${nameOf(version)}.json`;
    if ((await log.store.create(name, text, fence)).outcome === "created") {
      return;
    }
  }
  throw new JobError(
    "OBJECT_STORE",
    `writing to ${table}: other writers created each of ${triesLimit} versions first`,
    {
      hint: "run the same command again",
    },
  );
}

/** The fence of a version: readers may have seen one that came too late. */
function fenceOf({ temporary }: Layout, check: Fence["check"]): Fence {
  return { scope: temporary, check, takesBack: () => Promise.resolve(false) };
}

/** @throws JobError USAGE where two writers could create the same version, and where nothing can be copied */
async function requireExclusive(store: Store, table: string, fence: Fence): Promise<void> {
  const shared = await store.prepare(fence);
  if (shared !== undefined) {
    throw new JobError("USAGE", `writing to ${table}: ${shared}, so that two writers could create one version`, {
      hint: "keep the table on a disk with hard links, or in a store that honours conditions",
    });
  }
}

/** The version of a table that does not exist, in a plan. */
const noVersion = -1;

/**
 * The files of the partition that a run replaces.
 * @throws JobError PLAN_CHANGED where rows of it were changed since the run was planned: those are not replaced unseen
 */
async function replacedFiles(
  { table, partition }: DeltaSinkOptions,
  reader: LakeReader,
  plan: Plan,
  state: DeltaState | undefined,
): Promise<readonly AddAction[]> {
  const isOfPartition = ({ partitionValues: values }: Pick<AddAction, "partitionValues">): boolean =>
    Object.entries(partition).every(([name, value]) => values[name] === value);
  const of = `partition ${Object.entries(partition)
    .map(([name, value]) => `${name}=${value}`)
    .join(", ")} of ${table}`;
  const changed = (what: string): JobError =>
    new JobError("PLAN_CHANGED", `replacing ${of}: ${what}`, {
      hint: "score it anew, which replaces what is there now: the same command with --new-run",
      damage: { runId: plan.runId },
    });

  const planned = Number(plan.target["version"]);
  const newest = state?.version ?? noVersion;
  const before = planned === noVersion || planned === newest ? undefined : await versionBefore(reader, table, planned);
  if (before === "gone") {
    throw changed(`the table's log has version ${planned} no more, with which the run was planned`);
  }
  const known = new Set([...(before?.files.values() ?? [])].filter(isOfPartition).map(({ path }) => path));
  for (let version = planned + 1; version <= newest; version += 1) {
    for (const { add, remove } of await actionsOf({ reader, table }, `${nameOf(version)}.json`)) {
      const isRemoved = remove && remove.dataChange !== false && known.has(remove.path);
      const isAdded = add && isOfPartition(add);
      if (isRemoved || (isAdded && add.dataChange !== false)) {
        throw changed(`version ${version} has changed its rows since the run was planned`);
      }
      if (isAdded) {
        known.add(add.path); // files were joined
      }
    }
  }
  return [...(state?.files.values() ?? [])].filter(isOfPartition);
}

async function versionBefore(reader: LakeReader, table: string, version: number): Promise<DeltaState | "gone"> {
  try {
    return await readDeltaState(reader, table, { version });
  } catch (error) {
    if (error instanceof JobError && error.code === "FILE_MISSING") {
      return "gone";
    }
    throw error;
  }
}

function nameOf(version: number): string {
  return String(version).padStart(20, "0");
}

/** The action that removes a file. */
function removal({ path, partitionValues, size, deletionVector }: AddAction, deletionTimestamp: number): object {
  const removed = { path, deletionTimestamp, dataChange: true, extendedFileMetadata: true, partitionValues, size };
  return { remove: deletionVector ? { ...removed, deletionVector } : removed };
}

interface AddedFile {
  /** Its name in the folder of the run, and the one in that of the table, which depends on its content. */
  readonly part: string;
  readonly name: string;
  readonly add: Readonly<Record<string, unknown>>;
  /** Columns with NULLs. */
  readonly nulls: readonly string[];
}

/** Digits of the digest in the name of a part in the table. */
const digestDigits = 16;
/** Parts that are copied at once. */
const copiesAtOnce = 24;

/** What the log is told of each part with rows. */
async function addedFiles(
  run: RunFolder,
  parts: readonly ManifestPart[],
  partitionValues: DeltaSinkOptions["partition"],
): Promise<readonly AddedFile[]> {
  const { layout, stored } = run;
  const filled = parts.filter(({ rows }) => rows > 0);
  const columns = outputColumns(stored.plan.contract);
  const names = new Map(filled.map(({ span, file }) => [span, `${layout.folder}/${file}`]));
  const statistics = new Map<number, readonly ColumnStatistics[]>();
  await eachFooter(run, names, async (connection, files) => {
    const read = await readStatistics(
      connection,
      columns,
      files.map(({ path }) => path),
    );
    for (const { span, path } of files) {
      statistics.set(span, read.get(path) ?? []);
    }
  });

  return filled.map(({ span, file, rows, size_bytes: size, sha256 }) => {
    const known = statistics.get(span) ?? [];
    const name = file.replace(/\.parquet$/, `.${sha256.slice(0, digestDigits)}.parquet`);
    const stats = statisticsText(rows, known);
    return {
      part: file,
      name,
      add: { path: encodeURIComponent(name), partitionValues, size, dataChange: true, stats },
      nulls: known.filter(({ nulls }) => nulls > 0).map((column) => column.name),
    };
  });
}

/** @throws JobError OUTPUT_DAMAGED for a part that is gone */
async function copyParts(
  store: Store,
  files: readonly AddedFile[],
  { from, to }: { readonly from: string; readonly to: string },
): Promise<void> {
  await mapBounded(files, copiesAtOnce, async ({ part, name }) => {
    if ((await store.copy(`${from}/${part}`, `${to}/${name}`)) === "missing") {
      throw new JobError("OUTPUT_DAMAGED", `publishing ${from}: ${part} is gone since it was committed`, {
        hint: "something else removes files here; run the same command again, which scores that span anew",
      });
    }
  });
  await flush(store, to); // a version must not name files that a power failure removes
}

interface ColumnStatistics {
  readonly name: string;
  readonly nulls: number;
  /** JSON of the smallest and the largest value; undefined: they are not known. */
  readonly bounds: readonly [min: string, max: string] | undefined;
}

const integers: ReadonlySet<unknown> = new Set(["int8", "int16", "int32", "int64"]);

/** Reads the statistics of columns from the footers of parts, by path. */
async function readStatistics(
  connection: DuckDBConnection,
  columns: readonly { readonly name: string; readonly type: ColumnType }[],
  paths: readonly string[],
): Promise<ReadonlyMap<string, readonly ColumnStatistics[]>> {
  const types = new Map(columns.map(({ name, type }) => [name, type]));
  const counted = columns.filter(({ type }) => integers.has(type)).map(({ name }) => quoteText(name));
  const isInteger = counted.length === 0 ? "false" : `path_in_schema IN (${counted.join(", ")})`;
  const read = await connection.runAndReadAll(
    `SELECT file_name, path_in_schema, sum(stats_null_count)::DOUBLE,
       bool_and(stats_min_value IS NOT NULL OR stats_null_count = num_values),
       CASE WHEN ${isInteger} THEN min(try_cast(stats_min_value AS BIGINT))::VARCHAR ELSE min(stats_min_value) END,
       CASE WHEN ${isInteger} THEN max(try_cast(stats_max_value AS BIGINT))::VARCHAR ELSE max(stats_max_value) END
     FROM parquet_metadata(${quotePaths(paths)}) GROUP BY file_name, path_in_schema`,
  );
  const statistics = new Map<string, ColumnStatistics[]>();
  for (const [file, column, nulls, isWhole, min, max] of read.getRows()) {
    const name = String(column);
    const type = types.get(name);
    if (type !== undefined && nulls !== null) {
      const isKnown = isWhole === true && typeof min === "string" && typeof max === "string";
      const bounds = isKnown ? boundsOf(type, min, max) : undefined;
      statistics.set(String(file), [...(statistics.get(String(file)) ?? []), { name, nulls: Number(nulls), bounds }]);
    }
  }
  return statistics;
}

/** Longer texts do not tell files apart. */
const longestBound = 64;
const usualDate = /^\d{4}-\d\d-\d\d$/;

/** The bounds of integers, dates and texts: NaN has no place among those of floats, and times are rounded in the log. */
function boundsOf(type: ColumnType, min: string, max: string): ColumnStatistics["bounds"] {
  if (integers.has(type)) {
    return [min, max];
  }
  const both = [min, max];
  const isUsable =
    type === "date32"
      ? both.every((text) => usualDate.test(text))
      : type === "utf8" && both.every((text) => text.length <= longestBound);
  return isUsable ? [JSON.stringify(min), JSON.stringify(max)] : undefined;
}

/** JSON of statistics, in which integers of 64 bits keep all digits. */
function statisticsText(rows: number, known: readonly ColumnStatistics[]): string {
  const bounded = known.flatMap(({ name, bounds }) => (bounds === undefined ? [] : [{ name, bounds }]));
  return objectOf([
    ["numRecords", String(rows)],
    ["minValues", objectOf(bounded.map(({ name, bounds: [min] }) => [name, min]))],
    ["maxValues", objectOf(bounded.map(({ name, bounds: [, max] }) => [name, max]))],
    ["nullCount", objectOf(known.map(({ name, nulls }) => [name, String(nulls)]))],
  ]);
}

function objectOf(pairs: readonly (readonly [name: string, json: string])[]): string {
  return `{${pairs.map(([name, json]) => `${JSON.stringify(name)}:${json}`).join(",")}}`;
}

/** @throws JobError OUTPUT_REFUSED for NULLs in a column that must have values */
function requireValues(table: string, state: DeltaState | undefined, adds: readonly AddedFile[]): void {
  const nulls = new Set(adds.flatMap((file) => file.nulls));
  const field = (state === undefined ? [] : fieldsOf(state.metaData.schemaString)).find(
    ({ name, nullable }) => nullable === false && nulls.has(name),
  );
  if (field !== undefined) {
    throw new JobError(
      "OUTPUT_REFUSED",
      `writing to ${table}: column ${field.name} has NULLs, and the table takes none`,
      {
        hint: "leave such rows out with input.where, or let the table take NULLs, and run the same command again",
      },
    );
  }
}

/** The actions that create a table. */
function creation({ table, partition }: DeltaSinkOptions, plan: Plan, now: number): readonly object[] {
  const fields = newSchema(table, outputColumns(plan.contract), partition);
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

/** @throws JobError CONTRACT for a type that a new table cannot have */
function newSchema(
  table: string,
  columns: readonly { readonly name: string; readonly type: ColumnType }[],
  partition: DeltaSinkOptions["partition"],
): readonly SchemaField[] {
  return columns.concat(partitionColumns(partition)).map(({ name, type }) => {
    const deltaType = deltaTypeOf(type);
    if (deltaType === undefined) {
      throw new JobError(
        "CONTRACT",
        `creating ${table}: column ${name} is ${showType(type)}, which Delta tables have not`,
        {
          hint: "cast it in input.columns, or in the model",
        },
      );
    }
    return { name, type: deltaType, nullable: true, metadata: {} };
  });
}
