import { quoteName } from "../../base/sql.js";
import { type CommandLine, collect, paramFlag, jsonFlag, type CommandAnswer } from "../flags.js";
import { count } from "../../base/shown-numbers.js";
import { readFile } from "node:fs/promises";
import { extname, resolve } from "node:path";
import { openLoaded } from "../../job/open.js";
import { usableCores } from "../../job/machine.js";
import { type JobOptions, type LoadWith, fileError, readSpec, readSpecOnce } from "../../job/reading.js";
import { openDuckDb } from "../../duckdb/instance.js";
import { type KeyColumn, keyedRows, keyedTexts, loadKeys, rowsWithout } from "../../duckdb/key-match.js";
import { firstLine, quotePath } from "../../duckdb/sql.js";
import { paramTexts } from "../../run/plan/identity.js";
import type { KeyList } from "../../run/lifecycle/erasure.js";
import { table } from "../../report/table.js";
import type { ErasedRun, OpenRowFinder } from "../../run/erase.js";
import { eraseRows } from "../../run/erase.js";
import { type JobSpec, keyOfValues } from "../../job/jobfile/job-spec.js";
import { splitTable } from "../../job/jobfile/output-spec.js";
import { JobError, messageOf } from "../../base/errors.js";
import type { SafeIo } from "../io.js";
import { createWarningLog } from "../logger.js";

export const eraseCommand: CommandLine = {
  flags: {
    "--keys <file>": "Whose rows: a text file with a key on each line, or a .csv or .parquet file with the key columns",
    "--key <column>": [
      "Output column that the keys are values of; may be repeated. Default: the columns of the file; for a text file, the single-column key in output.postgres.key, checks.unique or reuse.key, otherwise the only column of output.columns. Required for a text file if these keys name different columns",
      collect,
    ],
    ...paramFlag,
    "--dry-run": "Count the rows, and remove nothing",
    ...jsonFlag,
  },
  required: ["keys"],
  examples: [
    "infer-batch erase job.yaml --keys customers.txt --dry-run",
    "infer-batch erase job.yaml --keys customers.csv --key customer_id",
  ],
  run: erase,
};

interface EraseOptions extends JobOptions {
  readonly keys: string;
  readonly key?: readonly string[];
  readonly dryRun?: boolean;
  readonly json?: boolean;
}

interface EraseReport {
  readonly dryRun: boolean;
  readonly columns: readonly string[];
  readonly keys: number;
  readonly missing: number;
  /** The runs that had rows, and those that may still have some. */
  readonly runs: readonly ErasedRun[];
  readonly rows: number;
  readonly rejects: number;
}

async function erase(spec: string, options: EraseOptions, io: SafeIo): Promise<CommandAnswer> {
  const log = createWarningLog(io.stderr);
  const loaded = await readSpec(spec, options, { standIns: "all" }); // runs with any params are searched
  const keys = await readKeys(options.keys, { columns: options.key, usual: () => keyOfValues(loaded.spec) });
  refuseOtherColumns(loaded.spec, keys);
  const load = await readSpecOnce(spec, options);
  await using opened = await openLoaded(loaded, spec, { log });
  const keysThere = new Set<number>();
  const runs = await eraseRows(opened, {
    keys,
    dryRun: options.dryRun === true,
    found: keysThere,
    openFinder: rowFinders(keys, { memoryBytes: opened.memory.duckDbBytes, found: keysThere }),
    paramsOfTable: (wanted, params) => paramsOfTable(load, wanted, params, loaded.spec.params),
    openJob: async (params) => await openLoaded(load(params), spec, { log }),
  });
  const report = {
    dryRun: options.dryRun === true,
    columns: keys.columns,
    keys: keys.keys.length,
    missing: keys.keys.length - keysThere.size,
    runs: runs.filter((run) => run.rows + run.rejects > 0 || isRetained(run)),
    rows: runs.reduce((sum, run) => sum + run.rows, 0),
    rejects: runs.reduce((sum, run) => sum + run.rejects, 0),
  };
  const { name } = loaded.spec;
  const error = retainedError(report);
  return { json: () => ({ job: name, ...reportJson(report) }), text: () => reportText(report), error };
}

/** Params that the table name depends on, with other values than given. undefined: the spec never gives this name. */
function paramsOfTable(
  load: LoadWith,
  wanted: string,
  params: Readonly<Record<string, string>>,
  ofJob: Readonly<Record<string, string>>,
): Readonly<Record<string, string>> | undefined {
  const isNamed = (by: Readonly<Record<string, string>>): boolean => {
    try {
      const { schema, table: name } = splitTable(load(by).spec.output.postgres?.table ?? "");
      return `${schema}.${name}` === wanted;
    } catch (error) {
      if (!(error instanceof JobError)) {
        throw error;
      }
      return false; // the spec declares other params now
    }
  };
  return isNamed(params)
    ? Object.fromEntries(Object.entries(params).filter(([name]) => !isNamed({ ...params, [name]: ofJob[name] ?? "" })))
    : undefined;
}

function refuseOtherColumns({ output }: JobSpec, { columns }: KeyList): void {
  const missing = columns.find((column) => !output.columns.includes(column));
  if (missing !== undefined) {
    throw new JobError("USAGE", `erasing by ${columns.join(", ")}: ${missing} is not in output.columns`, {
      hint: `name the columns of the key with --key; output.columns has ${output.columns.join(", ") || "none"}`,
    });
  }
}

const isRetained = ({ retained }: ErasedRun): boolean => retained !== undefined;

function retainedError({ dryRun, runs }: EraseReport): JobError | undefined {
  const left = runs.filter(isRetained).length;
  return left === 0 || dryRun
    ? undefined
    : new JobError("NOT_ERASED", `erasing: ${count(left, "run")} may still have rows of these keys`, {
        hint: "do for each run what the report says, and run the same command again",
      });
}

function reportJson({ dryRun, columns, keys, missing, runs, rows: total, rejects: rejected }: EraseReport): object {
  return {
    dry_run: dryRun,
    key: columns,
    keys,
    keys_not_found: missing,
    rows: total,
    rejects: rejected,
    retained: runs.filter(isRetained).length,
    runs: runs.map(({ runId, params, place, rows, rejects, retained }) => ({
      run_id: runId ?? null,
      params,
      output: place,
      rows,
      rejects,
      retained: retained ?? null,
    })),
  };
}

function reportText({ dryRun, columns, keys, missing, runs, rows, rejects }: EraseReport): string[] {
  const headings = ["run or table", "params", "rows", "rejected", ""];
  return [
    ...(runs.length === 0 ? [] : table([headings, ...runs.map(cellsOf)], { right: [2, 3] })),
    `${dryRun ? "would erase" : "erased"} ${count(rows, "row")} and ${count(rejects, "rejected row")} of ${count(keys, "key")} (${columns.join(", ")}); ${count(missing, "key")} not found`,
    ...(dryRun ? [] : ["rows that the input still has are scored again by the next run that reads it"]),
  ];
}

function cellsOf({ runId, params, place, rows, rejects, retained }: ErasedRun): string[] {
  const shown = paramTexts(params);
  return [runId ?? place, shown.join(" "), String(rows), String(rejects), retained ?? ""];
}

/** A run reads all keys into memory. */
const keysLimit = 1_000_000;

/** Parquet or CSV with a header, else a text with a key on each line. @param usual the key columns of a text file */
async function readKeys(
  path: string,
  { columns, usual }: { readonly columns: readonly string[] | undefined; readonly usual: () => readonly string[] },
): Promise<KeyList> {
  const kind = extname(path).toLowerCase();
  const list =
    kind === ".parquet" || kind === ".csv"
      ? await readTable(path, kind, columns)
      : await readLines(path, columns ?? usual());
  if (list.keys.length === 0) {
    throw new JobError("USAGE", `reading ${path}: it has no keys`);
  }
  return list;
}

async function readLines(path: string, key: readonly string[]): Promise<KeyList> {
  const [column, ...more] = key;
  if (column === undefined || more.length > 0) {
    const fault = key.length === 0 ? "no column is its key" : `the key has several columns: ${key.join(", ")}`;
    throw new JobError("USAGE", `reading ${path}: it has one value a line, and ${fault}`, {
      hint: "name one column with --key; or give a file .csv or .parquet with a column for each part of the key",
    });
  }
  const text = await readFile(path, "utf8").catch((cause: unknown) => {
    throw fileError(`reading ${path}`, cause, "--keys names a file with a key on each line, or .csv or .parquet");
  });
  const lines = text.split("\n").map((line) => [line.replace(/\r$/, "")]);
  return listOf([column], lines, (line) => `line ${line + 1}`);
}

async function readTable(path: string, kind: string, columns: readonly string[] | undefined): Promise<KeyList> {
  const file = resolve(path);
  await readFile(file).catch((cause: unknown) => {
    throw fileError(`reading ${path}`, cause, "--keys names a file with a key on each line, or .csv or .parquet");
  });
  using duckdb = await openDuckDb({ threads: 1, allowed: { files: [file] } });
  const connection = await duckdb.connect();
  const isCsv = kind === ".csv";
  const from = isCsv
    ? `read_csv(${quotePath(file)}, header = true, all_varchar = true, hive_partitioning = false)`
    : `read_parquet(${quotePath(file)}, hive_partitioning = false)`;
  try {
    const described = await connection.runAndReadAll(`DESCRIBE SELECT * FROM ${from}`);
    const there = described.getRows().map(([name]) => String(name));
    const missing = columns?.find((column) => !there.includes(column));
    if (missing !== undefined) {
      throw new JobError("USAGE", `reading ${path}: it has no column ${missing}`, {
        hint: `--key names columns of this file; it has ${there.join(", ")}`,
      });
    }
    const names = columns ?? there;
    const texts = names.map((name) => `${quoteName(name)}::VARCHAR`);
    const values = await connection.runAndReadAll(`SELECT ${texts.join(", ")} FROM ${from} LIMIT ${keysLimit + 1}`);
    const rows = values.getRows().map((row) => row.map((value) => (value === null ? "" : String(value))));
    return listOf(names, rows, (row) => (isCsv ? `line ${row + 2}` : `row ${row + 1}`));
  } catch (error) {
    throw error instanceof JobError
      ? error
      : new JobError("USAGE", `reading ${path}: ${firstLine(messageOf(error))}`, {
          hint: isCsv ? "a .csv has a header with the names of the key columns" : "a .parquet has the key columns",
          cause: error,
        });
  } finally {
    connection.closeSync();
  }
}

/** Removes keys that are there twice, and those with an empty part, which is no value. */
function listOf(
  columns: readonly string[],
  rows: readonly (readonly string[])[],
  placeOf: (row: number) => string,
): KeyList {
  if (rows.length > keysLimit) {
    throw new JobError("USAGE", `reading keys: there are more than ${keysLimit}`, {
      hint: "give them in several files",
    });
  }
  const seen = new Map<string, number>();
  for (const [row, key] of rows.entries()) {
    const text = JSON.stringify(key);
    if (!key.includes("") && !seen.has(text)) {
      seen.set(text, row);
    }
  }
  const places = [...seen.values()];
  return {
    columns,
    keys: places.map((row) => rows[row] ?? []),
    placeOf: (index) => placeOf(places[index] ?? 0),
  };
}

/** Makes a function that opens a DuckDB which finds the rows of some keys in Parquet files. @param found collects the keys that were found, by index @public so that tests reach it */
export function rowFinders(
  list: KeyList,
  { memoryBytes, found }: { readonly memoryBytes: number; readonly found: Set<number> },
): OpenRowFinder {
  const noting = ({ rows, keys }: Awaited<ReturnType<typeof keyedRows>>): readonly number[] => {
    for (const key of keys) {
      found.add(key);
    }
    return rows;
  };
  return async (folder, columns) => {
    const duckdb = await openDuckDb({ threads: usableCores(), memoryBytes, allowed: { folders: [folder] } });
    const connection = await duckdb.connect();
    const keyed = { connection, columns };
    const wrong = await loadKeys(keyed, list.keys);
    if (wrong !== undefined) {
      connection.closeSync();
      duckdb[Symbol.dispose]();
      throw wrongKey(list, columns, wrong);
    }
    return {
      rowsIn: async (path) => noting(await keyedRows(keyed, path)),
      rejected: async (texts) => noting(await keyedTexts(keyed, texts)),
      rowsWithout: (path, request) => rowsWithout(connection, path, request),
      async [Symbol.asyncDispose]() {
        connection.closeSync();
        await Promise.resolve(duckdb[Symbol.dispose]());
      },
    };
  };
}

function wrongKey({ placeOf }: KeyList, columns: readonly KeyColumn[], index: number): JobError {
  const types = columns.map(({ name, type }) => `${name} ${typeof type === "string" ? type : type.kind}`);
  return new JobError("USAGE", `reading the keys: ${placeOf(index)} is not a value of ${types.join(", ")}`, {
    hint: "each key is a value of the output column that --key names, such as 17 for an integer",
  });
}
