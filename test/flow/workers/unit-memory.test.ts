import { join } from "node:path";
import { MessageChannel } from "node:worker_threads";
import { expect, test, vi } from "vitest";
import { usedMemoryBytes } from "#src/columns/loops/vectors.js";
import { openShards } from "#src/formats/arrow/shards.js";
import { batchLimits } from "#src/formats/arrow/batches.js";
import { mebibytes, memoryBudget } from "#src/base/memory-budget.js";
import { arrowUnits } from "#src/formats/arrow/units.js";
import type { UnitRequest } from "#src/flow/workers/protocol.js";
import { openUnitReader } from "#src/job/threads/serve-units.js";
import type { Unit } from "#src/formats/format.js";
import type { RunModel } from "#src/models/engine.js";
import { openUnitPool } from "#src/flow/workers/unit-pool.js";
import { readParquetFooter } from "#src/formats/parquet/footer.js";
import { parquetUnits } from "#src/formats/parquet/units.js";
import { serveUnits } from "#src/flow/workers/unit-server.js";
import { writeArrow } from "../../support/arrow.js";
import { emptyContract, matrixBinding, ref } from "../../support/batches.js";
import { scratch } from "../../support/job.js";
import { writeRows } from "../../support/parquet.js";
import { plenty } from "../../support/memory.js";

const names = ["a", "b", "c", "d"];
const contract = {
  ...emptyContract,
  inputs: [matrixBinding(names)],
  outputs: [{ kind: "scalar", column: "score", tensor: "score", type: "float32" }],
  passthrough: [{ column: "id", source: ref("id", "int64") }],
} as const;
const scored: UnitRequest = {
  projection: contract,
  constants: new Map(),
  removed: new Uint32Array(0),
  limits: plenty,
  scoring: { contract, tensors: ["score"], batchRows: 1000 },
};

/** Of Arrow, the last batch is of several pieces. */
const shardRows = { parquet: [3000, 9000, 27_000, 81_000], arrow: [3000, 9000, 27_000, 400_000] };

async function writeUnits(folder: string, format: "parquet" | "arrow"): Promise<Unit[]> {
  const units: Unit[] = [];
  for (const rows of shardRows[format]) {
    const path = join(folder, `${rows}.${format}`);
    const select = `SELECT range AS id, ${names.map((name) => `random()::FLOAT AS ${name}`).join(", ")} FROM range(${rows})`;
    const file = { path, name: path };
    const slice = { file, rowStart: 0, rowEnd: rows, projection: contract };
    if (format === "parquet") {
      await writeRows(path, select, `ROW_GROUP_SIZE ${rows}`);
      units.push(...(parquetUnits(await readParquetFooter(file), slice, { limits: plenty }) ?? []));
    } else {
      await writeArrow(path, select, { batchRows: rows });
      await using shard = await openShards()(file);
      units.push(...(arrowUnits(shard, slice, { limits: batchLimits(memoryBudget(mebibytes(512))) }) ?? []));
    }
  }
  return units;
}

test.each(["parquet", "arrow"] as const)("memory for vectors comes back, however units of %s end", async (format) => {
  const units = await writeUnits(scratch.path, format);
  const { port1, port2 } = new MessageChannel();
  const before = usedMemoryBytes(); // what other tests of this thread have not given back
  let calls = 0;
  let most = 0;
  const run: RunModel = async ({ inputs }) => {
    calls += 1;
    most = Math.max(most, usedMemoryBytes() - before);
    if (calls % 7 === 0) {
      throw new Error("the model fails");
    }
    const rows = inputs[0]?.dims[0] ?? 0;
    const data = new Float32Array(rows);
    return await Promise.resolve({ outputs: [{ dtype: "float32", dims: [rows], data }], ms: 1 });
  };
  serveUnits(port2, { openReader: openUnitReader, run });
  const pool = openUnitPool([port1], { batchRows: () => 1000 });
  const readAll = async (asked: UnitRequest, leaveAfter: number): Promise<void> => {
    let batches = 0;
    for await (const { carried } of pool.read(units, asked)) {
      expect(carried).toHaveLength(1);
      batches += 1;
      if (batches === leaveAfter) {
        return;
      }
    }
    expect(leaveAfter).toBe(Number.POSITIVE_INFINITY);
  };

  await readAll(scored, Number.POSITIVE_INFINITY);
  const once = most;
  for (const leaveAfter of [1, 3, 5, Number.POSITIVE_INFINITY]) {
    await readAll(scored, leaveAfter);
    await readAll(
      { projection: contract, constants: new Map(), removed: new Uint32Array(0), limits: plenty },
      leaveAfter,
    );
  }

  expect(calls).toBeGreaterThan(100);
  expect(once).toBeGreaterThan(names.length * 4 * 20_000); // the columns of the largest page, or piece
  expect(once).toBeLessThan(6_000_000); // and not those of others before
  expect(most).toBe(once);
  port1.close();
  await vi.waitFor(() => {
    expect(usedMemoryBytes()).toBeLessThanOrEqual(before);
  });
});
