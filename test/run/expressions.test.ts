import { mkdir } from "node:fs/promises";
import { dirname, join } from "node:path";
import { describe, expect, test } from "vitest";
import { expectKept, textRows } from "../support/expressions.js";
import { identity, smallJob } from "../support/faulty.js";
import { goldenRows } from "../support/golden.js";
import { scratch, scratchFolder, writeSpec } from "../support/job.js";
import { type Row, writeRows } from "../support/parquet.js";
import { scoreHere } from "../support/score.js";
import { fixtureNamed } from "../support/world.js";
import { firstOf } from "../support/torture.js";

interface Filter {
  readonly where: string;
  readonly keeps: (row: Row) => boolean;
}

const idOf = ({ id }: Row): bigint => BigInt(String(id));
const someThirds: Filter = { where: "id % 3 = 0", keeps: (row) => idOf(row) % 3n === 0n };
/** About one in ten, in no pattern. */
const few: Filter = {
  where: "((id % 1000003) * 7919 + 104729) % 10007 % 10 = 3",
  keeps: (row) => (((idOf(row) % 1000003n) * 7919n + 104729n) % 10007n) % 10n === 3n,
};
const filters: readonly (Filter & { readonly what: string })[] = [
  { what: "nothing", where: "false", keeps: () => false },
  { what: "nothing, since it is NULL", where: "NULL::BOOLEAN", keeps: () => false },
  { what: "everything", where: "id IS NOT NULL", keeps: () => true },
  { what: "one row", where: "id = 91", keeps: (row) => idOf(row) === 91n },
  { what: "the first row", where: "id < 2", keeps: (row) => idOf(row) < 2n },
  { what: "the last row", where: "id > 177", keeps: (row) => idOf(row) > 177n },
  { what: "every third", ...someThirds },
  {
    what: "no NULLs of it",
    where: "CASE WHEN id % 2 = 1 THEN id > 50 END",
    keeps: (row) => idOf(row) % 2n === 1n && idOf(row) > 50n,
  },
  { what: "what a param says", where: "id % ${n}::INTEGER = 0", keeps: (row) => idOf(row) % 5n === 0n },
];

async function keptOf(name: string, { keeps }: Filter): Promise<{ rows: Row[]; planned: number }> {
  const golden = await goldenRows(fixtureNamed(name));
  return { rows: golden.filter(keeps), planned: golden.length };
}

test.each(filters)(
  "a row filter that keeps $what does not change the predictions of the rows that stay",
  async (filter) => {
    const settings = {
      input: { where: filter.where },
      params: { n: "5" },
      commit_rows: 40,
      engine: { batch_size: 16 },
    };
    const spec = await writeSpec(scratch.path, fixtureNamed("wine-forest"), settings);
    const { rows, planned } = await keptOf("wine-forest", filter);

    expect(await scoreHere(spec)).toMatchObject({
      status: "complete",
      rowsPlanned: planned,
      rowsScored: rows.length,
      rowsFiltered: planned - rows.length,
    });

    await expectKept(join(scratch.path, "out"), { rows, planned });
    expect(await scoreHere(spec)).toMatchObject({ status: "already_complete" });
  },
);

const shapes = [
  { table: "wine-forest", commit: 7, batch: 1 },
  { table: "digits-lightgbm", commit: "auto", batch: 7 },
  { table: "diabetes-mlp-batch32", commit: 13, batch: "auto" },
  { table: "wine-forest", commit: 1, batch: 7 },
  { table: "digits-lightgbm", commit: 500, batch: 7 },
  { table: "digits-lightgbm", commit: "auto", batch: 4096 },
  { table: "diabetes-mlp-batch32", commit: "auto", batch: "auto" },
];

test.each(firstOf(shapes, 3))(
  "a row filter does not change the predictions of $table in spans of $commit and batches of $batch",
  async ({ table, commit, batch }) => {
    for (const filter of commit === 1 ? [few] : [someThirds, few]) {
      await using folder = await scratchFolder();
      const settings = {
        input: { where: filter.where },
        commit_rows: commit,
        engine: { batch_size: batch, threads: 2 },
      };
      const spec = await writeSpec(folder.path, fixtureNamed(table), settings);

      await scoreHere(spec);

      await expectKept(join(folder.path, "out"), await keptOf(table, filter));
    }
  },
);

test.each([
  // Twice and a half of it is exact.
  ["cancer-logistic", { mean_radius: "mean_radius * 2 / 2", mean_area: "-(-mean_area)" }, {}],
  [
    "penguins-pipeline",
    { sex: "trim(' ' || sex)", year: "(year::VARCHAR)::BIGINT", body_mass_g: "body_mass_g::DOUBLE" },
    {},
  ],
  ["embedding-mlp", { embedding: "list_transform(embedding, lambda v: v * 1)" }, {}],
  [
    "penguins-lightgbm",
    // NULL stays NULL, which this model takes.
    { bill: "bill_length_mm", flipper: "flipper_length_mm + 0" },
    { inputs: { input: ["bill", "bill_depth_mm", "flipper", "body_mass_g"] }, missing: "nan" },
  ],
])("a computed column is a feature like those of the file of %s: %j", async (table, columns, model) => {
  const spec = await writeSpec(scratch.path, fixtureNamed(table), { input: { columns }, model });

  await scoreHere(spec);

  const rows = await goldenRows(fixtureNamed(table));
  await expectKept(join(scratch.path, "out"), { rows, planned: rows.length });
});

test("a computed column is a feature with the values that JavaScript computes, for the rows that stay", async () => {
  const select = "SELECT row AS id, row / 8 AS a, (row % 7)::INTEGER AS b FROM range(5000) AS t(row)";
  const input = { columns: { x: "sqrt(a) + b * 3 - CASE WHEN b > 3 THEN 100 ELSE 0 END" }, where: "b <> 2" };
  const { spec, out } = await smallJob(scratch.path, { model: identity, select, input, commit_rows: 1700 });

  await scoreHere(spec);

  const rows = Array.from({ length: 5000 }, (_, id) => ({ id, a: id / 8, b: id % 7 }))
    .filter(({ b }) => b !== 2)
    .map(({ id, a, b }) => ({ id: BigInt(id), score: Math.fround(Math.sqrt(a) + b * 3 - (b > 3 ? 100 : 0)) }));
  await expectKept(out, { rows, planned: 5000 });
});

test("a computed column replaces a column of the shard as a feature, while expressions and the filter use the shard's", async () => {
  const select = "SELECT row AS id, row::DOUBLE AS x, row::DOUBLE AS y FROM range(10) AS t(row)";
  const input = { columns: { x: "100 - x", Y: "x + y" }, where: "x >= 7" };
  const output = { columns: ["id", "Y"], parquet: { path: "out" } };
  const { spec, out } = await smallJob(scratch.path, { model: identity, select, input, output });

  await scoreHere(spec);

  expect(await textRows(out)).toEqual([
    { id: "7", Y: "14.0", score: "93.0" },
    { id: "8", Y: "16.0", score: "92.0" },
    { id: "9", Y: "18.0", score: "91.0" },
  ]);
});

describe("computed columns are carried with type and value", () => {
  const select = `SELECT row AS id, row::FLOAT AS x, CASE WHEN row = 1 THEN NULL ELSE 'text ' || row END AS t,
    TIMESTAMPTZ '2026-03-28 22:30:00+00' + INTERVAL (row) HOUR AS moment, TIMESTAMP '2026-03-28 22:30:00' AS local,
    {'age': 30 + row, 'name': {'last': 'n' || row}} AS user FROM range(3) AS t(row)`;

  /** Carries these expressions; the rows as texts. */
  async function carry(
    columns: Readonly<Record<string, string>>,
    names: readonly string[],
    timezone = "UTC",
  ): Promise<Row[]> {
    await using folder = await scratchFolder();
    const { spec, out } = await smallJob(folder.path, {
      model: identity,
      select,
      timezone,
      input: { columns },
      output: { columns: names, parquet: { path: "out" } },
    });
    await scoreHere(spec);
    return (await textRows(out)).map((row) =>
      Object.fromEntries(Object.entries(row).filter(([name]) => name !== "score")),
    );
  }

  test("texts, decimals, lists, binary, flags, NULLs", async () => {
    const columns = {
      up: "upper(t)",
      price: "(id * 1.005)::DECIMAL(20,3)",
      many: "[id, NULL, id * 2]",
      raw: "encode(t)",
      odd: "id % 2 = 1",
      uid: "'00000000-0000-0000-0000-00000000000a'::UUID",
      nothing: "NULL::VARCHAR",
    };
    expect(await carry(columns, Object.keys(columns))).toEqual([
      {
        up: "TEXT 0",
        price: "0.000",
        many: "[0, NULL, 0]",
        raw: "text 0",
        odd: "false",
        uid: "00000000-0000-0000-0000-00000000000a",
        nothing: null,
      },
      {
        up: null,
        price: "1.005",
        many: "[1, NULL, 2]",
        raw: null,
        odd: "true",
        uid: "00000000-0000-0000-0000-00000000000a",
        nothing: null,
      },
      {
        up: "TEXT 2",
        price: "2.010",
        many: "[2, NULL, 4]",
        raw: "text 2",
        odd: "false",
        uid: "00000000-0000-0000-0000-00000000000a",
        nothing: null,
      },
    ]);
  });

  test("structs, and fields of them by path", async () => {
    const columns = { made: "{'n': id * 10, 'in': {'who': user.name.last, 'list': [t]}}" };
    expect(await carry(columns, ["made.n", "made.in.who", "made.in.list", "user.age"])).toEqual([
      { made_n: "0", made_in_who: "n0", made_in_list: "[text 0]", user_age: "30" },
      { made_n: "10", made_in_who: "n1", made_in_list: "[NULL]", user_age: "31" },
      { made_n: "20", made_in_who: "n2", made_in_list: "[text 2]", user_age: "32" },
    ]);
    expect((await carry(columns, ["made"]))[1]).toEqual({ made: "{'n': 10, 'in': {'who': n1, 'list': [NULL]}}" });
  });

  // 22:30 UTC is 23:30 in Berlin; an hour later it is the next day there, and two later the day of the clock change.
  test.each([
    ["UTC", ["2026-03-28", "2026-03-28", "2026-03-29"], ["22", "23", "0"], "2026-03-28 22:30"],
    ["Europe/Berlin", ["2026-03-28", "2026-03-29", "2026-03-29"], ["23", "0", "1"], "2026-03-28 21:30"],
  ])("dates and hours in the spec's time zone: %s", async (timezone, days, hours, local) => {
    const columns = {
      day: "moment::DATE",
      hour: "extract(hour FROM moment)",
      local: "strftime((local::TIMESTAMPTZ) AT TIME ZONE 'UTC', '%Y-%m-%d %H:%M')",
    };
    const rows = await carry(columns, Object.keys(columns), timezone);
    expect(rows.map(({ day }) => day)).toEqual(days);
    expect(rows.map(({ hour }) => hour)).toEqual(hours);
    expect(new Set(rows.map((row) => row["local"]))).toEqual(new Set([local]));
  });
});

test("values of folders are seen, typed and NULL, and filter too", async () => {
  const input = {
    path: "data/**/*.parquet",
    partitions: { dt: "date", n: "int64" },
    columns: { days: "date_diff('day', dt, DATE '2026-02-01') * n", label: "coalesce(region, 'none')", x: "id::FLOAT" },
    where: "dt IS NOT NULL AND coalesce(region, '') <> 'o''brien'",
  };
  const output = { columns: ["id", "days", "label"], parquet: { path: "out" } };
  const { spec, out } = await smallJob(scratch.path, { model: identity, select: "SELECT 1", input, output });
  const folders = [
    "dt=2026-01-31/n=2/region=a%20b",
    "dt=2026-01-30/n=__HIVE_DEFAULT_PARTITION__/region=x",
    "dt=2026-01-01/n=-1/region=__HIVE_DEFAULT_PARTITION__",
    "dt=__HIVE_DEFAULT_PARTITION__/n=1/region=y",
    "dt=2026-01-31/n=3/region=o'brien",
  ];
  for (const [index, folder] of folders.entries()) {
    const file = join(scratch.path, "data", folder, "a.parquet");
    await mkdir(dirname(file), { recursive: true });
    await writeRows(file.replaceAll("'", "''"), `SELECT ${index}::BIGINT AS id`);
  }

  expect(await scoreHere(spec)).toMatchObject({ rowsScored: 3, rowsFiltered: 2 });

  expect((await textRows(out)).toSorted((a, b) => Number(a["id"]) - Number(b["id"]))).toEqual([
    { id: "0", days: "2", label: "a b", score: "0.0" },
    { id: "1", days: null, label: "x", score: "1.0" },
    { id: "2", days: "-31", label: "none", score: "2.0" },
  ]);
});
