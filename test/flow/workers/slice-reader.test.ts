import { readFile, writeFile } from "node:fs/promises";
import { join } from "node:path";
import { setTimeout as sleep } from "node:timers/promises";
import { describe, expect, onTestFinished, test } from "vitest";
import { openParquetDecoder } from "#src/formats/parquet/decoder.js";
import { readParquetFooter } from "#src/formats/parquet/footer.js";
import { startDecodeWorkers } from "#src/job/threads/worker-threads.js";
import type { Decoder, SliceRequest } from "#src/formats/format.js";
import { openSliceReader, type ScoringWorkers, type SliceReader } from "#src/flow/workers/slice-reader.js";
import { JobError } from "#src/base/errors.js";
import { emptyContract, matrixBinding, ref } from "../../support/batches.js";
import { scratch } from "../../support/job.js";
import { oneWorker } from "../../support/scoring-worker.js";
import { writeRows } from "../../support/parquet.js";
import { hasPyarrow, runPython } from "../../support/pyarrow.js";
import { plenty } from "../../support/memory.js";

const contract = {
  ...emptyContract,
  inputs: [matrixBinding(["x"])],
  outputs: [{ kind: "scalar", column: "score", tensor: "score", type: "float32" }],
  passthrough: [{ column: "id", source: ref("id", "int64") }],
} as const;

/** What one chunk of DuckDB's has at most: longer batches are others'. */
const vectorRows = 2048;
/** Two values each: enough for threads to be started. */
const manyRows = 600_000;

function openReader(folder: string, scoring?: ScoringWorkers): SliceReader {
  const cores = 2;
  const decoder = openParquetDecoder({ threads: cores, folders: [folder], timezone: "UTC" });
  const reader = openSliceReader({ decoder, cores, startDecodeWorkers, memory: plenty, scoring });
  onTestFinished(async () => {
    await reader[Symbol.asyncDispose]();
    await decoder[Symbol.asyncDispose]();
  });
  return reader;
}

const slice = (path: string, rowStart: number, rowEnd: number): SliceRequest => ({
  file: { path, name: path },
  rowStart,
  rowEnd,
  projection: contract,
  partitions: new Map(),
});

const echoing = (): ScoringWorkers => oneWorker(contract, (features) => Float32Array.from(features));

interface Found {
  readonly ids: number[];
  longest: number;
  /** Rows that had been scored when they came. */
  scored: number;
  refusal: string | undefined;
}

async function readAll(reader: SliceReader, asked: SliceRequest): Promise<Found> {
  const found: Found = { ids: [], longest: 0, scored: 0, refusal: undefined };
  try {
    for await (const { rowCount, carried, predictions } of reader.read([asked], asked.rowEnd - asked.rowStart)) {
      const [column] = carried;
      for (const id of column?.kind === "fixed" ? (column.data as BigInt64Array) : []) {
        found.ids.push(Number(id));
      }
      found.longest = Math.max(found.longest, rowCount);
      found.scored += (predictions ?? []).reduce((sum, part) => sum + part.rowCount, 0);
    }
  } catch (error) {
    if (!(error instanceof JobError)) {
      throw error;
    }
    found.refusal = error.message;
  }
  return found;
}

const range = (from: number, to: number): number[] => Array.from({ length: to - from }, (_, index) => from + index);

async function writeShard(folder: string, rows: number, options?: string): Promise<string> {
  const path = join(folder, "a.parquet");
  await writeRows(path, `SELECT range AS id, CAST(range % 1000 AS FLOAT) AS x FROM range(${rows})`, options);
  return path;
}

describe("a slice of a Parquet shard", () => {
  test("a large slice of a Parquet shard is decoded by other threads", async () => {
    const path = await writeShard(scratch.path, manyRows);

    const found = await readAll(openReader(scratch.path), slice(path, 1234, manyRows - 1));

    expect(found.ids).toEqual(range(1234, manyRows - 1));
    expect(found.longest).toBeGreaterThan(vectorRows);
  });

  test("a slice of a Parquet shard of any size is decoded and scored by a thread that has the model", async () => {
    const path = await writeShard(scratch.path, 5000);

    const found = await readAll(openReader(scratch.path, echoing()), slice(path, 10, 4990));

    expect(found).toMatchObject({ ids: range(10, 4990), scored: 4980, refusal: undefined });
  });

  test("a large slice of a Parquet shard is scored by several threads if there are more cores", async () => {
    const path = await writeShard(scratch.path, manyRows);

    const found = await readAll(openReader(scratch.path, echoing()), slice(path, 0, manyRows));

    expect(found).toMatchObject({ scored: 0, refusal: undefined });
    expect(found.ids).toEqual(range(0, manyRows));
    expect(found.longest).toBeGreaterThan(vectorRows);
  });

  test("a small slice of a Parquet shard is read by DuckDB if no thread has the model", async () => {
    const path = await writeShard(scratch.path, 5000);

    const found = await readAll(openReader(scratch.path), slice(path, 0, 5000));

    expect(found).toMatchObject({ ids: range(0, 5000), longest: vectorRows });
  });

  test("a slice of a Parquet shard that DuckDB reads waits for its turn, and is not read if it is no longer needed", async () => {
    const path = await writeShard(scratch.path, 100);
    const reader = openReader(scratch.path, echoing());
    const both = [slice(path, 0, 100), slice(path, 0, 100)]; // several together are DuckDB's
    const calls: string[] = [];
    const near = sleep(50).then(() => calls.push("turn"));

    for await (const { rowCount } of reader.read(both, 200, { queued: near, near })) {
      calls.push(`${rowCount} rows`);
    }

    expect(calls).toEqual(["turn", "100 rows", "100 rows"]);
    const dropped = Promise.reject(new Error("no longer needed"));
    const unwanted = reader.read(both, 200, { queued: dropped, near: dropped });
    await expect(unwanted[Symbol.asyncIterator]().next()).rejects.toThrow("no longer needed");
  });

  test("a slice of a Parquet shard whose units do not begin with its first row is read by the decoder", async () => {
    const asked: number[] = [];
    const decoder = {
      units: () =>
        Promise.resolve({
          units: [],
          constants: new Map(),
          removed: new Uint32Array(0),
          fitting: (count: number) => count,
        }),
      async *read([first]: readonly SliceRequest[]) {
        asked.push(first?.rowStart ?? -1);
        yield* [];
      },
    } as Partial<Decoder> as Decoder;
    await using reader = openSliceReader({ decoder, cores: 2, startDecodeWorkers, memory: plenty, scoring: echoing() });

    await readAll(reader, slice("gone", 5000, 10_000));

    expect(asked).toEqual([5000]);
  });

  test("slices of a Parquet shard are read by the decoder alone after workers could read no row of two slices", async () => {
    const asked: number[] = [];
    const failures: string[] = [];
    const reasons: string[] = [];
    const decoder = {
      units: ({ rowStart, rowEnd }: SliceRequest) => {
        const unit = { format: "parquet", group: "gone", path: "/gone", groupStart: 0, columns: [], rowStart, rowEnd };
        return Promise.resolve({
          units: [unit],
          constants: new Map(),
          removed: new Uint32Array(0),
          fitting: (count: number) => count,
        });
      },
      async *read([first]: readonly SliceRequest[]) {
        asked.push(first?.rowStart ?? -1);
        yield* [];
      },
    } as Partial<Decoder> as Decoder;
    await using reader = openSliceReader({
      memory: plenty,
      decoder,
      cores: 2,
      startDecodeWorkers,
      scoring: echoing(),
      onFailure: ({ kind }) => failures.push(kind),
      onGivenUp: (reason) => reasons.push(reason),
    });

    for (const rowStart of [0, 10, 20]) {
      await readAll(reader, slice("/gone", rowStart, rowStart + 10));
    }

    expect(asked).toEqual([0, 10, 20]);
    expect(failures).toEqual(["file", "file"]);
    expect(reasons).toEqual(["workers read no row of 2 slices in a row"]);
  });

  test.runIf(hasPyarrow)("DuckDB reads the rest of a slice from the first page that only DuckDB can read", async () => {
    const path = join(scratch.path, "a.parquet");
    runPython(
      `import sys, pyarrow as pa, pyarrow.parquet as pq
table = pa.table({"id": pa.array(range(5000), pa.int64()), "x": pa.array([i % 7 for i in range(5000)], pa.float32())})
pq.write_table(table, sys.argv[1], use_dictionary=False, column_encoding={"id": "DELTA_BINARY_PACKED"})`,
      path,
    );

    const found = await readAll(openReader(scratch.path, echoing()), slice(path, 0, 5000));

    expect(found).toMatchObject({ ids: range(0, 5000), scored: 0, refusal: undefined });
  });
});

describe("a shard that is damaged", () => {
  test("damage is reported in DuckDB's words, after all rows before it", async () => {
    const path = await writeShard(scratch.path, 10_000, "ROW_GROUP_SIZE 2048, COMPRESSION snappy");
    const { rowGroups } = await readParquetFooter({ path });
    const start = rowGroups[2]?.chunks[1]?.start ?? 0;
    const bytes = await readFile(path);
    await writeFile(path, bytes.fill(0xa5, start + 30, start + 60));
    const found = await readAll(openReader(scratch.path, echoing()), slice(path, 0, 10_000));

    const alone = await readAll(openReader(scratch.path), slice(path, 0, 10_000));
    expect(found.refusal).toMatch(/row group 2 \(rows 4096 to 6143\), column `x`/);
    expect(found).toMatchObject({ ids: range(0, 4096), scored: 4096, refusal: alone.refusal });
  });
});
