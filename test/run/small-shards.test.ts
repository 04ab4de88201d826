import { mkdir, readFile, rm, utimes, writeFile } from "node:fs/promises";
import { join } from "node:path";
import { expect, test } from "vitest";
import { expectEnd, runHere } from "../support/cli.js";
import { type SpecOverrides, scratch } from "../support/job.js";
import { listing, outputRows, partNames } from "../support/output.js";
import { readFiles, writeRows } from "../support/parquet.js";
import { scoreHere } from "../support/score.js";
import { shardJob, type ShardJob } from "../support/shards.js";
import { plannedTime } from "../support/world.js";

const shardCount = 40;

/** Sizes from 1 to 90 rows: DuckDB joins the chunks of files of fewer than 64. */
const sizes = Array.from({ length: shardCount }, (_, index) => 1 + ((index * 37) % 90));
const total = sizes.reduce((sum, rows) => sum + rows, 0);

function startOf(shard: number): number {
  return sizes.slice(0, shard).reduce((sum, rows) => sum + rows, 0);
}

const nameOf = (shard: number): string => `s${String(shard).padStart(2, "0")}`;

/** Rows that are numbered through all shards; `x` is twice the number. */
async function manyShards(folder: string, overrides: SpecOverrides = {}, columns = "id * 2.0 AS x"): Promise<ShardJob> {
  const job = await shardJob(folder, {}, { commit_rows: 100, ...overrides, output: { columns: ["id"] } });
  for (const [shard, rows] of sizes.entries()) {
    await write(job.shard(nameOf(shard)), startOf(shard), rows, columns);
  }
  return job;
}

async function write(path: string, start: number, rows: number, columns = "id * 2.0 AS x"): Promise<void> {
  await writeRows(path, `SELECT id, ${columns} FROM (SELECT range + ${start} AS id FROM range(${rows}))`);
  await utimes(path, plannedTime, plannedTime);
}

async function scores(out: string): Promise<(readonly [number, number])[]> {
  const rows = await outputRows(out);
  return rows.map(({ id, score }) => [Number(id), Number(score)] as const).toSorted(([a], [b]) => a - b);
}

/** What the plan says. */
async function readsTogether(out: string): Promise<boolean> {
  const plan = (await listing(out)).find((path) => path.includes("plan.json")) ?? "";
  return (await readFile(join(out, plan.split(" ")[0] ?? ""), "utf8")).includes('"uniform": true');
}

const everyRow = Array.from({ length: total }, (_, id) => [id, id * 2] as const);

test("many small shards are scored in order, each row with its own features", async () => {
  const job = await manyShards(scratch.path);

  const report = await scoreHere(job.spec);

  expect(report).toMatchObject({ rowsScored: total, spansCommitted: Math.ceil(total / 100) });
  expect(await readsTogether(job.out)).toBe(true);
  expect(await scores(job.out)).toEqual(everyRow);
  const first = await readFiles([join(job.out, (await partNames(job.out))[0] ?? "")]);
  expect(first.map(({ id }) => Number(id))).toEqual(Array.from({ length: 100 }, (_, id) => id));
});

test.each([
  { when: "the first worker of two", done: ["--worker", "0/2"] },
  { when: "the second worker of four", done: ["--worker", "1/4"] },
  { when: "all but one span", done: [], lost: 1 },
  { when: "all but a span between others, and the last", done: [], lost: 3 },
])(
  "many small shards are each written once after $when was committed, with spans that end where shards do",
  async ({ done, lost }) => {
    const job = await shardJob(scratch.path, {}, { commit_rows: 100, output: { columns: ["id"] } });
    for (let shard = 0; shard < 8; shard += 1) {
      await write(job.shard(nameOf(shard)), shard * 100, 100);
    }
    await expectEnd(runHere(["run", job.spec, ...done]), 0);
    if (lost !== undefined) {
      for (const name of [
        "_SUCCESS",
        "_manifest.json",
        ...(await partNames(job.out)).filter((_, span) => span === lost || span === lost + 4),
      ]) {
        await rm(join(job.out, name));
      }
    }

    expect(await scoreHere(job.spec)).toMatchObject({ status: "complete" });

    expect(await scores(job.out)).toEqual(Array.from({ length: 800 }, (_, id) => [id, id * 2]));
  },
);

test("many small shards may be filtered and computed with", async () => {
  const input = { columns: { x: "y * 2.0" }, where: "id % 3 <> 0" };
  const job = await manyShards(scratch.path, { input }, "id::DOUBLE AS y");

  expect(await scoreHere(job.spec)).toMatchObject({ rowsFiltered: Math.ceil(total / 3) });
  expect(await scores(job.out)).toEqual(everyRow.filter(([id]) => id % 3 !== 0));
});

test("many small shards may have a column with the name of the column that distinguishes them", async () => {
  const job = await manyShards(scratch.path, {}, 'id * 2.0 AS x, 7 AS file_index, 0 AS "input.shard"');

  await scoreHere(job.spec);

  expect(await scores(job.out)).toEqual(everyRow);
});

test("a small shard with another type is read with that type", async () => {
  const job = await manyShards(scratch.path, {}, "id * 2.0 AS x, id::INTEGER AS n");
  await write(job.shard(nameOf(7)), startOf(7), sizes[7] ?? 0, "id * 2.0 AS x, 'text' AS n");

  await scoreHere(job.spec);

  expect(await scores(job.out)).toEqual(everyRow);
  expect(await readsTogether(job.out)).toBe(false);
});

test("many small shards have the values of their folders", async () => {
  const job = await shardJob(scratch.path, {}, { input: { path: "in/*/*.parquet" }, output: { columns: ["id", "k"] } });
  for (const [shard, rows] of sizes.entries()) {
    const folder = join(scratch.path, `in/k=${shard % 3}`);
    await mkdir(folder, { recursive: true });
    await write(join(folder, `${nameOf(shard)}.parquet`), startOf(shard), rows);
  }

  await scoreHere(job.spec);

  const found = await outputRows(job.out);
  const due = sizes.flatMap((rows, shard) =>
    Array.from({ length: rows }, (_, row) => [startOf(shard) + row, String(shard % 3)]),
  );
  expect(found.map(({ id, k }) => [Number(id), k]).toSorted(([a], [b]) => Number(a) - Number(b))).toEqual(due);
});

test("a damaged one among many small shards is named, and the rows before it are committed", async () => {
  const job = await manyShards(scratch.path);
  const damaged = job.shard(nameOf(30));
  const bytes = await readFile(damaged);
  bytes.fill(0xff, 4, 24); // of its first page's header
  await writeFile(damaged, bytes);
  await utimes(damaged, plannedTime, plannedTime);

  await expect(scoreHere(job.spec)).rejects.toMatchObject({
    code: "SHARD_CORRUPT",
    message: expect.stringContaining(`${nameOf(30)}.parquet: row group 0`),
  });

  expect(await partNames(job.out)).toHaveLength(Math.floor(startOf(30) / 100));
  expect(await scores(job.out)).toEqual(everyRow.slice(0, Math.floor(startOf(30) / 100) * 100));
});
