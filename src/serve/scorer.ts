import type { Piece, RecordBatch, SpanOutput } from "../columns/types.js";
import { allocate } from "../columns/values.js";
import { jsonOf } from "../columns/value-text.js";
import type { SliceRequest } from "../formats/format.js";
import type { DuckDbReader } from "../formats/sql/chunks.js";
import { fixedSize, openBatchLimit, sizeWithin, timeRow } from "../flow/batch-size.js";
import { type OpenedJob, silentLog } from "../flow/opened-job.js";
import { directPlan } from "../flow/pack/direct.js";
import { rowsRead } from "../flow/pack/select-rows.js";
import type { DecodedRows } from "../flow/read.js";
import { scorePieces } from "../flow/score.js";
import type { Engine } from "../models/engine.js";
import { createAttemptRecord } from "../report/attempt-record.js";
import { silentProgress } from "../report/progress.js";
import type { Plan } from "../run/plan/plan.js";
import { type ServedContract, servedContract } from "./served-columns.js";

/** Scores rows that are in memory as a run does, and publishes nothing. */
export interface RowScorer extends ServedContract, AsyncDisposable {
  /** The number of calls that are worth making at once. */
  readonly concurrency: number;
  /** The rows come with the column _row, their numbers in the piece; those that cannot be scored are rejects. */
  score(piece: Piece): Promise<SpanOutput>;
}

/** Opens a scorer, which closes the engine with itself, and warms the engine up. */
export async function openScorer(
  { job, models, attempt, memory, reporter }: OpenedJob,
  plan: Plan,
  engine: Engine,
): Promise<RowScorer> {
  const served = servedContract(plan.contract);
  const { contract, columns } = served;
  const { fixedBatchRows } = contract;
  const modelSha256 = plan.model.sha256;
  const batchLimit = await openBatchLimit(models.batchLimits, reporter.log, { engine, contract, modelSha256 });
  const batchRows = job.spec.serve.batch.rows;
  const sizer = fixedBatchRows === null ? sizeWithin(batchLimit, fixedSize(batchRows)) : fixedSize(fixedBatchRows);
  await engine.local?.opened();
  await timeRow(engine, contract);
  await engine.local?.expect(Number.POSITIVE_INFINITY, 1); // compiles trees before the first row comes

  // A batch's arrays are read while the next one is made.
  const direct = directPlan(contract, allocate);
  const duckdb = direct === undefined ? await openExpressions(plan, memory.duckDbBytes) : undefined;
  const types = new Map(columns.map(({ name, type }) => [name, type]));
  async function* recordBatches(piece: Piece): AsyncGenerator<RecordBatch> {
    const rows = piece.rowEnd - piece.rowStart;
    if (direct !== undefined) {
      yield direct.batch(piece, { from: 0, to: rows }, new Map());
    } else if (duckdb !== undefined) {
      const { onConnection } = await import("../formats/sql/chunks.js");
      const { readByTable } = await import("../formats/sql/rows-table.js");
      const slice: SliceRequest = { ...piece, file: request, projection: contract, partitions: new Map() };
      yield* onConnection(duckdb.pool, (connection) =>
        readByTable(connection, { piece, columns: types, memory }, slice),
      );
    }
  }

  const { nowMs, dateMs } = attempt;
  const { signal } = new AbortController(); // what has begun is completed, also when the server stops
  const record = createAttemptRecord({ info: reporter.record.info, nowMs, dateMs });
  return {
    ...served,
    concurrency: engine.concurrency,
    async score(piece) {
      const span = { index: 0, rowStart: 0, rowEnd: piece.rowEnd };
      let scored: SpanOutput | undefined;
      async function* pieces(): AsyncGenerator<DecodedRows> {
        let rowStart = 0;
        for await (const batch of recordBatches(piece)) {
          yield { rowStart, batch, shards: [] };
          rowStart += rowsRead(batch);
        }
      }
      const options = {
        contract,
        engine,
        sizer,
        batchLimit,
        target: {
          commit(_span: unknown, output: SpanOutput) {
            scored = output;
            return Promise.resolve("committed" as const);
          },
        },
        commits: 1,
        spanOf: () => span,
        lineage: () => ({ runId: plan.runId, modelSha256, scoredAtMs: dateMs() }),
        rejects: {
          spans: { locate: (row: number) => ({ shard: requestShard, row }) },
          source: { open: () => Promise.resolve(request) },
          decoder: { describeRows: describeRows(piece), describeFailure: () => Promise.resolve("it fails") },
          contract,
          kept: "",
        },
        onReject: () => undefined,
        isUnprofiled: true,
        pieceBytes: memory.pieceBytes,
      };
      await scorePieces(signal, { log: silentLog, progress: silentProgress, record }, options, pieces());
      if (scored === undefined) {
        throw new Error(`no predictions came for ${piece.rowEnd} rows`);
      }
      return scored;
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
