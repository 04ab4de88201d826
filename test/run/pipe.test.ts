import { readFile, writeFile } from "node:fs/promises";
import { join } from "node:path";
import { setTimeout as sleep } from "node:timers/promises";
import * as arrow from "apache-arrow";
import { describe, expect, test, vi } from "vitest";
import { projectFolder } from "../support/cli.js";
import { identity, smallJob } from "../support/faulty.js";
import { differences, goldenRows } from "../support/golden.js";
import { fixtures, scratch, writeSpec } from "../support/job.js";
import { outputRows, without } from "../support/output.js";
import { query, readRows, type Row } from "../support/parquet.js";
import { ending, numbers, pipeJob, streamOf } from "../support/pipe-job.js";
import { batchRows, endMarker, hasEnd, pipeHere, rowsOf, schemaBytes } from "../support/pipe.js";
import { scoreHere } from "../support/score.js";

const files = join(projectFolder, "fixtures/arrow");

const shards = (table: string): string => `SELECT * FROM '${join(projectFolder, "fixtures/data", table)}/*.parquet'`;

/** A stream of one record batch, which may have no rows. */
function streamWith(ids: readonly number[]): Uint8Array {
  const columns = {
    id: arrow.vectorFromArray(ids.map(BigInt), new arrow.Int64()),
    x: arrow.vectorFromArray(ids, new arrow.Float64()),
  };
  const schema = new arrow.Schema(
    Object.entries(columns).map(([name, { type }]) => arrow.Field.new({ name, type, nullable: true })),
  );
  const children = Object.values(columns).map(({ type, data: [data] }) => data ?? arrow.makeData({ type, length: 0 }));
  const rows = arrow.makeData({ type: new arrow.Struct(schema.fields), length: ids.length, nullCount: 0, children });
  const writer = new arrow.RecordBatchStreamWriter();
  writer.write(new arrow.RecordBatch(schema, rows));
  writer.finish();
  return writer.toUint8Array(true);
}

/** As text that tells -0 from 0, without the prediction. */
function exact(rows: readonly Row[]): string[] {
  return without("score", rows).map((row) =>
    JSON.stringify(row, (_key, value: unknown) =>
      typeof value === "bigint" || Object.is(value, -0) ? `${Object.is(value, -0) ? "-" : ""}${String(value)}n` : value,
    ),
  );
}

describe("what Python predicted comes out of a pipe", () => {
  test.each(
    fixtures.filter(({ name }) =>
      ["penguins-pipeline", "penguins-lightgbm", "embedding-mlp", "diabetes-mlp-batch32"].includes(name),
    ),
  )("$name, a batch for each batch", async (fixture) => {
    const spec = await writeSpec(scratch.path, fixture);
    const input = await streamOf(scratch.path, shards(fixture.table));

    const { output, error, report } = await pipeHere(spec, input);

    expect(error).toBeUndefined();
    expect(differences(rowsOf(output), await goldenRows(fixture))).toEqual([]);
    expect(batchRows(output)).toEqual(batchRows(input));
    expect(hasEnd(output)).toBe(true);
    expect(report).toMatchObject({ rowsRead: fixture.rows, rowsScored: fixture.rows, rowsRejected: 0 });
  });
});

describe("every type that is read is carried", () => {
  test.each([
    { name: "plain.arrows", computed: false },
    { name: "zstd.arrows", computed: true },
  ])("every type that is read is carried from $name, through DuckDB: $computed", async ({ name, computed }) => {
    const described = await query(`DESCRIBE SELECT * FROM '${join(files, "types.parquet")}'`);
    const columns = described.map((row) => String(row["column_name"]));
    const spec = await pipeJob(scratch.path, {
      input: computed ? { columns: { id2: "id * 2" } } : {},
      modelSpec: { inputs: { x: [computed ? "id2" : "id"] } },
      output: { columns },
    });

    const { output, error } = await pipeHere(spec, await readFile(join(files, name)));

    expect(error).toBeUndefined();
    expect(rowsOf(output)).toHaveLength(60);
    // Read once more, by what reads pyarrow's streams: nothing may be lost or changed on the way.
    const again = await smallJob(scratch.path, {
      model: identity,
      select: "SELECT 1",
      input: { path: "out.arrows" },
      modelSpec: { inputs: { x: ["id"] } },
      output: { columns, parquet: { path: "again" } },
    });
    await writeFile(join(scratch.path, "out.arrows"), output);
    await scoreHere(again.spec);
    expect(exact(await outputRows(join(scratch.path, "again")))).toEqual(
      exact(await readRows(join(files, "types.parquet"))),
    );
  });

  test.each([
    ["deltas.arrows", ["a", "b", "a", "a", "b", "c", "c", "a", "b", "c", "d", null]],
    ["replaced.arrows", ["x", "y", "z", null, "z", "y", "x", "w"]],
  ])("dictionaries: %s has the words of each batch", async (name, words) => {
    const spec = await pipeJob(scratch.path, { modelSpec: { inputs: { x: ["id"] } }, output: { columns: ["word"] } });

    const { output } = await pipeHere(spec, await readFile(join(files, name)));

    expect(rowsOf(output).map(({ word }) => word)).toEqual(words);
  });

  test("a pipe writes every type as the columns of its schema, lineage included", async () => {
    const spec = await pipeJob(scratch.path, { output: { columns: ["id"], lineage: true } });

    const { output } = await pipeHere(spec, await streamOf(scratch.path, numbers(5)));

    const { fields } = arrow.RecordBatchReader.from(output).open().schema;
    expect(fields.map(({ name, type }) => `${name} ${String(type)}`)).toEqual([
      "id Int64",
      "score Float32",
      "run_id Utf8",
      "model_sha256 Utf8",
      "scored_at Timestamp<MICROSECOND, UTC>",
    ]);
    expect(rowsOf(output)[3]).toMatchObject({
      id: 3n,
      run_id: expect.stringMatching(/^small-[0-9a-f]{12}$/) as string,
    });
  });
});

describe("a stream is scored as it comes", () => {
  test("a batch is out before the next one is in, also one of which no row is left, or that has none", async () => {
    const spec = await pipeJob(scratch.path, { input: { where: "id <> 2" } });
    const streams = [[1, 2, 3], [], [2], [4]].map((ids) => Buffer.from(streamWith(ids)));
    const [first = Buffer.alloc(0)] = streams;
    const messages = [
      first.subarray(0, schemaBytes(first)),
      ...streams.map((stream) => stream.subarray(schemaBytes(stream), -endMarker.length)),
      endMarker,
    ];
    let outs = 0;
    const chunks = (async function* () {
      for (const [index, message] of messages.entries()) {
        await vi.waitUntil(() => outs >= index, { interval: 2, timeout: 60_000 });
        yield message;
      }
    })();

    const { output } = await pipeHere(spec, chunks, {
      write() {
        outs += 1;
        return Promise.resolve();
      },
    });

    expect(batchRows(output)).toEqual([2, 0, 0, 1]);
    expect(rowsOf(output).map(({ id }) => id)).toEqual([1n, 3n, 4n]);
  });

  test("without rows, its columns come out and no rows", async () => {
    const { output, error } = await pipeHere(
      await pipeJob(scratch.path),
      await streamOf(scratch.path, `${numbers(3)} LIMIT 0`),
    );

    expect(error).toBeUndefined();
    expect(output).toHaveLength(schemaBytes(output) + endMarker.length);
    expect(arrow.tableFromIPC(output).schema.names).toEqual(["id", "score"]);
    expect(hasEnd(output)).toBe(true);
  });

  test("a reader that does not read holds up the writer", async () => {
    const input = await streamOf(scratch.path, "SELECT i AS id, i / 8 AS x FROM range(5000) t(i)", 50);
    let given = 0;
    const chunks = (async function* () {
      for (let at = 0; at < input.length; at += 1000) {
        given = Math.min(at + 1000, input.length);
        yield await Promise.resolve(input.subarray(at, at + 1000));
      }
    })();
    let calls = 0;
    let givenWhileHeld = 0;

    const { output } = await pipeHere(await pipeJob(scratch.path), chunks, {
      async write() {
        calls += 1;
        if (calls === 2) {
          await sleep(300);
          givenWhileHeld = given;
        }
      },
    });

    // The first batch is held up, the second scored, the third read.
    expect(givenWhileHeld).toBeLessThan(input.length / 10);
    expect(rowsOf(output)).toHaveLength(5000);
  });
});

describe("an input that is not whole ends with 65, and the output without its end", () => {
  test("wherever it is cut off", async () => {
    const spec = await pipeJob(scratch.path, { input: { where: "x is not null" } });
    const input = await streamOf(scratch.path, numbers(40), 20);
    const whole = (await pipeHere(spec, input)).output;
    for (const bytes of [input.length - 4, input.length - 8, input.length - 100, 500, 9, 2]) {
      const { said, output } = await ending(pipeHere(spec, input.subarray(0, bytes)));

      expect(said).toMatch(/^65 SHARD_CORRUPT\nreading stdin: the stream has no end: it stops at byte \d+/);
      expect(hasEnd(output)).toBe(false);
      expect(whole.subarray(0, output.length).equals(output)).toBe(true);
    }
    const last = (await pipeHere(spec, input.subarray(0, -8))).output;
    expect(Buffer.concat([last, endMarker]).equals(whole)).toBe(true);
  });
});

describe("of the spec", () => {
  test("a pipe ignores the keys of input and output places, and variables in them", async () => {
    const spec = await pipeJob(scratch.path, {
      input: { path: "s3://${NOWHERE}/x", ready: "no", wait: "${NO}", format: "parquet", partitions: { dt: "date" } },
      output: { columns: ["id"], postgres: { url: "${NO_SUCH_URL}", table: "no table", mode: 7 } },
      commit_rows: 3,
      report: { on_success: "${NO_SUCH_PING}" },
    });

    const { error, report } = await pipeHere(spec, await streamOf(scratch.path, numbers(4)));

    expect(error).toBeUndefined();
    expect(report).toMatchObject({ rowsScored: 4 });
  });

  test("input and output may be missing", async () => {
    const spec = await pipeJob(scratch.path);
    await writeFile(spec, JSON.stringify({ version: 1, name: "small", model: { path: "model.onnx" } }));

    const { output } = await pipeHere(spec, await streamOf(scratch.path, "SELECT 0.5::DOUBLE AS x"));

    expect(rowsOf(output)).toEqual([{ score: 0.5 }]);
  });

  test("keys that it does not know are refused", async () => {
    const spec = await pipeJob(scratch.path, { input: { wher: "id > 1" } });

    const { said, output } = await ending(pipeHere(spec, Buffer.alloc(0)));

    expect(said).toMatch(/^64 SPEC_INVALID\n.*input\.wher: unknown key; did you mean `where`\?/);
    expect(output).toHaveLength(0);
  });

  test("a column that an Arrow stream cannot tell is refused by name", async () => {
    const spec = await pipeJob(scratch.path, {
      input: { columns: { i: "to_months(id::INTEGER)" } },
      output: { columns: ["i"] },
    });

    const { said } = await ending(pipeHere(spec, await streamOf(scratch.path, numbers(4))));

    expect(said).toMatch(/^64 CONTRACT\nwriting the schema: output column `i` is interval, which has no place there/);
  });
});

test("a damaged value in a pipe is reported with its place, and the hint names the writing program", async () => {
  const spec = await pipeJob(scratch.path, { modelSpec: { inputs: { x: ["id"] } }, output: { columns: ["word"] } });
  const stream = await readFile(join(projectFolder, "fixtures/arrow/plain.arrows"));
  stream[stream.indexOf("exactly 12 b")] = 0xff;

  const { said } = await ending(pipeHere(spec, stream));

  expect(said).toMatch(/^65 SHARD_CORRUPT\nreading stdin: dictionary 0 is damaged \(column word: .*UTF-8/);
  expect(said).toContain("hint: correct the program that writes the stream");
});

describe("bad rows of a pipe", () => {
  test("the first bad row ends a pipe and is named by its number in the stream", async () => {
    const spec = await pipeJob(scratch.path, { input: { where: "id > 5" } });

    const { said, output } = await ending(pipeHere(spec, await streamOf(scratch.path, numbers(110), 20)));

    expect(said).toMatch(/^65 BAD_ROW\nscoring stdin: row 102, column `x` is NULL/);
    expect(said).toContain(
      "on_bad_row: reject sets such rows aside. What was written so far has no end-of-stream marker",
    );
    expect(hasEnd(output)).toBe(false);
  });

  test("bad rows of a pipe are set aside with row and value with on_bad_row: reject", async () => {
    const spec = await pipeJob(scratch.path, {
      input: { columns: { y: "ln(x)" }, where: "id % 2 = 1" },
      modelSpec: { inputs: { x: ["y"] } },
      on_bad_row: "reject",
      max_rejects: "2%",
    });

    const { output, rejected, report } = await pipeHere(spec, await streamOf(scratch.path, numbers(300)));

    expect(rejected.map(({ shard, row, reason, columns }) => [shard, row, reason, columns["id"]])).toEqual([
      ["stdin", 5, "null", "5"],
      ["stdin", 199, "null", "199"],
    ]);
    expect(report).toMatchObject({ rowsRead: 300, rowsScored: 148, rowsRejected: 2, rowsFiltered: 150 });
    expect(rowsOf(output).map(({ id }) => Number(id))).toEqual(
      Array.from({ length: 150 }, (_, index) => index * 2 + 1).filter((id) => id % 97 !== 5),
    );
  });

  test.each([
    {
      max: 3,
      said: /^65 TOO_MANY_REJECTS\nscoring: 4 rows could not be scored, max_rejects is 3; the last: .*row 296, column `x` is NULL\n/,
    },
    {
      max: "1%",
      said: /^65 TOO_MANY_REJECTS\nscoring: 4 rows could not be scored, max_rejects is 1% of 300 rows, 3\n/,
    },
  ])("up to max_rejects: $max", async ({ max, said }) => {
    const spec = await pipeJob(scratch.path, { on_bad_row: "reject", max_rejects: max });

    const found = await ending(pipeHere(spec, await streamOf(scratch.path, numbers(300))));

    expect(found.said).toMatch(said);
    expect(found.said).toContain("--rejects FILE keeps the rows");
    expect(hasEnd(found.output)).toBe(false);
  });
});
