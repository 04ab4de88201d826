import { join } from "node:path";
import { expect, test } from "vitest";
import { openArrowDecoder } from "#src/formats/arrow/decoder.js";
import { openShards } from "#src/formats/arrow/shards.js";
import { writeArrow } from "../../support/arrow.js";
import { emptyContract, matrixBinding, ref } from "../../support/batches.js";
import { scratch } from "../../support/job.js";
import { openSliceReader } from "#src/flow/workers/slice-reader.js";
import { oneWorker } from "../../support/scoring-worker.js";
import { plenty } from "../../support/memory.js";

const contract = {
  ...emptyContract,
  inputs: [matrixBinding(["x", "y"])],
  outputs: [{ kind: "scalar", column: "score", tensor: "score", type: "float32" }],
  passthrough: [
    { column: "id", source: ref("id", "int64") },
    { column: "label", source: ref("label", "utf8") },
  ],
} as const;

function sums(features: Float32Array): Float32Array<ArrayBuffer> {
  return Float32Array.from({ length: features.length / 2 }, (_, row) => {
    const [x = 0, y = 0] = features.subarray(row * 2);
    return x + y;
  });
}

function noWorkers(): never {
  throw new Error("no worker that only decodes is asked for");
}

test.each([
  ["many pieces of one batch", 40_000],
  ["some small batches", 3000],
])("%s are read into the same memory, and come right", async (_, batchRows) => {
  const rows = 40_000;
  const path = join(scratch.path, "a.arrow");
  await writeArrow(
    path,
    `SELECT range AS id, CAST(range % 1000 AS FLOAT) AS x, CAST(range // 1000 AS FLOAT) AS y,
       CASE WHEN range % 7 = 0 THEN NULL ELSE repeat('row ' || range || ' ', 8) END AS label FROM range(${rows})`,
    { batchRows },
  );
  await using decoder = openArrowDecoder({
    timezone: "UTC",
    areFiles: true,
    open: openShards(),
  });

  await using reader = openSliceReader({
    memory: plenty,
    decoder,
    cores: 1,
    startDecodeWorkers: noWorkers,
    scoring: oneWorker(contract, sums),
  });

  const wrong: number[] = [];
  let row = 17;
  let scored = 0;
  const slice = {
    file: { path, name: path },
    rowStart: row,
    rowEnd: rows - 3,
    projection: contract,
    partitions: new Map(),
  };
  for await (const { rowCount, carried, predictions = [] } of reader.read([slice], rows)) {
    const [ids, labels] = carried;
    const scores = predictions.flatMap(({ outputs }) => Array.from(outputs[0]?.data as Float32Array));
    scored += scores.length;
    for (let index = 0; index < rowCount; index += 1, row += 1) {
      const id = ids?.kind === "fixed" ? Number(ids.data[index]) : -1;
      const label =
        labels?.kind === "bytes" && labels.valid?.[index] !== 0
          ? Buffer.from(labels.bytes.subarray(labels.offsets[index], labels.offsets[index + 1])).toString()
          : null;
      const due = row % 7 === 0 ? null : `row ${row} `.repeat(8);
      if (id !== row || label !== due || scores[index] !== (row % 1000) + Math.floor(row / 1000)) {
        wrong.push(row);
      }
    }
  }

  expect(wrong).toEqual([]);
  expect(row).toBe(rows - 3);
  expect(scored).toBe(rows - 20);
});
