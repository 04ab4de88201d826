import { readFile, utimes, writeFile } from "node:fs/promises";
import { join } from "node:path";
import { describe, expect, test } from "vitest";
import { expectKept, partLabels } from "../support/expressions.js";
import { identity, refusalOf, smallJob } from "../support/faulty.js";
import { scratch, type SpecOverrides } from "../support/job.js";
import { outputRows } from "../support/output.js";
import { query, type Row, writeRows } from "../support/parquet.js";
import { reject, rejectLines } from "../support/rejects.js";
import { runSpec, scoreHere } from "../support/score.js";
import { showResult } from "../support/shown.js";
import { ownJob, plannedTime } from "../support/world.js";
import { expectEnd } from "../support/cli.js";

/** `t` is a number as text, except in rows 130, 2500 and 2501, where it is none or NULL. */
const select = `SELECT *, {'f': t, 'd': {'n': id}} AS s FROM (SELECT row AS id, row::DOUBLE AS v,
  CASE row WHEN 130 THEN 'it''s' WHEN 2500 THEN NULL WHEN 2501 THEN '' ELSE row::VARCHAR END AS t
  FROM range(3000) AS t(row))`;
const scores = (keeps: (id: number) => boolean, score: (id: number) => number = (id) => id): Row[] =>
  Array.from({ length: 3000 }, (_, id) => id)
    .filter(keeps)
    .map((id) => ({ id: BigInt(id), score: score(id) }));

const job = (
  folder: string,
  overrides: Omit<SpecOverrides, "model"> & { modelSpec?: object },
): ReturnType<typeof smallJob> => smallJob(folder, { ...overrides, model: identity, select });

describe("an expression that fails on a row ends the run with 65, telling why and of what", () => {
  test.each([
    ["input.where", { columns: { x: "v" }, where: "t::INTEGER >= 0" }, 130],
    ["input.columns", { columns: { x: "t::DOUBLE" } }, 130],
    ["a column of the kept rows", { columns: { x: "t::DOUBLE" }, where: "id > 200" }, 2501],
    ["a column that is carried", { columns: { x: "v", n: "t::INTEGER + id" } }, 130],
    ["an overflow", { columns: { x: "(id::TINYINT)::FLOAT" } }, 128],
    ["a constant", { columns: { x: "v + ln(0)" } }, 0],
    ["nothing of the row", { columns: { x: "ln(0)" } }, 0],
    ["a logarithm", { columns: { x: "ln(v - 50)" } }, 0],
    ["what is computed twice", { columns: { x: "(id::TINYINT)::FLOAT * (id::TINYINT)::FLOAT" } }, 128],
    ["a field of a struct", { columns: { x: "s.f::FLOAT" } }, 130],
    ["a field of a field", { columns: { x: "s.d.n::TINYINT::FLOAT" } }, 128],
    ["a list's element", { columns: { x: "list_sum(list_transform([t], lambda e: e::INTEGER))::FLOAT" } }, 130],
  ])("%s", async (_what, input, row) => {
    const output = { columns: "n" in input.columns ? ["id", "n"] : ["id"], parquet: { path: "out" } };
    const { spec, out } = await job(scratch.path, { input, output, commit_rows: 100 });

    const said = (await refusalOf(scoreHere(spec))).replaceAll(scratch.path, "<folder>");

    expect(said).toContain(`65 BAD_ROW\nscoring <folder>/in/a.parquet: row ${row}: input.`);
    expect(said).toMatchSnapshot();
    // Spans before it may be committed, none after it.
    expect((await outputRows(out)).every(({ id }) => Number(id) < Math.floor(row / 100) * 100)).toBe(true);
  });

  test("as the command shows it", async () => {
    const { spec } = await job(scratch.path, { input: { columns: { x: "t::DOUBLE" } } });

    expect(showResult(await runSpec(spec), scratch.path)).toMatchInlineSnapshot(`
      "exit 65
      --- stdout
      {"run_id":"small-<12 digits>","status":"failed","exit_code":65,"code":"BAD_ROW","message":"scoring <folder>/in/a.parquet: row 130: input.columns.x fails: Conversion Error: Could not convert string 'it's' to DOUBLE when casting from source column t (t = it's)","hint":"correct the expression, or wrap it in try(…), which gives NULL; on_bad_row: reject sets such rows aside. Committed spans are kept"}
      --- stderr
      [<time>] INFO: planned run small-<12 digits>: 3,000 rows of 1 shard, in 1 span of up to 262,144 rows
      error: scoring <folder>/in/a.parquet: row 130: input.columns.x fails: Conversion Error: Could not convert string 'it's' to DOUBLE when casting from source column t (t = it's)
        hint: correct the expression, or wrap it in try(…), which gives NULL; on_bad_row: reject sets such rows aside. Committed spans are kept
      "
    `);
  });

  test("an expression that fails on a row does not end the run if the filter leaves the row out, or try(…) returns NULL", async () => {
    const input = { columns: { x: "coalesce(try(t::DOUBLE), -1)", n: "t::INTEGER" }, where: "try(t::DOUBLE) % 2 = 0" };
    const output = { columns: ["id"], parquet: { path: "out" } };
    const modelSpec = { inputs: { x: ["n"] } };
    const { spec, out, rewrite } = await job(scratch.path, {
      input: { ...input, columns: { n: input.columns.n } },
      output,
      modelSpec,
    });
    await scoreHere(spec);
    await expectKept(out, { rows: scores((id) => id % 2 === 0 && id !== 130 && id !== 2500), planned: 3000 });

    await rewrite({ input: { columns: { x: input.columns.x } }, output: { ...output, parquet: { path: "all" } } });
    await scoreHere(spec);
    const bad = new Set([130, 2500, 2501]);
    const rows = scores(
      () => true,
      (id) => (bad.has(id) ? -1 : id),
    );
    await expectKept(join(scratch.path, "all"), { rows, planned: 3000 });
  });
});

const line = (row: number, column: string, value: string | null): Row => ({
  shard: "in/a.parquet",
  row,
  columns: { id: String(row) },
  column,
  reason: "expression_failed",
  value,
});

describe("an expression that fails on a row sets it aside where bad rows are rejected", () => {
  test.each([
    { commit: 1000, batch: 7 },
    { commit: "auto", batch: 4096 },
    { commit: 130, batch: "auto" },
  ])(
    "rows on which the filter or a column fails are set aside, in spans of $commit and batches of $batch",
    async ({ commit, batch }) => {
      const input = { columns: { x: "ln(v) + t::DOUBLE" }, where: "id % 10 = 0 OR id > 2400 + t::INTEGER * 0" };
      const settings = { ...reject, input, commit_rows: commit, engine: { batch_size: batch } };
      const { spec, out } = await job(scratch.path, settings);

      // Row 130 is kept for its id; of 2500 the condition is true for its id too, of 2501 it fails.
      expect(await scoreHere(spec)).toMatchObject({ rowsPlanned: 3000, rowsRejected: 4 });

      const bad = new Set([0, 130, 2500, 2501]);
      await expectKept(out, {
        rows: scores(
          (id) => (id % 10 === 0 || id > 2400) && !bad.has(id),
          (id) => Math.fround(Math.log(id) + id),
        ),
        planned: 3000,
        rejected: 4,
      });
      const lines = await rejectLines(out);
      expect(lines.map(({ row, reason, column }) => [row, reason, column])).toEqual([
        [0, "expression_failed", "x"],
        [130, "expression_failed", "input.where"],
        [2500, "null", "x"],
        [2501, "expression_failed", "input.where"],
      ]);
      expect(lines[1]).toEqual(line(130, "input.where", "id = 130, t = it's"));
      expect(lines[3]).toEqual(line(2501, "input.where", "id = 2501, t = "));
      expect(lines[0]).toEqual(line(0, "x", "v = 0.0, t = 0"));
    },
  );

  test("rows on which an expression fails are set aside also with model.missing: nan, because a failure is not a NULL", async () => {
    const model = {
      ...identity,
      nodes: [
        { op: "IsNaN", from: ["x"], to: "nan" },
        { op: "Cast", from: ["nan"], to: "score", attributes: { to: 1 } },
      ],
    };
    const input = { columns: { x: "t::DOUBLE" } };
    const { spec, out } = await smallJob(scratch.path, {
      model,
      select,
      ...reject,
      input,
      modelSpec: { missing: "nan" },
    });

    expect(await scoreHere(spec)).toMatchObject({ rowsRejected: 2 });

    expect(await rejectLines(out)).toEqual([line(130, "x", "t = it's"), line(2501, "x", "t = ")]);
    expect((await outputRows(out)).filter(({ score }) => score === 1)).toEqual([{ id: 2500n, score: 1 }]);
  });

  test("rows on which an expression fails are set aside up to max_rejects, a share of the planned rows", async () => {
    const input = { columns: { x: "t::DOUBLE" }, where: "id % 10 < 2" };
    const settings = { input, on_bad_row: "reject", commit_rows: 1000 };
    const { spec, rewrite } = await job(scratch.path, { ...settings, max_rejects: 2 });
    const said = await refusalOf(scoreHere(spec));
    expect(said).toMatch(/^65 TOO_MANY_REJECTS\nscoring: 3 rows could not be scored, max_rejects is 2; the last: /);
    // 0.1% of 3000, though only 600 of them pass the filter.
    await rewrite({ ...settings, max_rejects: "0.1%", output: { columns: ["id"], parquet: { path: "again" } } });
    expect(await scoreHere(spec)).toMatchObject({ status: "complete", rowsRejected: 3, rowsFiltered: 2400 });
  });

  test("the label of each part counts the rows that were rejected and filtered out", async () => {
    const input = { columns: { x: "t::DOUBLE" }, where: "id % 10 < 2 AND id < 2900" };
    const { spec, out } = await job(scratch.path, { ...reject, input, commit_rows: 1000 });

    const { summary } = await expectEnd(runSpec(spec), 0);
    expect(summary).toMatchObject({ rows_planned: 3000, rows_scored: 577, rows_rejected: 3, rows_filtered: 2420 });
    expect((await partLabels(out)).map(({ rejected, filtered }) => [rejected, filtered])).toEqual([
      [1, 800],
      [0, 800],
      [2, 820],
    ]);
  });
});

/** Where the pages of a column begin in a row group. */
async function pagesOf(shard: string, column: string, rowGroup: number): Promise<number> {
  const [row] = await query(
    `SELECT least(data_page_offset, coalesce(dictionary_page_offset, data_page_offset)) AS at
     FROM parquet_metadata('${shard}') WHERE row_group_id = ${rowGroup} AND path_in_schema = '${column}'`,
  );
  return Number(row?.["at"]);
}

async function damage(shard: string, at: number): Promise<void> {
  const bytes = await readFile(shard);
  bytes.fill(0xa5, at, at + 30);
  await writeFile(shard, bytes);
  await utimes(shard, plannedTime, plannedTime);
}

describe("the columns that only expressions use", () => {
  test("must have the same type in all shards", async () => {
    const input = { columns: { x: "v" }, where: "t::INTEGER > 0" };
    const { spec } = await job(scratch.path, { input });
    await writeRows(join(scratch.path, "in/b.parquet"), "SELECT 1::BIGINT AS id, 1::DOUBLE AS v, 1 AS t");

    expect((await refusalOf(scoreHere(spec))).replaceAll(scratch.path, "<folder>")).toMatchInlineSnapshot(`
      "65 SCHEMA_MISMATCH
      planning: column \`t\` is int32 in <folder>/in/b.parquet, but utf8 in <folder>/in/a.parquet
      hint: the columns that the job uses must have the same type in all shards; write that shard again, or take it out of input.path"
    `);
  });

  test("must be in all shards", async () => {
    const { spec } = await job(scratch.path, { input: { columns: { x: "v + len(t)" } } });
    await writeRows(join(scratch.path, "in/b.parquet"), "SELECT 1::BIGINT AS id, 1::DOUBLE AS v");

    expect(await refusalOf(scoreHere(spec))).toMatch(
      /^65 SCHEMA_MISMATCH\nplanning: column `t` is missing in .*b\.parquet/,
    );
  });

  test.each([
    { what: "a column of both, though the filter keeps nothing", damaged: "pixel_7_7", where: "pixel_7_7 < 0" },
    { what: "a feature, though the filter drops all", damaged: "pixel_0_0", where: "false" },
    { what: "a feature, though the filter drops that row group", damaged: "pixel_0_0", where: "pixel_7_7 > 100" },
  ])(
    "columns that only expressions use are read even if the filter drops their rows, damaged or not: $what",
    async ({ damaged, where }) => {
      const own = await ownJob(scratch.path, "digits-lightgbm", { commit_rows: 50, input: { where } });
      await damage(own.shard(2), await pagesOf(own.shard(2), damaged, 2));

      const said = await refusalOf(scoreHere(own.spec));

      expect(said).toContain(`65 SHARD_CORRUPT\nreading ${own.shard(2)}: `);
      // The reason is DuckDB's, not just that rows are missing.
      expect(said).not.toContain("its footer promises");
    },
  );

  test("pages that only an expression reads are reported with DuckDB's reason when they are damaged", async () => {
    const { spec } = await job(scratch.path, { input: { where: "len(t) > 100" }, modelSpec: { inputs: { x: ["v"] } } });
    const shard = join(scratch.path, "in/a.parquet");
    await writeRows(shard, select.replace("range(3000)", "range(1500000)"), "ROW_GROUP_SIZE 122880");
    await damage(shard, await pagesOf(shard, "t", 11));

    const said = await refusalOf(scoreHere(spec));

    expect(said).toContain(`65 SHARD_CORRUPT\nreading ${shard}: `);
    expect(said).not.toContain("its footer promises");
  });
});
