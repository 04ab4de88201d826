import { createColumnBuilder, filterColumn } from "../columns/columns.js";
import { bytesPerValue, type Column } from "../columns/types.js";
import { membersOf } from "../columns/value-text.js";
import { openDuckDb } from "../duckdb/instance.js";
import { readRows } from "../duckdb/stored-rows.js";
import { quotePaths } from "../duckdb/sql.js";
import {
  createKeyHasher,
  createStoredTable,
  findStored,
  addStored,
  noPlace,
  tableRowBytes,
} from "../flow/pack/feature-hasher.js";
import type { OpenedJob } from "../flow/opened-job.js";
import { scoredColumns } from "../models/binding/contract.js";
import { JobError } from "../base/errors.js";
import { mebibytes, storedShare } from "../base/memory-budget.js";
import { countSpans } from "../run/lifecycle/span-record.js";
import type { Plan } from "../run/plan/plan.js";
import { splitRunId } from "../run/plan/identity.js";
import type { KeyedRows } from "../targets/target.js";

/** Opens the rows of a published run by their keys: where they are kept for that, else in memory. @throws JobError MEMORY if files do not fit */
export async function openKeyedRows(opened: OpenedJob, plan: Plan, key: readonly string[]): Promise<KeyedRows> {
  return (await opened.sink.openKeyedRows(plan, key)) ?? (await holdRows(opened, plan, key));
}

/** Any four words: the hashes are compared with each other only. */
const seed = Int32Array.of(0x243f6a88, 0x05a308d3, 0x13198a2e, 0x03707344);

/** Holds the rows of a run's files in memory. Of a key that comes twice no row is found. */
async function holdRows({ sink, memory }: OpenedJob, plan: Plan, key: readonly string[]): Promise<KeyedRows> {
  const { base, number } = splitRunId(plan.runId);
  const stored = await sink.find(base, number);
  if (stored === undefined) {
    throw new Error(`run ${plan.runId} is gone`);
  }
  const run = await sink.open(stored);
  const files = await run.read(key);
  const columns = scoredColumns(plan.contract);
  const { output: rows } = countSpans(run.spans);
  const rowBytes = columns.reduce((sum, { type }) => sum + bytesPerValue(type), tableRowBytes);
  requireMemory(plan, rows * rowBytes, memory.storedBytes);

  const table = createStoredTable(rows);
  const hashKeys = createKeyHasher(seed);
  const builders = columns.map(({ type }) => createColumnBuilder(type, rows));
  const keyAt = key.map((name) => columns.findIndex((column) => column.name === name));
  const limits = { threads: 1, memoryBytes: memory.duckDbBytes };
  using duckdb = await openDuckDb({ ...limits, allowed: { folders: [files.folder] } });
  const connection = await duckdb.connect();
  let read = 0;
  let held = 0;
  for await (const paths of files.groups) {
    const from = `read_parquet(${quotePaths(paths)}, hive_partitioning = false)`;
    for await (const chunk of readRows(connection, columns, from)) {
      read += chunk.rowCount;
      const keep = Uint8Array.from({ length: chunk.rowCount }, (_, row) =>
        Number(keyAt.every((at) => chunk.columns[at]?.column.valid?.[row] !== 0)),
      );
      const named = chunk.columns.map(({ type, column }) =>
        keep.includes(0) ? filterColumn(type, column, keep) : column,
      );
      const count = keep.reduce((sum, kept) => sum + kept, 0);
      const hashes = hashKeys(keysOf(keyAt.map((at) => named[at] as Column)), count);
      addStored(table, held, { keys: hashes, rows: hashes });
      for (const [index, builder] of builders.entries()) {
        builder.append(named[index] as Column, 0, count);
      }
      held += count;
      requireMemory(
        plan,
        rows * tableRowBytes + builders.reduce((sum, { bytes }) => sum + bytes, 0),
        memory.storedBytes,
      );
    }
  }
  connection.closeSync();
  if (read !== rows) {
    throw new Error(`${read} rows of run ${plan.runId} came, it has ${rows}`);
  }

  const output = columns.map(({ name, type }, index) => ({ name, type, column: builders[index]?.finish() as Column }));
  const write = membersOf(output);
  const { runId, model } = plan;
  return {
    async lookUp(keys, wanted) {
      const hashes = hashKeys(keysOf(keys.map(({ column }) => column)), wanted);
      const places = findStored(table, { keys: hashes, rows: hashes }, undefined);
      return Array.from(places, (place) =>
        place === noPlace ? undefined : { members: write(place), runId, model: model.sha256 },
      );
    },
    [Symbol.asyncDispose]: () => Promise.resolve(),
  };
}

/** Keys as they are hashed: without a list of NULLs, which none has. */
function keysOf(columns: readonly Column[]): Column[] {
  return columns.map((column) => ({ ...column, valid: undefined }));
}

/** @throws JobError MEMORY */
function requireMemory({ runId }: Plan, bytes: number, limit: number): void {
  if (bytes > limit) {
    throw new JobError(
      "MEMORY",
      `holding the rows of run ${runId}: they take ${Math.ceil(bytes / mebibytes(1))} MiB or more`,
      {
        hint: `set engine.memory: ${Math.ceil((bytes * storedShare) / mebibytes(1))}MiB, write the predictions to Postgres, or leave out serve.key`,
      },
    );
  }
}
