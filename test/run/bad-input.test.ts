import { copyFile, readFile, rm, stat, truncate, utimes, writeFile } from "node:fs/promises";
import { join } from "node:path";
import { describe, expect, test } from "vitest";
import { differences, goldenRows } from "../support/golden.js";
import { scratch } from "../support/job.js";
import { faultsAtAnyMoment, faultsOfFinished, listing, outputRows, partNames } from "../support/output.js";
import { query, writeRows } from "../support/parquet.js";
import { leaveUnfinished, runSpec } from "../support/score.js";
import { ownJob, plannedTime } from "../support/world.js";
import { expectEnd } from "../support/cli.js";

/** 300 rows for diabetes-mlp: features f0 to f9 are row / 1000, except what `bad` says of row 137. */
function features(types: Readonly<Record<string, string>>, bad: Readonly<Record<string, string>>): string {
  const columns = Array.from({ length: 10 }, (_, index) => `f${index}`).map((name) => {
    const type = types[name] ?? "DOUBLE";
    const good = type === "DOUBLE" ? "row / 1000" : "row";
    return `(CASE WHEN row = 137 THEN ${bad[name] ?? good} ELSE ${good} END)::${type} AS ${name}`;
  });
  return `SELECT row AS id, ${columns.join(", ")} FROM range(300) AS t(row)`;
}

const badRows = [
  { value: "NULL", type: "DOUBLE", says: "is NULL (in 1 of 600 rows of the input)" },
  { value: "'nan'::DOUBLE", type: "DOUBLE", says: "is nan, which is not finite" },
  { value: "'inf'::DOUBLE", type: "DOUBLE", says: "is inf, which is not finite" },
  { value: "'-inf'::DOUBLE", type: "DOUBLE", says: "is -inf, which is not finite" },
  { value: "1e300", type: "DOUBLE", says: "is 1e+300, which float32 cannot hold" },
  { value: "-1e39", type: "DOUBLE", says: "is -1e+39, which float32 cannot hold" },
  { value: "'nan'::FLOAT", type: "FLOAT", says: "is nan, which is not finite" },
  { value: "NULL", type: "SMALLINT", says: "is NULL (in 1 of 600 rows of the input)" },
  { value: "16777217", type: "INTEGER", says: "is 16777217, which float32 cannot hold" },
  { value: "-16777217", type: "BIGINT", says: "is -16777217, which float32 cannot hold" },
  { value: "9223372036854775807", type: "BIGINT", says: "is 9223372036854775807, which float32 cannot hold" },
  { value: "4294967295", type: "UINTEGER", says: "is 4294967295, which float32 cannot hold" },
];

describe("a row that cannot be scored", () => {
  test.each(badRows)(
    "($value as $type) ends the run with 65, naming shard, row, column and value",
    async ({ value, type, says }) => {
      const job = await ownJob(scratch.path, "diabetes-mlp", { commit_rows: 50 });
      await Promise.all(job.shards.map((shard) => rm(shard)));
      await writeRows(join(scratch.path, "in/a.parquet"), features({ f4: type }, {}));
      await writeRows(join(scratch.path, "in/b.parquet"), features({ f4: type }, { f4: value }));

      await expectEnd(
        runSpec(job.spec),
        65,
        `scoring ${join(scratch.path, "in/b.parquet")}: row 137, column \`f4\` ${says}\n`,
      );
      // Rows 0 to 399 of the run lie before its span; what is committed is never more than that, and stays.
      const parts = await partNames(job.out);
      expect(parts.length).toBeLessThanOrEqual(8);
      expect(parts.length).toBeGreaterThan(0);
      expect((await listing(job.out)).some((line) => line.startsWith("_SUCCESS"))).toBe(false);
    },
  );

  test("a large integer that float32 holds exactly can be scored", async () => {
    const job = await ownJob(scratch.path, "diabetes-mlp");
    await Promise.all(job.shards.map((shard) => rm(shard)));
    await writeRows(
      join(scratch.path, "in/a.parquet"),
      features({ f4: "BIGINT" }, { f4: "(-9223372036854775807 - 1)" }),
    );

    expect((await runSpec(job.spec)).summary).toMatchObject({ status: "complete", rows_scored: 300 });
  });
});

/** Where a row group's first column begins. */
async function pageOf(shard: string, rowGroup: number): Promise<number> {
  const [row] = await query(
    `SELECT min(least(data_page_offset, coalesce(dictionary_page_offset, data_page_offset))) AS at
     FROM parquet_metadata('${shard}') WHERE row_group_id = ${rowGroup}`,
  );
  return Number(row?.["at"]);
}

async function damage(shard: string, from: number): Promise<Buffer> {
  const whole = await readFile(shard);
  const bytes = Buffer.from(whole);
  for (let at = from; at < from + 400; at += 1) {
    bytes[at] = (bytes[at] ?? 0) ^ 0xa5;
  }
  await writeFile(shard, bytes);
  await utimes(shard, plannedTime, plannedTime);
  return whole;
}

describe("a shard whose bytes are damaged", () => {
  test("a shard whose bytes are damaged in the middle ends the run with 65; earlier spans stay, and a run over the repaired shard finishes", async () => {
    const job = await ownJob(scratch.path, "digits-lightgbm", { commit_rows: 50 });
    // Shard 2 is rows 799 to 1399 of the run, in row groups of 150.
    const whole = await damage(job.shard(2), await pageOf(job.shard(2), 2));

    await expectEnd(runSpec(job.spec), 65, `error: reading ${job.shard(2)}: `);
    const parts = await partNames(job.out);
    expect(parts.length).toBeGreaterThanOrEqual(Math.floor(799 / 50));
    expect(parts.length).toBeLessThanOrEqual(Math.floor((799 + 300) / 50));
    expect(await faultsAtAnyMoment(job.out, { golden: await goldenRows(job.fixture), commitRows: 50 })).toEqual([]);

    await writeFile(job.shard(2), whole);
    await utimes(job.shard(2), plannedTime, plannedTime);
    const repaired = await runSpec(job.spec);
    expect(repaired.summary).toMatchObject({ status: "complete", spans_resumed: parts.length });
    expect(differences(await outputRows(job.out), await goldenRows(job.fixture))).toEqual([]);
  });

  test("a shard whose bytes are damaged in a committed row group does not stop the run", async () => {
    const job = await ownJob(scratch.path, "digits-lightgbm", { commit_rows: 50 });
    await leaveUnfinished(job.spec, job.out, (span) => span < 30);
    await damage(job.shard(2), await pageOf(job.shard(2), 2));

    expect((await runSpec(job.spec)).summary).toMatchObject({ status: "complete", spans_resumed: 30 });
    expect(differences(await outputRows(job.out), await goldenRows(job.fixture))).toEqual([]);
  });

  test.each([
    { what: "cut in half", cut: async (shard: string) => truncate(shard, Math.floor((await stat(shard)).size / 2)) },
    { what: "without its last byte", cut: async (shard: string) => truncate(shard, (await stat(shard)).size - 1) },
    { what: "empty", cut: (shard: string) => truncate(shard, 0) },
    { what: "a text", cut: (shard: string) => writeFile(shard, "id,f0\n1,2\n") },
  ])("($what) is refused with 65 before anything is written", async ({ cut }) => {
    const job = await ownJob(scratch.path, "digits-lightgbm");
    await cut(job.shard(1));

    await expectEnd(runSpec(job.spec), 65, job.shard(1));
    expect((await listing(scratch.path)).filter((line) => line.startsWith("out"))).toEqual([]);
  });
});

describe("input that is not all there", () => {
  test("incomplete input ends with 75 while input.ready is missing", async () => {
    const job = await ownJob(scratch.path, "wine-forest", { input: { ready: "in/_SUCCESS" } });

    const early = await runSpec(job.spec);
    await writeFile(join(scratch.path, "in/_SUCCESS"), "");
    const inTime = await runSpec(job.spec);

    expect(early.code).toBe(75);
    expect(early.stderr).toMatch(/in\/_SUCCESS \(input\.ready\) is not there yet/);
    expect(inTime.summary).toMatchObject({ status: "complete", rows_scored: 178 });
  });

  test("incomplete input ends with 75 and without a plan while it has fewer rows than input.min_rows", async () => {
    const job = await ownJob(scratch.path, "wine-forest", { input: { min_rows: 178 } });
    const late = await readFile(job.shard(4));
    await rm(job.shard(4));

    await expectEnd(runSpec(job.spec), 75, /has 142 rows in 4 files, input\.min_rows is 178/);
    expect((await listing(scratch.path)).filter((line) => line.startsWith("out"))).toEqual([]);

    await writeFile(job.shard(4), late);
    expect((await runSpec(job.spec)).summary).toMatchObject({ status: "complete", rows_scored: 178 });
    expect(differences(await outputRows(job.out), await goldenRows(job.fixture))).toEqual([]);
  });

  test("incomplete input ends with 75 when no shard exists", async () => {
    const job = await ownJob(scratch.path, "wine-forest");
    await Promise.all(job.shards.map((shard) => rm(shard)));

    await expectEnd(runSpec(job.spec), 75, /no file matches in\/\*\.parquet/);
  });
});

test("shards without rows among others change nothing", async () => {
  const job = await ownJob(scratch.path, "wine-forest", { commit_rows: 7 });
  const empty = `SELECT * FROM read_parquet('${job.shard(0)}') LIMIT 0`;
  for (const name of ["part-00000-0", "part-00001-a", "part-00001-b", "part-00009", "a"]) {
    await writeRows(join(scratch.path, "in", `${name}.parquet`), empty);
  }

  expect((await runSpec(job.spec)).summary).toMatchObject({ status: "complete", rows_scored: 178, spans_planned: 26 });
  expect(differences(await outputRows(job.out), await goldenRows(job.fixture))).toEqual([]);
});

test("shards without rows alone are a finished run without parts if min_rows is 0", async () => {
  const job = await ownJob(scratch.path, "wine-forest", { input: { min_rows: 0 } });
  await writeRows(join(scratch.path, "in/empty.parquet"), `SELECT * FROM read_parquet('${job.shard(0)}') LIMIT 0`);
  await Promise.all(job.shards.map((shard) => rm(shard)));
  await copyFile(join(scratch.path, "in/empty.parquet"), join(scratch.path, "in/empty-too.parquet"));

  const { summary } = await expectEnd(runSpec(job.spec), 0);
  expect(summary).toMatchObject({ status: "complete", rows_planned: 0, spans_planned: 0 });
  expect(await partNames(job.out)).toEqual([]);
  expect(await faultsOfFinished(job.out, 0)).toEqual([]);
  expect((await runSpec(job.spec)).summary).toMatchObject({ status: "already_complete" });
});
