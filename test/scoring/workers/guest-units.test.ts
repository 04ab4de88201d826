import { join } from "node:path";
import { MessageChannel } from "node:worker_threads";
import { expect, test } from "vitest";
import { openUnitReader } from "#src/app/threads/unit-readers.js";
import type { RunModel } from "#src/engine/port.js";
import { readFooter } from "#src/formats/parquet/footer/read-footer.js";
import { parquetUnits } from "#src/formats/parquet/units.js";
import type { ScoredBatch } from "#src/packing/scored-batch.js";
import { openUnitPool } from "#src/scoring/workers/unit-pool.js";
import { serveUnits } from "#src/scoring/workers/unit-server.js";
import { emptyContract, matrixBinding, ref } from "../../support/batches.js";
import { scratch } from "../../support/job.js";
import { plenty } from "../../support/memory.js";
import { writeRows } from "../../support/parquet.js";

const rows = 6000;
const contract = {
  ...emptyContract,
  inputs: [matrixBinding(["x"])],
  outputs: [{ kind: "scalar", column: "score", tensor: "score", type: "float32" }],
  passthrough: [{ column: "id", source: ref("id", "int64") }],
} as const;
const challenger = { ...contract, inputs: [matrixBinding(["y"])], passthrough: [] } as const;

/** The only input times a factor. */
function times(factor: number): RunModel {
  return async ({ inputs }) => {
    const data = Float32Array.from(inputs[0]?.data as Float32Array, (value) => value * factor);
    return await Promise.resolve({ outputs: [{ dtype: "float32", dims: [data.length], data }], ms: 1 });
  };
}

interface Came {
  readonly rows: number;
  readonly scores: readonly number[];
  /** The challenger's; undefined: the batch came without. */
  readonly challenged: readonly number[] | undefined;
  readonly inputs: number;
}

const numbersIn = (parts: ScoredBatch["predictions"]): number[] | undefined =>
  parts?.flatMap(({ outputs: [tensor] }) => [...((tensor?.data ?? []) as Float32Array)]);

/** Reads x = id and y = `y` in a worker with both models, whose batches have 1,000 and 300 rows. */
async function read(folder: string, y: string, guest: RunModel): Promise<Came[]> {
  const path = join(folder, "a.parquet");
  const select = `SELECT range AS id, CAST(range AS FLOAT) AS x, CAST(${y} AS FLOAT) AS y FROM range(${rows})`;
  await writeRows(path, select, "ROW_GROUP_SIZE 2048");
  const file = { path, name: path };
  const projection = { ...contract, inputs: [...contract.inputs, ...challenger.inputs] };
  const slice = { file, rowStart: 0, rowEnd: rows, projection };
  const units = parquetUnits(await readFooter(file), slice, { limits: plenty }) ?? [];
  const { port1, port2 } = new MessageChannel();
  serveUnits(port2, { openReader: openUnitReader, run: times(1), guest });
  const pool = openUnitPool([port1]);
  const scoring = {
    contract,
    tensors: ["score"],
    batchRows: 1000,
    challenger: {
      sentInputs: [1],
      scoring: { contract: challenger, tensors: ["score"], batchRows: 300, places: [1] },
    },
  };
  const came: Came[] = [];
  try {
    for await (const batch of pool.read(units, { projection, constants: new Map(), limits: plenty, scoring })) {
      const { rowCount, predictions, challenged, inputs } = batch;
      const scores = numbersIn(predictions) ?? [];
      came.push({ rows: rowCount, scores, challenged: numbersIn(challenged), inputs: inputs.length });
    }
    return came;
  } finally {
    port1.close();
  }
}

const upTo = (factor: number): number[] => Array.from({ length: rows }, (_, row) => row * factor);

test("a worker that has both models scores each row with both, and sends no inputs", async () => {
  const came = await read(scratch.path, "range * 2", times(3));
  expect(came.flatMap(({ scores }) => scores)).toEqual(upTo(1));
  expect(came.flatMap(({ challenged }) => challenged ?? [])).toEqual(upTo(6));
  expect(came.filter(({ inputs }) => inputs > 0)).toEqual([]);
});

test("batches with a row that only the challenger cannot take come with its inputs, and the others with its predictions", async () => {
  const came = await read(scratch.path, "CASE WHEN range = 3000 THEN NULL ELSE range * 2 END", times(3));
  expect(came.flatMap(({ scores }) => scores)).toEqual(upTo(1));
  expect(came.map(({ challenged, inputs }) => [challenged === undefined, inputs])).toContainEqual([true, 1]);
  expect(came.map(({ challenged, inputs }) => [challenged === undefined, inputs])).toContainEqual([false, 0]);
  const without = came.filter(({ challenged }) => challenged === undefined);
  expect(without.flatMap(({ scores }) => scores)).toContain(3000);
  expect(without).toHaveLength(1);
});

test("batches come with the challenger's inputs if its model fails in the worker", async () => {
  const came = await read(scratch.path, "range", () => Promise.reject(new Error("no such row")));
  expect(came.flatMap(({ scores }) => scores)).toEqual(upTo(1));
  expect(came.filter(({ challenged, inputs }) => challenged !== undefined || inputs !== 1)).toEqual([]);
});
