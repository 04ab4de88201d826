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

const names = Array.from("abcdefgh");
const contract = {
  ...emptyContract,
  inputs: [matrixBinding(names)],
  outputs: [{ kind: "scalar", column: "score", tensor: "score", type: "float32" }],
  passthrough: [
    { column: "id", source: ref("id", "int64") },
    { column: "label", source: ref("label", "utf8") },
  ],
} as const;

/** The places of features count, too. */
function sums(features: Float32Array): Float32Array<ArrayBuffer> {
  return Float32Array.from({ length: features.length / names.length }, (_, row) =>
    names.reduce((sum, _name, place) => sum + (features[row * names.length + place] ?? 0) * (place + 1), 0),
  );
}

function sumOf(row: number): number {
  return names.reduce((sum, _, place) => sum + ((row * (place + 3)) % 1009) * (place + 1), 0);
}

const longText = "long ".repeat(3277);

function noWorkers(): never {
  throw new Error("no worker that only decodes is asked for");
}

test.each([
  { what: "many pieces of one batch", rows: 40_000, batchRows: 40_000, dictionaries: [] },
  { what: "some small batches", rows: 40_000, batchRows: 3000, dictionaries: [] },
  // Less than is read by one piece, but all of its labels may be as long as the longest.
  { what: "pieces of a small batch with a dictionary", rows: 8000, batchRows: 8000, dictionaries: ["label"] },
])("$what are read into the same memory, and come right", async ({ rows, batchRows, dictionaries }) => {
  const path = join(scratch.path, "a.arrow");
  const isShort = dictionaries.length === 0;
  const features = names.map((name, place) => `CAST(range * ${place + 3} % 1009 AS FLOAT) AS ${name}`);
  const textSql = isShort
    ? "repeat('row ' || range || ' ', 8)"
    : `if(range = 5000, '${longText}', 'row ' || range % 100)`;
  await writeArrow(
    path,
    `SELECT ${features.join(", ")}, range AS id, CASE WHEN range % 7 = 0 THEN NULL ELSE ${textSql} END AS label FROM range(${rows})`,
    { batchRows, dictionaries },
  );
  await using decoder = openArrowDecoder({ timezone: "UTC", areFiles: true, open: openShards() });

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
      const text = isShort ? `row ${row} `.repeat(8) : row === 5000 ? longText : `row ${row % 100}`;
      if (id !== row || label !== (row % 7 === 0 ? null : text) || scores[index] !== sumOf(row)) {
        wrong.push(row);
      }
    }
  }

  expect(wrong).toEqual([]);
  expect(row).toBe(rows - 3);
  expect(scored).toBe(rows - 20);
});
