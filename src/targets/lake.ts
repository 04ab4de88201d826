import { quoteText } from "../base/sql.js";
import { JobError } from "../base/errors.js";
import { mapBounded } from "../base/promises.js";
import { sha256Of } from "../base/sha256.js";
import { type ColumnType, showType } from "../columns/types.js";
import type { DuckDBConnection } from "../duckdb/instance.js";
import { quotePaths } from "../duckdb/sql.js";
import { runParam } from "../job/jobfile/job-spec.js";
import { outputColumns } from "../models/binding/contract.js";
import { isCalendarDate, numberedRunId, runIdOf, splitRunId } from "../run/plan/identity.js";
import type { Plan, RunId } from "../run/plan/plan.js";
import { type Fence, flush, type Store } from "../stores/store.js";
import { type Layout, layoutOf } from "./parquet/layout.js";
import type { ManifestPart } from "./parquet/manifest.js";
import { type BeyondFolder, eachFooter, type RunFolder } from "./parquet/parts.js";
import { type ParquetSinkOptions, openParquetSink } from "./parquet/sink.js";
import type { Sink } from "./target.js";

/** A table of a lake as the target. */
export interface LakeSinkOptions extends Omit<ParquetSinkOptions, keyof BeyondFolder> {
  /** The table in messages. */
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

/** A format of tables. State: what a table is at one moment. */
export interface LakeKind<State> extends Pick<BeyondFolder, "columnIds"> {
  /** The key of the spec, below `output`. */
  readonly kind: "delta" | "iceberg";
  /** The store of the table's files, and the folder of those with rows. */
  readonly files: { readonly store: Store; readonly folder: string };
  /** Reads the table as it is now; undefined: there is none. */
  read(): Promise<State | undefined>;
  /** The version of the newest run with a name whose rows the table has, or had. */
  lastRun(state: State, name: RunMark["name"]): number | undefined;
  /** Refuses a table that cannot take the rows of a run. @throws JobError USAGE, CONTRACT */
  requireWritable(plan: Plan, state: State | undefined): void;
  /** What the plan of a run notes of the table. */
  pinned(plan: Plan, state: State | undefined): Readonly<Record<string, unknown>>;
  /** Columns that take no NULLs. */
  requiredColumns(state: State): readonly string[];
  /** Repeats what ended without saying whether a commit was done. */
  retried(work: () => Promise<void>): Promise<void>;
  /**
   * Prepares the commit that adds the rows of a run, and removes what they replace.
   * @returns what commits: false where another writer was first, so that the table must be read again
   * @throws JobError PLAN_CHANGED where others have changed what would be replaced since the run was planned
   */
  commit(run: RunFolder, state: State | undefined, files: readonly AddedFile[]): Promise<() => Promise<boolean>>;
}

/** How a table names a run. Of two runs of a name, the later one has the greater version. */
export interface RunMark {
  readonly name: RunId;
  readonly version: number;
}

/** More than the runs of some params, so that a version tells the run of a chain, too. */
const runsOfParams = 1_000_000;

/** All runs of a chain have one name, or a table would have a name for each: one is planned when those before it are over. */
export function markOf({ job, params, runId, input }: Plan): RunMark {
  const { base, number } = splitRunId(runId);
  if (input.changes === undefined) {
    return { name: base, version: number };
  }
  const { [runParam]: run, ...own } = params;
  return { name: runIdOf(job, own, sha256Of), version: Number(run) * runsOfParams + number };
}

/** The number of a run in its chain; 0: it is of none. */
function linkIn(version: number): number {
  return Math.floor(version / runsOfParams);
}

/** Commits that other writers may do while one is tried. */
const triesLimit = 1000;

/**
 * Opens a table of a lake as a target. A run has an output folder as one of Parquet files has it, below `_infer-batch/` in the
 * table's folder, which no reader of the table sees and no clean-up removes. Publishing has one step more, before
 * `_SUCCESS`: the parts are copied to the table's files, and one commit adds them.
 *
 * 1. The table names the runs that it has, by their ids without numbers, with the number of the newest. Whoever finds the
 *    run there has nothing to add.
 * 2. Otherwise the run is committed, unless another writer has committed meanwhile: then from 1.
 *
 * With mode replace, that commit removes what the partition had; nobody may have changed its rows since the run was
 * planned, when the plan has noted which version the table had.
 *
 * The copies are the table's, whose writers may rewrite and remove them.
 */
export function openLakeSink<State>(options: LakeSinkOptions, format: LakeKind<State>): Sink {
  const { table, uri, mode, partition } = options;
  const sink = openParquetSink({
    ...options,
    columnIds: format.columnIds,
    publish: (run, parts) => format.retried(() => addRows(options, format, run, parts)),
  });

  return {
    ...sink,
    // Runs of the same params replace each other, where they replace a partition: no `mode` says so.
    planTarget: { kind: format.kind, uri, partition, ...(mode === "append" ? { mode } : { replaces: "partition" }) },
    async rehearse(plan, isPlanned) {
      format.requireWritable(plan, await format.read());
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
      const { name, version } = markOf(plan);
      const state = await format.read(); // first: a run that it names was planned before
      const latest = await sink.find(base);
      if (latest !== undefined && splitRunId(latest.plan.runId).number >= number) {
        return await sink.create(plan, insteadOf);
      }
      format.requireWritable(plan, state);
      const fence = fenceOf(layoutOf(options.folder, plan.runId), () => Promise.resolve());
      await requireExclusive(table, format.files.store, fence);
      const added = state && format.lastRun(state, name);
      if (added !== undefined && added >= version) {
        throw new JobError(
          "OUTPUT_DAMAGED",
          `planning run ${plan.runId}: ${table} has the rows of run ${runText(name, added)}, and what is known of it is gone`,
          {
            hint: `restore ${options.folder}; or delete the rows from the table, and run the job with another name`,
          },
        );
      }
      if (added !== undefined && linkIn(added) === linkIn(version) && mode === "append" && !options.allowDuplicates) {
        throw addedBefore("USAGE", table, plan.runId, runText(name, added));
      }
      const target = { ...plan.target, ...format.pinned(plan, state), added: added ?? null };
      return await sink.create({ ...plan, target }, insteadOf);
    },
  };
}

function runText(name: RunId, version: number): string {
  const run = linkIn(version);
  return run === 0 ? numberedRunId(name, version) : `${run} of ${name}`;
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

/** By one commit; does nothing where they are there. */
async function addRows<State>(
  { table, mode, allowDuplicates }: LakeSinkOptions,
  format: LakeKind<State>,
  run: RunFolder,
  parts: readonly ManifestPart[],
): Promise<void> {
  const { layout, stored, check } = run;
  const { plan } = stored;
  const { name, version } = markOf(plan);
  const files = await addedFiles(run, parts);
  let isCopied = false;
  await requireExclusive(table, format.files.store, fenceOf(layout, check));

  for (let tries = 0; tries < triesLimit; tries += 1) {
    await check();
    const state = await format.read();
    const added = state && format.lastRun(state, name);
    if (added === version) {
      return;
    }
    if (added !== undefined && linkIn(added) > linkIn(version)) {
      throw new JobError(
        "PLAN_CHANGED",
        `adding run ${plan.runId} to ${table}: it has the rows of run ${runText(name, added)}, before which this one has ended`,
        { hint: "run the same command again, which finds out how this run has ended" },
      );
    }
    const isAdded = added !== undefined && linkIn(added) === linkIn(version);
    const mayStay = allowDuplicates || added === plan.target["added"]; // its plan has admitted them
    if (isAdded && (mode === "append" ? !mayStay : added > version)) {
      throw addedBefore("PLAN_CHANGED", table, plan.runId, runText(name, added));
    }
    format.requireWritable(plan, state);
    requireValues(table, state === undefined ? [] : format.requiredColumns(state), files);
    const commit = await format.commit(run, state, files);
    await (isCopied ? undefined : copyParts(format.files, layout.folder, files));
    isCopied = true;
    if (await commit()) {
      return;
    }
  }
  throw new JobError("OBJECT_STORE", `writing to ${table}: other writers committed each of ${triesLimit} times first`, {
    hint: "run the same command again",
  });
}

/** The fence of a commit: readers may have seen one that came too late. */
export function fenceOf({ temporary }: Layout, check: Fence["check"]): Fence {
  return { scope: temporary, check, takesBack: () => Promise.resolve(false) };
}

async function requireExclusive(table: string, store: Store, fence: Fence): Promise<void> {
  const shared = await store.prepare(fence);
  if (shared !== undefined) {
    throw new JobError("USAGE", `writing to ${table}: ${shared}, so that two writers could create one file`, {
      hint: "keep the table on a disk with hard links, or in a store that honours conditions",
    });
  }
}

/** A column, as the output and a table have it. */
export interface LakeColumn {
  readonly name: string;
  readonly type: ColumnType;
}

/** The columns of a run in a table: those of the output, and those of its partition. */
export function lakeColumnsOf(plan: Plan, partition: LakeSinkOptions["partition"]): readonly LakeColumn[] {
  return outputColumns(plan.contract).concat(partitionColumns(partition));
}

function partitionColumns(partition: LakeSinkOptions["partition"]): LakeColumn[] {
  return Object.entries(partition).map(([name, value]) => ({ name, type: isCalendarDate(value) ? "date32" : "utf8" }));
}

const kindNames = { delta: "Delta", iceberg: "Iceberg" };

/** The error for what a table asks of its writers, and is not done here. */
export function notWritten(table: string, feature: string): JobError {
  return new JobError("USAGE", `writing to ${table}: it uses ${feature}, which infer-batch does not write`, {
    hint: "write to a table without it; or to Parquet files (output.parquet), from which an engine that writes the table takes the rows",
  });
}

/** @throws JobError USAGE where the table is not partitioned as the spec says */
export function requirePartition(
  { table, partition }: LakeSinkOptions,
  kind: LakeKind<unknown>["kind"],
  theirs: readonly string[],
): void {
  const ours = Object.keys(partition);
  if (theirs.length !== ours.length || theirs.some((name) => !ours.includes(name))) {
    const wanted = theirs.length === 0 ? "{}" : `{ ${theirs.map((name) => `${name}: …`).join(", ")} }`;
    const how = theirs.length === 0 ? "not partitioned" : `partitioned by ${theirs.join(", ")}`;
    throw new JobError("USAGE", `writing to ${table}: it is ${how}`, {
      hint: `a run writes rows of one partition: set output.${kind}.partition to ${wanted}, as in { ds: \${ds} }`,
    });
  }
}

/**
 * @param required columns of the table that each row must have
 * @throws JobError CONTRACT where the columns of the output are not those of the table
 */
export function requireLakeColumns(
  table: string,
  columns: readonly LakeColumn[],
  types: ReadonlyMap<string, ColumnType | undefined>,
  required: readonly string[],
): void {
  const problems = columns.flatMap(({ name, type }) => {
    const theirs = types.get(name);
    if (!types.has(name)) {
      return [`the table has no column ${name} (${showType(type)})`];
    }
    if (required.includes(name) && typeof type === "object" && type.kind !== "decimal") {
      return [`${name} takes no NULLs in the table, and those of a ${type.kind} are not counted`];
    }
    const isSame = theirs !== undefined && showType(theirs) === showType(type);
    return isSame
      ? []
      : [`${name} is ${showType(type)}, and ${theirs ? showType(theirs) : "of another type"} in the table`];
  });
  const named = new Set(columns.map(({ name }) => name));
  const missing = required.filter((name) => !named.has(name));
  problems.push(...missing.map((name) => `column ${name} of the table must have values, and the output has none`));
  if (problems.length > 0) {
    throw new JobError("CONTRACT", `writing to ${table}: ${problems.join("; ")}`, {
      hint: "name the columns with output.columns and model.outputs; input.columns can cast one: id: CAST(id AS BIGINT)",
    });
  }
}

/** @throws JobError CONTRACT for a type that a new table cannot have */
export function requireType(type: unknown, table: string, column: LakeColumn, kind: LakeKind<unknown>["kind"]): void {
  if (type === undefined) {
    throw new JobError(
      "CONTRACT",
      `creating ${table}: column ${column.name} is ${showType(column.type)}, which ${kindNames[kind]} tables have not`,
      {
        hint: "cast it in input.columns, or in the model",
      },
    );
  }
}

function requireValues(table: string, required: readonly string[], files: readonly AddedFile[]): void {
  const nulls = new Set(
    files.flatMap(({ columns }) => columns.filter((column) => column.nulls > 0).map(({ name }) => name)),
  );
  const refused = required.find((name) => nulls.has(name));
  if (refused !== undefined) {
    throw new JobError("OUTPUT_REFUSED", `writing to ${table}: column ${refused} has NULLs, and the table takes none`, {
      hint: "leave such rows out with input.where, or let the table take NULLs, and run the same command again",
    });
  }
}

/** The error for a partition that others have changed. */
export function changedMeanwhile({ table, partition }: LakeSinkOptions, { runId }: Plan, what: string): JobError {
  const values = Object.entries(partition).map(([name, value]) => `${name}=${value}`);
  return new JobError("PLAN_CHANGED", `replacing partition ${values.join(", ")} of ${table}: ${what}`, {
    hint: "score it anew, which replaces what is there now: the same command with --new-run",
    damage: { runId },
  });
}

/** A part with rows. */
export interface AddedFile {
  /** Its name in the folder of the run, and the one among the table's files, which depends on its content. */
  readonly part: string;
  readonly name: string;
  readonly rows: number;
  readonly sizeBytes: number;
  readonly columns: readonly ColumnStatistics[];
}

export interface ColumnStatistics extends LakeColumn {
  readonly nulls: number;
  /** The smallest and the largest value, as texts that SQL can cast; undefined: they are not known. */
  readonly bounds: readonly [min: string, max: string] | undefined;
}

/** Digits of the digest in the name of a part in the table. */
const digestDigits = 16;
const copiesAtOnce = 24;

async function addedFiles(run: RunFolder, parts: readonly ManifestPart[]): Promise<readonly AddedFile[]> {
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
  return filled.map(({ span, file, rows, size_bytes: sizeBytes, sha256 }) => {
    const name = file.replace(/\.parquet$/, `.${sha256.slice(0, digestDigits)}.parquet`);
    return { part: file, name, rows, sizeBytes, columns: statistics.get(span) ?? [] };
  });
}

async function copyParts(
  { store, folder }: LakeKind<unknown>["files"],
  from: string,
  files: readonly AddedFile[],
): Promise<void> {
  await mapBounded(files, copiesAtOnce, async ({ part, name }) => {
    if ((await store.copy(`${from}/${part}`, `${folder}/${name}`)) === "missing") {
      throw new JobError("OUTPUT_DAMAGED", `publishing ${from}: ${part} is gone since it was committed`, {
        hint: "something else removes files here; run the same command again, which scores that span anew",
      });
    }
  });
  await flush(store, folder); // a commit must not name files that a power failure removes
}

export const integers: ReadonlySet<unknown> = new Set(["int8", "int16", "int32", "int64"]);

/** Reads the statistics of columns from the footers of parts, by path. @public so that tests call it */
export async function readStatistics(
  connection: DuckDBConnection,
  columns: readonly LakeColumn[],
  paths: readonly string[],
): Promise<ReadonlyMap<string, readonly ColumnStatistics[]>> {
  const types = new Map(columns.map(({ name, type }) => [name, type]));
  const names = (isOf: (type: ColumnType) => boolean): string =>
    ["", ...columns.filter(({ type }) => isOf(type)).map(({ name }) => name)].map(quoteText).join(", ");
  // Texts of integers and dates have another order.
  const bound = (least: "min" | "max"): string =>
    `CASE WHEN path_in_schema IN (${names((type) => integers.has(type))}) THEN ${least}(try_cast(stats_${least}_value AS BIGINT))::VARCHAR
       WHEN path_in_schema IN (${names((type) => type === "date32")}) THEN ${least}(try_cast(stats_${least}_value AS DATE))::VARCHAR
       ELSE ${least}(stats_${least}_value) END`;
  const read = await connection.runAndReadAll(
    `SELECT file_name, path_in_schema, sum(stats_null_count)::DOUBLE,
       bool_and(stats_min_value IS NOT NULL OR stats_null_count = num_values), ${bound("min")}, ${bound("max")}
     FROM parquet_metadata(${quotePaths(paths)}) GROUP BY file_name, path_in_schema`,
  );
  const statistics = new Map<string, ColumnStatistics[]>();
  for (const [file, column, nulls, isWhole, min, max] of read.getRows()) {
    const name = String(column);
    const type = types.get(name);
    if (type !== undefined && nulls !== null) {
      const isKnown = isWhole === true && typeof min === "string" && typeof max === "string";
      const bounds = isKnown && isUsable(type, [min, max]) ? ([min, max] as const) : undefined;
      const before = statistics.get(String(file)) ?? [];
      statistics.set(String(file), [...before, { name, type, nulls: Number(nulls), bounds }]);
    }
  }
  return statistics;
}

/** Longer texts do not tell files apart. */
const longestBound = 64;
const usualDate = /^\d{4}-\d\d-\d\d$/;

/** NaN has no place among the bounds of floats, and times are rounded in logs. */
function isUsable(type: ColumnType, bounds: readonly string[]): boolean {
  return (
    integers.has(type) ||
    (type === "date32"
      ? bounds.every((text) => usualDate.test(text))
      : type === "utf8" && bounds.every((text) => text.length <= longestBound))
  );
}
