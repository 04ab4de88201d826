import type { Piece, RecordBatch, SpanOutput } from "../columns/types.js";
import { jsonOf } from "../columns/value-text.js";
import type { SliceRequest } from "../formats/format.js";
import type { DuckDbReader } from "../formats/sql/chunks.js";
import { openBatchLimit, timeRow } from "../flow/batch-size.js";
import type { OpenedJob } from "../flow/opened-job.js";
import { directPlan } from "../flow/pack/direct.js";
import { rowsRead } from "../flow/pack/select-rows.js";
import { createPacker, type FeatureBatch } from "../flow/pack/packer.js";
import { describeFaults } from "../flow/rejects.js";
import { type BatchOptions, rowsOfOutput, scoreInto, tensorsByName } from "../flow/score.js";
import { openSpan } from "../flow/span.js";
import { outputTensors } from "../models/binding/contract.js";
import type { Engine } from "../models/engine.js";
import type { Plan } from "../run/plan/plan.js";
import { type ServedContract, servedContract } from "./served-columns.js";

export interface ScoredRows extends Pick<SpanOutput, "rows" | "rejects"> {
  /** Where each row of the piece is in the output; -1: it is a reject, or was left out by `input.where`. */
  readonly at: Int32Array;
}

/** Scores rows that are in memory as a run does, and publishes nothing. */
export interface RowScorer extends ServedContract, AsyncDisposable {
  /** The number of calls that are worth making at once. */
  readonly concurrency: number;
  score(piece: Piece): Promise<ScoredRows>;
}

/** Opens a scorer, which closes the engine with itself, and warms the engine up. */
export async function openScorer(
  { job, models, memory, reporter }: OpenedJob,
  plan: Plan,
  engine: Engine,
): Promise<RowScorer> {
  const served = servedContract(plan.contract);
  const { contract, columns } = served;
  const { fixedBatchRows } = contract;
  const modelSha256 = plan.model.sha256;
  const batchLimit = await openBatchLimit(models.batchLimits, reporter.log, { engine, contract, modelSha256 });
  const batchRows = job.spec.serve.batch.rows;
  await engine.local?.opened();
  await timeRow(engine, contract);
  await engine.local?.expect(Number.POSITIVE_INFINITY, 1); // compiles trees before the first row comes

  const direct = directPlan(contract);
  const duckdb = direct === undefined ? await openExpressions(plan, memory.duckDbBytes) : undefined;
  const types = new Map(columns.map(({ name, type }) => [name, type]));
  async function* computed(piece: Piece): AsyncGenerator<RecordBatch> {
    if (duckdb !== undefined) {
      const { onConnection } = await import("../formats/sql/chunks.js");
      const { readByTable } = await import("../formats/sql/rows-table.js");
      const slice: SliceRequest = { ...piece, file: request, projection: contract, partitions: new Map() };
      yield* onConnection(duckdb.pool, (connection) =>
        readByTable(connection, { piece, columns: types, memory }, slice),
      );
    }
  }
  const tensors = outputTensors(contract);
  const calling = { engine, batchLimit, tensors, fixedBatchRows };
  return {
    ...served,
    concurrency: engine.local?.sessions ?? engine.concurrency,
    async score(piece) {
      const span = { index: 0, rowStart: 0, rowEnd: piece.rowEnd };
      const open = openSpan({ contract, span, onFault: (_, fault) => void open.setAside(fault) });
      const most = Math.min(batchRows, batchLimit.rows, piece.rowEnd);
      const packer = createPacker({ contract, batchRows: () => most, onFault: (fault) => open.onFault(fault) });
      const packed: FeatureBatch[] = [];
      let row = 0;
      const take = (batch: RecordBatch): void => {
        const { range } = open.take(batch, { from: 0, to: rowsRead(batch), row });
        packed.push(...packer.push(batch, range));
        row += rowsRead(batch);
      };
      if (direct === undefined) {
        for await (const batch of computed(piece)) {
          take(batch);
        }
      } else {
        take(direct.batch(piece, { from: 0, to: piece.rowEnd }, new Map()));
      }
      const rest = packer.flush();
      packed.push(...(rest === undefined ? [] : [rest]));
      const tools: BatchOptions = {
        ...calling,
        onDone: (batch, { outputs }) => open.rows.predict(tensorsByName(tensors, outputs), batch),
        onRow: (at, { message, reason }) => open.rows.refuse(at, message, reason),
      };
      for (let from = 0; from < packed.length; from += engine.concurrency) {
        const calls = packed.slice(from, from + engine.concurrency).map((batch) => scoreInto(open, tools, batch));
        await Promise.allSettled(calls); // the engine is closed when nothing uses it any more
        await Promise.all(calls);
      }
      await engine.paid?.keep();
      const rejects = {
        spans: { locate: (fault: number) => ({ shard: requestShard, row: fault }) },
        source: { open: () => Promise.resolve(request) },
        decoder: { describeRows: describeRows(piece), describeFailure: () => Promise.resolve("it fails") },
        contract,
        kept: "",
      };
      const rows = open.rows.finish(open.keptRows);
      const at = new Int32Array(piece.rowEnd).fill(-1);
      for (const [index, number] of rowsOfOutput(open, rows).entries()) {
        at[number] = index;
      }
      return {
        rows,
        at,
        rejects: await describeFaults(rejects, [...open.faults.values()]),
      };
    },
    async [Symbol.asyncDispose]() {
      await duckdb?.[Symbol.asyncDispose]();
      await engine[Symbol.asyncDispose]();
    },
  };

  /** Shows values of rows that cannot be scored; those of expressions are not there any more. */
  function describeRows(piece: Piece) {
    const shown = (name: string, row: number): string | null => {
      const [column, type] = [piece.columns.get(name), types.get(name)];
      return column === undefined || type === undefined || column.valid?.[row] === 0 ? null : jsonOf(type, column, row);
    };
    return ({ rows, columns: wanted }: { rows: readonly number[]; columns: readonly { readonly name: string }[] }) =>
      Promise.resolve(new Map(rows.map((row) => [row, wanted.map(({ name }) => shown(name, row))])));
  }
}

const requestShard = { uri: "the request", sizeBytes: 0, fingerprint: "", rows: 0 };
const request = {
  path: "the request",
  name: "the request",
  partitions: new Map<string, string>(),
  [Symbol.asyncDispose]: () => Promise.resolve(),
};

/** Opens a DuckDB for the expressions of a plan, which it checks. */
async function openExpressions(
  { contract: { expressions }, timezone }: Plan,
  memoryBytes: number,
): Promise<DuckDbReader> {
  const { openDuckDbReader } = await import("../formats/sql/chunks.js");
  const { checkExpression } = await import("../formats/sql/check-expression.js");
  const duckdb = openDuckDbReader({ threads: 1, folders: [], timezone, memoryBytes });
  await duckdb.pool.use(async (connection) => {
    for (const { text } of expressions?.list ?? []) {
      await checkExpression(connection, text);
    }
  });
  return duckdb;
}
