import { setImmediate as turn } from "node:timers/promises";
import * as fc from "fast-check";
import type { Contract } from "#src/models/binding/contract.js";
import type { FeaturePlan } from "#src/checks/profile/features.js";
import { encodeTexts, type NamedTensor, type Tensor } from "#src/columns/tensor.js";
import type { Column, OutputRows, RecordBatch, SpanOutput } from "#src/columns/types.js";
import type { Engine, RunModel } from "#src/models/engine.js";
import type { Decoder } from "#src/formats/format.js";
import type { ReadBatch } from "#src/flow/pack/packer.js";
import { rowState, selectRows } from "#src/flow/pack/select-rows.js";
import { runIdOf } from "#src/run/plan/identity.js";
import { type AttemptRecord, createAttemptRecord } from "#src/report/attempt-record.js";
import { silentProgress, withRecord } from "#src/report/progress.js";
import { fixedSize } from "#src/flow/batch-size.js";
import { batchFeatures, featurePlanOf } from "#src/flow/features.js";
import { scorePieces } from "#src/flow/score.js";
import { scorer } from "#src/flow/workers/unit-server.js";
import { assertNever } from "#src/base/errors.js";
import { emptyContract, listColumn, matrix, matrixBinding, ref } from "./batches.js";

/** The loop between a decoder and a sink, with a model of its own: hundreds of jobs a second. */
const contract: Contract = {
  ...emptyContract,
  inputs: [
    matrixBinding(["x"]),
    {
      kind: "padded",
      input: "list",
      dtype: "float32",
      width: 2,
      column: ref("list", { kind: "list", element: "float32" }),
      value: 0,
      side: "right",
      truncate: false,
      shrink: true,
    },
  ],
  passthrough: [{ column: "id", source: ref("id", "int64") }],
  outputs: [
    { kind: "scalar", column: "score", tensor: "score", type: "float32" },
    { kind: "vector", column: "both", tensor: "both", type: { kind: "list", element: "float32" } },
    { kind: "scalar", column: "name", tensor: "name", type: "utf8" },
  ],
};

/** 7: the model fails on it; 8: its prediction is not finite; null and Infinity are bad before. */
const someNumbers = fc.constantFrom(0, -0, 1, 2, 7, 8, null, Number.POSITIVE_INFINITY);
const someLists = fc.constantFrom<readonly number[] | null>([], [0], [3], [3, 0], [1, 2, 3], null);

export interface LoopRow {
  readonly x: number | null;
  readonly list: readonly number[] | null;
  readonly state: number;
}

const states = fc.constantFrom(rowState.kept, rowState.kept, rowState.kept, rowState.filtered);
export const loopRows = fc
  .array(fc.record({ x: someNumbers, list: someLists }), { minLength: 1, maxLength: 6 })
  .chain((pool) => fc.array(fc.record({ row: fc.constantFrom(...pool), state: states }), { maxLength: 80 }))
  .map((all) => all.map((one): LoopRow => ({ ...one.row, state: one.state })));

export interface LoopWay {
  readonly batchRows: number;
  readonly fixedBatchRows: number | null;
  readonly spanRows: number;
  readonly cut: number;
  /** Bytes of a span that are held before they are spilled. */
  readonly pieceBytes: number;
  /** Of the order in which calls of the model end. */
  readonly seed: number;
}

export const loopWays: fc.Arbitrary<LoopWay> = fc.record({
  batchRows: fc.integer({ min: 1, max: 9 }),
  fixedBatchRows: fc.constantFrom(null, null, 4),
  spanRows: fc.integer({ min: 1, max: 40 }),
  cut: fc.integer({ min: 1, max: 30 }),
  pieceBytes: fc.constantFrom(1, 100, 400, Number.POSITIVE_INFINITY),
  seed: fc.nat(1000),
});

function recordOf(rows: readonly LoopRow[], start: number): RecordBatch {
  const ids = BigInt64Array.from(rows, (_, index) => BigInt(start + index));
  const lists = listColumn(
    "float32",
    rows.map((row) => row.list),
  );
  const batch: RecordBatch = {
    rowCount: rows.length,
    inputs: [matrix(rows.map((row) => [row.x])), lists],
    carried: [{ kind: "fixed", elementsPerValue: 1, data: ids, valid: undefined }],
  };
  return selectRows(
    batch,
    Uint16Array.from(rows, (row) => row.state),
    contract,
  );
}

/** Computes each row from its own features; tells how many rows it was asked for. */
function fakeEngine(seed: number): { engine: Engine; asked: () => number } {
  let asked = 0;
  let calls = 0;
  const engine: Engine = {
    signature: { inputs: [], outputs: [] },
    provider: "cpu",
    concurrency: 3,
    async run({ inputs }) {
      calls += 1;
      for (let turns = (calls * seed) % 5; turns > 0; turns -= 1) {
        await turn();
      }
      const [xs = [], others = []] = inputs.map(valuesOf);
      asked += xs.length;
      if (xs.some(([value]) => value === 7)) {
        return { kind: "failed", message: "no sevens", inputs };
      }
      const predicted = xs.map(([value = 0], row) =>
        value === 8 ? Number.NaN : value * 10 + (others[row] ?? []).reduce((sum, one) => sum + one, 0),
      );
      return { kind: "done", ms: 0, inputs, outputs: outputsOf(predicted) };
    },
    async [Symbol.asyncDispose]() {},
  };
  return { engine, asked: () => asked };
}

const tensors = ["score", "both", "name"];

/** As a thread has it that decodes, too. */
function runOf(engine: Engine): RunModel {
  return async ({ inputs, outputs }) => {
    const response = await engine.run({ inputs, outputs });
    if (response.kind !== "done") {
      throw new Error(response.message);
    }
    return response;
  };
}

function outputsOf(scores: readonly number[]): Tensor[] {
  const rows = scores.length;
  return [
    { dtype: "float32", dims: [rows, 1], data: Float32Array.from(scores) },
    {
      dtype: "float32",
      dims: [rows, 2],
      data: Float32Array.from(scores.flatMap((score) => [score === 20 ? Infinity : score, -score])),
    },
    { dtype: "string", dims: [rows], data: encodeTexts(scores.map((score) => `n${score}`)) },
  ];
}

function valuesOf(tensor: NamedTensor): number[][] {
  const [rows = 0, width = 1] = tensor.dims;
  const data = tensor.dtype === "string" ? [] : Array.from<number | bigint, number>(tensor.data, Number);
  return Array.from({ length: rows }, (_, row) => data.slice(row * width, (row + 1) * width));
}

export interface Scored {
  readonly rows: unknown[];
  readonly rejected: unknown[];
  readonly record: AttemptRecord;
  /** Rows that the model was asked for. */
  readonly asked: number;
  readonly profiles: string[];
}

/** `beside`: each batch was scored before it comes, where it could be. */
export type LoopMode = "plain" | "beside";

/** Which features of such rows are profiled. One of `every` is sampled. */
export function loopFeatures({ spanRows }: LoopWay, every: number): FeaturePlan {
  const checks = { baseline: [] };
  const plan = featurePlanOf({ checks, contract, input: { rows: 0 }, commitRows: spanRows }, new Set());
  if (plan === undefined) {
    throw new Error("no features");
  }
  return { ...plan, every };
}

/** The loop over these rows, with a model of ours and nothing read or written. */
export async function scoreLoop(
  rows: readonly LoopRow[],
  mode: LoopMode,
  way: LoopWay,
  features?: FeaturePlan,
): Promise<Scored> {
  const info = { job: "", worker: { index: 0, count: 1 }, params: {}, versions: {}, output: "" };
  const record = createAttemptRecord({ info, nowMs: () => 0, dateMs: () => 0 });
  const log = { info() {}, warn() {}, debug() {} };
  const progress = withRecord(silentProgress, record);
  const { engine, asked } = fakeEngine(way.seed);
  const found: { rows: unknown[][]; rejected: unknown[][]; profiles: string[] } = {
    rows: [],
    rejected: [],
    profiles: [],
  };
  const target = {
    unfit: () => Promise.resolve([]),
    async spill({ index }: { index: number }, spilled: OutputRows) {
      await turn();
      found.rows[index] = [...(found.rows[index] ?? []), ...plain(spilled)];
    },
    async commit({ index }: { index: number }, output: SpanOutput) {
      found.rows[index] = [...(found.rows[index] ?? []), ...plain(output.rows)];
      found.rejected[index] = [...output.rejects];
      found.profiles[index] = output.profile;
      return await Promise.resolve("committed" as const);
    },
  };
  const file = { [Symbol.asyncDispose]: async () => {} };
  const bound = { ...contract, fixedBatchRows: way.fixedBatchRows };
  const score = mode === "beside" ? scorer({ contract: bound, tensors }, runOf(engine)) : undefined;
  const batchRows = way.fixedBatchRows ?? way.batchRows;
  await scorePieces(
    new AbortController().signal,
    { progress, log, record },
    {
      contract: bound,
      engine,
      batchLimit: { rows: 1_000_000, begin: (count) => ({ rows: count, renewals: 0 }), async exceeded() {} },
      sizer: fixedSize(way.batchRows),
      target,
      commits: 2,
      spanOf: (row) => {
        const index = Math.floor(row / way.spanRows);
        return { index, rowStart: index * way.spanRows, rowEnd: Math.min(rows.length, (index + 1) * way.spanRows) };
      },
      lineage: () => ({ runId: runIdOf("loop", {}, () => ""), modelSha256: "", scoredAtMs: 0 }),
      rejects: {
        spans: { locate: (row) => ({ shard, row }) },
        decoder: { describeRows: () => Promise.resolve(new Map()) } as unknown as Decoder,
        source: { open: () => Promise.resolve(file as never) },
        contract,
        kept: "",
      },
      onReject() {},
      pieceBytes: way.pieceBytes,
      features,
    },
    piecesOf(rows, { cut: way.cut, features }, async (batch) => (await score?.(batch, batchRows))?.predictions),
  );
  const { profiles } = found;
  return { rows: found.rows.flat(), rejected: found.rejected.flat(), record, asked: asked(), profiles };
}

const shard = { uri: "a", sizeBytes: 0, fingerprint: "", rows: 0 };

async function* piecesOf(
  rows: readonly LoopRow[],
  { cut, features: plan }: { readonly cut: number; readonly features: FeaturePlan | undefined },
  score: (batch: RecordBatch) => Promise<ReadBatch["predictions"]>,
): AsyncGenerator<{ rowStart: number; batch: ReadBatch; shards: [] }> {
  for (let rowStart = 0; rowStart < rows.length; rowStart += cut) {
    await turn();
    const batch = recordOf(rows.slice(rowStart, rowStart + cut), rowStart);
    const predictions = batch.rowCount === 0 ? undefined : await score(batch);
    const features = plan && batchFeatures({ plan, firstRow: 0 }, batch, rowStart);
    const scored = { ...batch, inputs: [], predictions, features };
    yield { rowStart, batch: predictions === undefined ? batch : scored, shards: [] };
  }
}

function plain({ rowCount, columns }: OutputRows): unknown[] {
  return Array.from({ length: rowCount }, (_, row) => columns.map(({ column }) => valueAt(column, row)));
}

function valueAt(column: Column, row: number): unknown {
  switch (column.kind) {
    case "fixed":
      return Object.is(column.data[row], -0) ? "-0" : String(column.data[row]);
    case "bytes":
      return Buffer.from(column.bytes.subarray(column.offsets[row], column.offsets[row + 1])).toString();
    case "list": {
      const [from = 0, to = 0] = column.offsets.subarray(row, row + 2);
      return Array.from({ length: to - from }, (_, index) => valueAt(column.child, from + index));
    }
    case "struct":
      throw new TypeError("nothing here is a struct");
    default:
      return assertNever(column);
  }
}
