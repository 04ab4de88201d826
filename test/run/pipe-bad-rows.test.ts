import { readFile } from "node:fs/promises";
import { join } from "node:path";
import { describe, expect, test } from "vitest";
import { projectFolder } from "../support/cli.js";
import { scratch } from "../support/job.js";
import { hasEnd, pipeHere, rowsOf } from "../support/pipe.js";
import { ending, numbers, pipeJob, streamOf } from "../support/pipe-job.js";

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
