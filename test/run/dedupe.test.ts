import { readFile } from "node:fs/promises";
import { join } from "node:path";
import * as fc from "fast-check";
import { describe, expect, test } from "vitest";
import { rowState } from "#src/packing/select-rows.js";
import { writeArrow } from "../support/arrow.js";
import { lookup, smallJob, spoiltJob } from "../support/faulty.js";
import { scratchFolder } from "../support/job.js";
import { loopRows, loopWays, scoreLoop } from "../support/loop.js";
import { outputRows } from "../support/output.js";
import { pipeHere, rowsOf } from "../support/pipe.js";
import { expectAllThere, reject, rejectLines, spoil } from "../support/rejects.js";
import { runSpec, scoreHere } from "../support/score.js";

describe("what comes out is what comes out without it", () => {
  test("predictions and rejects, however rows are cut, batched, filtered and answered", async () => {
    await fc.assert(
      fc.asyncProperty(loopRows, loopWays, async (rows, way) => {
        const all = await scoreLoop(rows, "plain", way);
        const once = await scoreLoop(rows, "dedupe", way);
        expect(once.rows).toEqual(all.rows);
        expect(once.rejected).toEqual(all.rejected);
        expect({ ...once.record.counts, rowsDeduplicated: 0 }).toEqual(all.record.counts);
        // Each is told as done once, whether or not the model saw it.
        expect(once.record.timeline.rows).toEqual(all.record.timeline.rows);
      }),
      { numRuns: 100 },
    );
  });

  test.each([
    {
      name: "diabetes-mlp-batch32",
      settings: { ...reject, commit_rows: 100 },
      spoilt: [spoil(19, "bmi", "NULL", "null", null), spoil(441, "sex", "'inf'", "not_finite", "inf")],
    },
    {
      name: "sentences-mean",
      settings: { ...reject, commit_rows: 60, engine: { batch_size: 7 } },
      spoilt: [
        spoil(0, "input_ids", "NULL", "null", null),
        spoil(99, "input_ids", "range(49)", "too_long", "49 elements"),
      ],
    },
    {
      name: "penguins-pipeline",
      settings: { ...reject, engine: { batch_size: 7 } },
      spoilt: [spoil(101, "island", "NULL", "null", null)],
    },
  ])("what Python predicted: $name", async ({ name, settings, spoilt }) => {
    await using scratch = await scratchFolder();
    const job = await spoiltJob(scratch.path, name, spoilt, { ...settings, dedupe: true });
    await scoreHere(job.spec);
    await expectAllThere(job, spoilt);
  });
});

/** Ten codes, again and again: the first ten rows of each span are new. */
const repeating = "SELECT row AS id, row % 10 AS code FROM range(1000) AS t(row)";
const expected = Array.from({ length: 1000 }, (_, id) => ({ id: BigInt(id), score: (id % 10) / 2 }));

describe("the report says how many rows were repeats", () => {
  test("the report says how many rows were repeats of a run: as JSON, in the manifest", async () => {
    await using scratch = await scratchFolder();
    const settings = { commit_rows: 300, engine: { batch_size: 64 } };
    const job = { model: lookup(), select: repeating, dedupe: true, ...settings };
    const { spec, out } = await smallJob(scratch.path, job);

    const { summary, stderr } = await runSpec(spec);

    expect(summary, stderr).toMatchObject({ status: "complete", rows_scored: 1000, rows_deduplicated: 960 });
    expect(await outputRows(out)).toEqual(expected);
    const manifest = JSON.parse(await readFile(join(out, "_manifest.json"), "utf8")) as object;
    expect(manifest).toMatchObject({ attempt: { rows_deduplicated: 960 } });
  });

  test.each(["arrow", "arrows"] as const)(
    "the report says how many rows were repeats of Arrow shards: .%s",
    async (format) => {
      await using scratch = await scratchFolder();
      const input = { path: `in/b.${format}` };
      const { spec, out } = await smallJob(scratch.path, { model: lookup(), select: "SELECT 1", input, dedupe: true });
      const path = join(scratch.path, input.path);
      await writeArrow(path, repeating, { kind: format === "arrow" ? "file" : "stream", batchRows: 37 });

      expect(await scoreHere(spec)).toMatchObject({ rowsScored: 1000, rowsDeduplicated: 990 });

      expect(await outputRows(out)).toEqual(expected);
    },
  );

  test("the report says how many rows were repeats of a pipe, where each batch is a span", async () => {
    await using scratch = await scratchFolder();
    const { spec } = await smallJob(scratch.path, { model: lookup(), select: "SELECT 1", dedupe: true });
    const path = join(scratch.path, "in.arrows");
    await writeArrow(path, repeating, { kind: "stream", batchRows: 100 });

    const { report, output } = await pipeHere(spec, await readFile(path));

    expect(report).toMatchObject({ rowsScored: 1000, rowsDeduplicated: 900 });
    expect(rowsOf(output)).toEqual(expected);
  });
});

describe("a row that the model fails on", () => {
  const select = "SELECT row AS id, CASE WHEN row % 4 = 3 THEN 99 ELSE row % 10 END AS code FROM range(200) AS t(row)";

  test("a row that the model fails on ends the run by its first row", async () => {
    await using scratch = await scratchFolder();
    const { spec } = await smallJob(scratch.path, { model: lookup(), select, dedupe: true });
    await expect(scoreHere(spec)).rejects.toThrow(/row 3: the model fails on it/);
  });

  test("a row that the model fails on is rejected with all equal rows, which count against max_rejects", async () => {
    await using scratch = await scratchFolder();
    const { spec, out, rewrite } = await smallJob(scratch.path, { model: lookup(), select, dedupe: true, ...reject });

    expect(await scoreHere(spec)).toMatchObject({ rowsScored: 150, rowsRejected: 50, rowsDeduplicated: 140 });

    const lines = await rejectLines(out);
    expect(lines.map(({ row }) => row)).toEqual(Array.from({ length: 50 }, (_, index) => index * 4 + 3));
    expect(new Set(lines.map(({ reason }) => reason))).toEqual(new Set(["model_failed"]));

    await rewrite({ dedupe: true, ...reject, max_rejects: 49, output: { parquet: { path: "few" }, columns: ["id"] } });
    await expect(scoreHere(spec)).rejects.toThrow(/49/);
  });
});

test("the model is asked for each row of a span once", async () => {
  const rows = Array.from({ length: 60 }, (_, index) => ({ x: index % 3, list: [], state: rowState.kept }));
  const way = { batchRows: 8, fixedBatchRows: null, spanRows: 20, cut: 7, pieceBytes: 1e9, seed: 1 };
  expect(await scoreLoop(rows, "dedupe", way)).toMatchObject({
    asked: 9,
    record: { counts: { rowsDeduplicated: 34 } },
  });
});
