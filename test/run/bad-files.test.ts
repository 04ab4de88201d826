import { copyFile, mkdir, readFile, rm, stat, truncate, writeFile } from "node:fs/promises";
import { describe, expect, test } from "vitest";
import { type SpecOverrides, scratch, scratchFolder } from "../support/job.js";
import { listing, outputRows } from "../support/output.js";
import { writeRows } from "../support/parquet.js";
import { tinyParquet } from "../support/parquet-bytes.js";
import { patch, type ShardJob, shardFixture, shardJob } from "../support/shards.js";
import { shownCli } from "../support/shown.js";

/** Three shards of 1200 rows, in row groups of 400; what is done to them, and all that the run then says. */
async function saidOf(change: (job: ShardJob) => Promise<unknown>, overrides: SpecOverrides = {}): Promise<string> {
  await using folder = await scratchFolder();
  const job = await shardJob(folder.path, { a: "plain", b: "plain", c: "plain" }, { commit_rows: 400, ...overrides });
  await change(job);
  const before = await listing(folder.path);
  const said = await shownCli(["run", job.spec, "--quiet"], folder.path);
  // Nothing is planned, so nothing is written.
  expect(await listing(folder.path)).toEqual(before);
  return `\n${said}`;
}

const footerOf = (bytes: Buffer): number => bytes.length - 8 - bytes.readUInt32LE(bytes.length - 8);

describe("a shard that cannot be planned: the message names it and says what to do", () => {
  test("its footer is damaged", async () => {
    const said = await saidOf((job) =>
      patch(job.shard("b"), (bytes) => bytes.fill(0xff, footerOf(bytes) + 1000, footerOf(bytes) + 1020)),
    );
    expect(said).toMatchInlineSnapshot(`
      "
      exit 65
      --- stderr
      error: reading the footer of <folder>/in/b.parquet: it is damaged (byte 1001 of 2164: a value has type 15, where type 1 to 13 is due)
        hint: write the shard again, or take it out of input.path
      "
    `);
  });

  test("one bit of the footer's row count is wrong", async () => {
    // Thrift's compact protocol: field 3, an i64; 1200 as a zigzag varint becomes 1072.
    const said = await saidOf((job) =>
      patch(job.shard("b"), (bytes) => {
        const at = bytes.indexOf(Buffer.from([0x16, 0xe0, 0x12]), footerOf(bytes));
        expect(at).toBeGreaterThan(0);
        bytes[at + 2] = 0x10;
      }),
    );
    expect(said).toMatchInlineSnapshot(`
      "
      exit 65
      --- stderr
      error: reading the footer of <folder>/in/b.parquet: it states 1072 rows, but its row groups state 1200
        hint: the footer is damaged, or its writer is faulty; write the shard again, or take it out of input.path
      "
    `);
  });

  test("it promises rows that so few bytes cannot hold", async () => {
    const lie = { values: [1, 2, 3], rows: 2 ** 40, groupRows: 2 ** 40, chunkValues: 2 ** 40 };
    expect(await saidOf((job) => writeFile(job.shard("b"), tinyParquet(lie)))).toMatchInlineSnapshot(`
      "
      exit 65
      --- stderr
      error: reading the footer of <folder>/in/b.parquet: row group 0, column \`x\` cannot hold 1099511627776 values in 41 bytes
        hint: the footer is damaged, or its writer is faulty; write the shard again, or take it out of input.path
      "
    `);
  });

  test("it was cut off in its middle", async () => {
    expect(await saidOf((job) => truncate(job.shard("b"), 12_345))).toMatchInlineSnapshot(`
      "
      exit 65
      --- stderr
      error: reading the footer of <folder>/in/b.parquet: it begins as Parquet, but its end is missing (12345 bytes)
        hint: the file was cut off, or is still being written; write the shard again, or take it out of input.path
      "
    `);
  });

  test("its last byte is missing", async () => {
    expect(
      await saidOf(async (job) => truncate(job.shard("b"), (await stat(job.shard("b"))).size - 1)),
    ).toMatchInlineSnapshot(`
      "
      exit 65
      --- stderr
      error: reading the footer of <folder>/in/b.parquet: it begins as Parquet, but its end is missing (25621 bytes)
        hint: the file was cut off, or is still being written; write the shard again, or take it out of input.path
      "
    `);
  });

  test("its beginning is missing", async () => {
    const said = await saidOf(async (job) => {
      await writeFile(job.shard("b"), (await readFile(job.shard("b"))).subarray(-1000));
    });
    expect(said).toMatchInlineSnapshot(`
      "
      exit 65
      --- stderr
      error: reading the footer of <folder>/in/b.parquet: it claims to have a footer of 2164 bytes, in a file of 1000
        hint: the file was damaged, or cut at its beginning; write the shard again, or take it out of input.path
      "
    `);
  });

  test("it has zero bytes", async () => {
    expect(await saidOf((job) => truncate(job.shard("b"), 0))).toMatchInlineSnapshot(`
      "
      exit 65
      --- stderr
      error: reading the footer of <folder>/in/b.parquet: the file is empty (0 bytes)
        hint: its writer was stopped, perhaps; write the shard again, or take it out of input.path
      "
    `);
  });

  test("it is a text", async () => {
    expect(await saidOf((job) => writeFile(job.shard("b"), "id,x\n1,2\n"))).toMatchInlineSnapshot(`
      "
      exit 65
      --- stderr
      error: reading the footer of <folder>/in/b.parquet: it is not Parquet: it begins with "id,x", not "PAR1"
        hint: shards are Parquet, or Arrow under names that end in .arrow; write the shard again, or take it out of input.path
      "
    `);
  });

  test("it is encrypted", async () => {
    expect(await saidOf((job) => copyFile(shardFixture("encrypted-footer"), job.shard("b")))).toMatchInlineSnapshot(`
      "
      exit 65
      --- stderr
      error: reading the footer of <folder>/in/b.parquet: it is encrypted
        hint: encrypted files are not supported; write the shard without encryption
      "
    `);
  });

  test("a column that the job uses is encrypted", async () => {
    expect(await saidOf((job) => copyFile(shardFixture("encrypted-column"), job.shard("b")))).toMatchInlineSnapshot(`
      "
      exit 65
      --- stderr
      error: planning: column \`x\` of <folder>/in/b.parquet is encrypted
        hint: encrypted columns are not supported; write the shard without encryption
      "
    `);
  });

  test("it is a folder, named by the spec", async () => {
    const said = await saidOf(
      async (job) => {
        await rm(job.shard("b"));
        await mkdir(job.shard("b"));
      },
      { input: { path: "in/b.parquet" } },
    );
    expect(said).toMatchInlineSnapshot(`
      "
      exit 75
      --- stderr
      error: planning small: no file matches in/b.parquet
      "
    `);
  });

  test("a column is missing", async () => {
    const select = `SELECT * EXCLUDE (x) FROM '${shardFixture("plain")}'`;
    expect(await saidOf((job) => writeRows(job.shard("b"), select))).toMatchInlineSnapshot(`
      "
      exit 65
      --- stderr
      error: planning: column \`x\` is missing in <folder>/in/b.parquet, but float64 in <folder>/in/a.parquet
        hint: the columns that the job uses must have the same type in all shards; write that shard again, or take it out of input.path
      "
    `);
  });

  test("a column has another type", async () => {
    const select = `SELECT * REPLACE (k::BIGINT AS k) FROM '${shardFixture("plain")}'`;
    expect(await saidOf((job) => writeRows(job.shard("b"), select))).toMatchInlineSnapshot(`
      "
      exit 65
      --- stderr
      error: planning: column \`k\` is int64 in <folder>/in/b.parquet, but int32 in <folder>/in/a.parquet
        hint: the columns that the job uses must have the same type in all shards; write that shard again, or take it out of input.path
      "
    `);
  });

  test("all shards are without rows", async () => {
    const select = `FROM '${shardFixture("plain")}' LIMIT 0`;
    const change = (job: ShardJob): Promise<unknown> =>
      Promise.all(["a", "b", "c"].map((name) => writeRows(job.shard(name), select)));
    expect(await saidOf(change)).toMatchInlineSnapshot(`
      "
      exit 75
      --- stderr
      error: planning small: in/*.parquet has 0 rows in 3 files, input.min_rows is 1
      "
    `);
  });

  test("a page does not match its checksum, with input.verify: full", async () => {
    const said = await saidOf(
      async (job) => {
        await copyFile(shardFixture("checked"), job.shard("b"));
        await patch(job.shard("b"), (bytes) => {
          bytes[9000] = (bytes[9000] ?? 0) ^ 1;
        });
      },
      { input: { verify: "full" } },
    );
    expect(said).toMatchInlineSnapshot(`
      "
      exit 65
      --- stderr
      error: checking <folder>/in/b.parquet: row group 1, column \`x\`: the page at byte 8918 does not match its checksum
        hint: the shard was damaged after it was written: fetch it again from where it came, or write it again
      "
    `);
  });

  test("there would be too many spans to keep", async () => {
    const lie = { values: [1, 2, 3], rows: 2 ** 30, groupRows: 2 ** 30, chunkValues: 2 ** 30 };
    const change = (job: ShardJob): Promise<unknown> =>
      Promise.all(["a", "b", "c"].map((name) => writeFile(job.shard(name), tinyParquet(lie))));
    expect(await saidOf(change, { commit_rows: 1, output: { columns: [] } })).toMatchInlineSnapshot(`
      "
      exit 64
      --- stderr
      error: planning small: 3,221,225,472 rows in spans of 1 row would be 3,221,225,472 parts, at most 16777216 can be kept
        hint: raise commit_rows; if the number of rows is wrong, \`infer-batch inspect\` shows the rows that a shard states
      "
    `);
  });
});

describe("a shard that can be planned though others are not like it", () => {
  test("its columns come in another order, among others", async () => {
    const job = await shardJob(scratch.path, { a: "plain" });
    await writeRows(job.shard("b"), `SELECT 1 AS more, l, s, x, id, k, 'x' AS last FROM '${shardFixture("plain")}'`);

    expect(await shownCli(["run", job.spec, "--quiet"], scratch.path)).toBe("exit 0\n");

    const rows = await outputRows(job.out);
    expect(rows.slice(1200)).toEqual(rows.slice(0, 1200));
  });

  test("an encrypted column is not used", async () => {
    const job = await shardJob(scratch.path, { a: "encrypted-column" }, { output: { columns: ["s"] } });
    const binding = { path: "model.onnx", inputs: { x: ["id"] } };
    await job.rewrite({ model: binding, output: { columns: ["s"] } });

    expect(await shownCli(["run", job.spec, "--quiet"], scratch.path)).toBe("exit 0\n");

    expect((await outputRows(job.out)).map(({ score }) => score)).toEqual([0, 1, 2, 3, 4, 5, 6, 7, 8, 9]);
  });
});
