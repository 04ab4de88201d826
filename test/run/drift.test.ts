import { mkdir } from "node:fs/promises";
import { dirname, join } from "node:path";
import { describe, expect, test } from "vitest";
import { identity, refusalOf, smallJob } from "../support/faulty.js";
import { scratch } from "../support/job.js";
import { writeRows } from "../support/parquet.js";
import { scoreHere } from "../support/score.js";

/** Scores shards by path below `in/`, a SELECT each, and carries `id` and `carried`; what it refuses, without the folder. */
async function refusalOver(
  folder: string,
  shards: Readonly<Record<string, string>>,
  carried: string,
): Promise<string | undefined> {
  const input = { path: Object.keys(shards).map((path) => `in/${path}`) };
  const output = { columns: ["id", carried], parquet: { path: "out" } };
  const { spec } = await smallJob(folder, { model: identity, select: "SELECT 1", input, output });
  for (const [path, select] of Object.entries(shards)) {
    await mkdir(dirname(join(folder, "in", path)), { recursive: true });
    await writeRows(join(folder, "in", path), select);
  }
  return (await refusalOf(scoreHere(spec))).replaceAll(`${folder}/`, "");
}

const plain = "SELECT 1::BIGINT AS id, 0.5::DOUBLE AS x";
const hint =
  "hint: the columns that the job uses must have the same type in all shards; write that shard again, or take it out of input.path";

describe("a column that one shard lacks ends the run with 65, in any order of the shards", () => {
  test.each([
    { what: "a folder's", here: "in/dt=1/b.parquet", type: "utf8, from the folder name", lacks: "a.parquet" },
    { what: "a folder's", here: "in/dt=1/b.parquet", type: "utf8, from the folder name", lacks: "z.parquet" },
    { what: "the file's", here: "in/b.parquet", type: "date32", lacks: "a.parquet" },
    { what: "the file's", here: "in/b.parquet", type: "date32", lacks: "z.parquet" },
  ])("$what, missing in $lacks", async ({ here, type, lacks }) => {
    const dated = type === "date32" ? `${plain}, DATE '2026-01-31' AS dt` : plain;

    const said = await refusalOver(scratch.path, { [here.slice(3)]: dated, [lacks]: plain }, "dt");

    expect(said).toBe(
      `65 SCHEMA_MISMATCH\nplanning: column \`dt\` is missing in in/${lacks}, but ${type} in ${here}\n${hint}`,
    );
  });

  test("a column that has another type in one shard ends the run with 65", async () => {
    const text = "SELECT 1::BIGINT AS id, 'x' AS x";

    expect(await refusalOver(scratch.path, { "a.parquet": text, "b.parquet": plain }, "x")).toBe(
      `65 SCHEMA_MISMATCH\nplanning: column \`x\` is utf8 in in/a.parquet, but float64 in in/b.parquet\n${hint}`,
    );
  });

  test("a column that no shard has ends the run with 64", async () => {
    expect(await refusalOver(scratch.path, { "k=1/a.parquet": plain, "b.parquet": plain }, "dt")).toMatch(
      /^64 CONTRACT\n.*output\.columns names column `dt`, which is not there\n/,
    );
  });
});
