import { join } from "node:path";
import { describe, expect, test } from "vitest";
import { identity, smallJob } from "../../../support/faulty.js";
import { scratch } from "../../../support/job.js";
import { query, writeRows } from "../../../support/parquet.js";
import { scoreHere } from "../../../support/score.js";
import { mkdir } from "node:fs/promises";
import { openDuckDb } from "#src/duckdb/instance.js";
import { countKeysIn, type OpenKeyDuckDb } from "#src/targets/parquet/sink.js";

async function carry(folder: string, columns: string): Promise<{ input: string; output: string }> {
  const output = { columns: ["id", "v"], parquet: { path: "out" } };
  const { spec, out } = await smallJob(folder, { model: identity, select: "SELECT 1", output });
  const input = join(folder, "in/a.parquet");
  const select = `SELECT row AS id, ${columns} FROM range(20) AS t(row)`;
  await writeRows(input, select, "DICTIONARY_SIZE_LIMIT 0");
  await scoreHere(spec);
  return { input, output: join(out, "*.parquet") };
}

/** The column's values as text, which tells 0 from -0, in the order of rows. */
async function texts(files: string, column: string): Promise<unknown[]> {
  const rows = await query(`SELECT ${column}::VARCHAR AS text FROM '${files}' ORDER BY id`);
  return rows.map(({ text }) => text);
}

async function encodings(files: string): Promise<unknown[]> {
  return (await query(`SELECT encodings FROM parquet_metadata('${files}')`)).map((row) => row["encodings"]);
}

describe("values that compare equal and differ", () => {
  test.each([
    { type: "FLOAT", one: "0", other: "'-0.0'" },
    { type: "DOUBLE", one: "0", other: "'-0.0'" },
    { type: "INTERVAL", one: "INTERVAL '1 month'", other: "INTERVAL '30 days'" },
    { type: "INTERVAL", one: "INTERVAL '1 day'", other: "INTERVAL '24 hours'" },
    { type: "FLOAT[]", one: "[0]", other: "['-0.0']" },
    { type: "DOUBLE[][]", one: "[[1, 0]]", other: "[['1', '-0.0']]" },
    { type: "STRUCT(a INTEGER, b DOUBLE)", one: "{'a': 1, 'b': 0}", other: "{'a': 1, 'b': '-0.0'}" },
    { type: "STRUCT(b FLOAT)[]", one: "[NULL, {'b': 0}]", other: "[NULL, {'b': '-0.0'}]" },
    { type: "INTERVAL[]", one: "[INTERVAL '1 month']", other: "[INTERVAL '30 days']" },
  ])("a part keeps values that compare equal and differ: $one and $other as $type", async ({ type, one, other }) => {
    const v = `(CASE row % 2 WHEN 0 THEN (${one})::${type} ELSE (${other})::${type} END) AS v`;

    const { input, output } = await carry(scratch.path, `${v}, 0.5 AS x`);

    const given = await texts(input, "v");
    expect(new Set(given).size).toBe(2);
    expect(await texts(output, "v")).toEqual(given);
  });

  test("a part keeps values that compare equal and differ among predictions", async () => {
    const { output } = await carry(scratch.path, "1 AS v, CASE row % 2 WHEN 0 THEN 0 ELSE '-0.0'::FLOAT END AS x");

    expect((await texts(output, "score")).slice(0, 3)).toEqual(["0.0", "-0.0", "0.0"]);
  });
});

test("a part without such values has dictionaries, which are smaller", async () => {
  const { output } = await carry(scratch.path, "{'a': row % 2 / 2, 'b': [row % 2 / 4]} AS v, row % 2 AS x");

  expect((await encodings(output)).filter((text) => String(text).includes("DICTIONARY"))).toHaveLength(3);
});

/** A DuckDB of few megabytes, with or without a folder for what does not fit. */
function smallDuckDb(folder: string, spillFolder?: string): OpenKeyDuckDb {
  return async () => {
    const memoryBytes = 24 * 1024 * 1024;
    const duckdb = await openDuckDb({ threads: 1, memoryBytes, spillFolder, allowed: { folders: [folder] } });
    return {
      connect: () => duckdb.connect(),
      [Symbol.asyncDispose]: () => {
        duckdb[Symbol.dispose]();
        return Promise.resolve();
      },
    };
  };
}

async function* groupsOf(...groups: string[][]): AsyncGenerator<string[]> {
  await Promise.resolve();
  yield* groups;
}

test("repeated keys are counted exactly over groups of parts, by all columns of the key", async () => {
  const [one, other] = [join(scratch.path, "1.staged"), join(scratch.path, "2.staged")];
  await writeRows(one, "SELECT * FROM (VALUES (1, 'a'), (1, 'b'), (NULL, 'a'), (2, NULL)) t(i, s)");
  await writeRows(other, "SELECT * FROM (VALUES (1, 'b'), (1, 'b'), (3, 'c'), (NULL, 'a')) t(i, s)");
  const counts = await countKeysIn(smallDuckDb(scratch.path), ["i", "s"], groupsOf([one], [other]));
  expect(counts).toEqual({ repeated: 2, nulls: 3, examples: ["1, b"] });
  expect(await countKeysIn(smallDuckDb(scratch.path), ["i"], groupsOf())).toMatchObject({ repeated: 0, nulls: 0 });
});

test("keys that do not fit in memory go to the spill folder, and without one the count fails", async () => {
  const part = join(scratch.path, "part.staged");
  await writeRows(part, "SELECT md5((i % 499_999)::VARCHAR) AS key FROM range(500_000) t(i)", "COMPRESSION zstd");
  const spill = join(scratch.path, "spill");
  await mkdir(spill);
  const counts = await countKeysIn(smallDuckDb(scratch.path, spill), ["key"], groupsOf([part]));
  expect(counts).toMatchObject({ repeated: 1, nulls: 0 });
  await expect(countKeysIn(smallDuckDb(scratch.path), ["key"], groupsOf([part]))).rejects.toMatchObject({
    code: "MEMORY",
    exitCode: 75,
  });
});
