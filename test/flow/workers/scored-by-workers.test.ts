import * as fc from "fast-check";
import { expect, test } from "vitest";
import { fixedSize } from "#src/flow/batch-size.js";
import { openSpan } from "#src/flow/span.js";
import { createSpanPipeline } from "#src/flow/score.js";
import { emptyContract } from "../../support/batches.js";
import { scratch } from "../../support/job.js";
import { loopRows, loopWays, scoreLoop } from "../../support/loop.js";
import { outputRows } from "../../support/output.js";
import { writeRows } from "../../support/parquet.js";
import { reject, rejectLines } from "../../support/rejects.js";
import { scoreHere } from "../../support/score.js";
import { shardJob } from "../../support/shards.js";

test("rows that a worker scored equal rows that the main thread scores, however they are divided, batched and filtered", async () => {
  let beside = 0;
  await fc.assert(
    fc.asyncProperty(loopRows, loopWays, async (rows, way) => {
      const here = await scoreLoop(rows, "plain", way);
      const there = await scoreLoop(rows, "beside", way);
      expect(there.rows).toEqual(here.rows);
      expect(there.rejected).toEqual(here.rejected);
      expect(there.record.counts).toEqual(here.record.counts);
      expect(there.record.timeline.rows).toEqual(here.record.timeline.rows);
      beside += there.asked === here.asked ? 0 : 1;
    }),
    { numRuns: 80 },
  );
  expect(beside).toBeGreaterThan(0); // batches that are cut elsewhere ask for other rows
});

test("rows that a worker scored are refused if the model returns a tensor of another length, also across the end of a span", () => {
  const span = { index: 0, rowStart: 0, rowEnd: 7 };
  const contract = {
    ...emptyContract,
    outputs: [{ kind: "scalar", column: "score", tensor: "score", type: "float32" }],
  } as const;
  const open = openSpan({ contract, span, onFault() {} });
  const stages = { nowMs: () => 0, took: () => 0 };
  const context = { progress: { scored() {} }, record: { stages }, log: {} } as never;
  const tools = { contract, engine: { concurrency: 1 }, commits: 1, sizer: fixedSize(10) };
  const pipeline = createSpanPipeline(context, tools as never, undefined as never);
  const outputs = [{ dtype: "float32", dims: [1, 1], data: Float32Array.of(5) }] as const;

  expect(() => {
    const predictions = [{ rowCount: 10, packedRows: 10, ms: 1, outputs }];
    pipeline.take(open, { rowCount: 10, inputs: [], carried: [], predictions }, { from: 3, to: 7, row: 3 });
  }).toThrow("output `score` came as float32 [1,1] for a batch of 10 rows");
});

test("rows that a worker scored appear once with their own features, if spans and row groups end anywhere in a batch", async () => {
  const rows = 30_000;
  const bad = [0, 4095, 12_345, rows - 1];
  const job = await shardJob(scratch.path, {}, { ...reject, commit_rows: 700, output: { columns: ["id"] } });
  const x = `CASE WHEN range IN (${bad.join(", ")}) THEN NULL ELSE range * 2.0 END`;
  await writeRows(job.shard("a"), `SELECT range AS id, ${x} AS x FROM range(${rows})`, "ROW_GROUP_SIZE 4096");

  const report = await scoreHere(job.spec);

  expect(report).toMatchObject({ rowsScored: rows - bad.length, rowsRejected: bad.length });
  const found = (await outputRows(job.out)).map(({ id, score }) => [Number(id), Number(score)]);
  const good = Array.from({ length: rows }, (_, id) => [id, id * 2]).filter(([id = 0]) => !bad.includes(id));
  expect(found.toSorted(([a = 0], [b = 0]) => a - b)).toEqual(good);
  expect((await rejectLines(job.out)).map(({ row }) => row)).toEqual(bad);
});
