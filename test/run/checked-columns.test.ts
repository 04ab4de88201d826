import { mkdir, readdir, readFile, writeFile } from "node:fs/promises";
import { join } from "node:path";
import { expect, test } from "vitest";
import type { JobSpec } from "#src/job/jobfile/job-spec.js";
import type { Contract } from "#src/models/binding/contract.js";
import { requireCheckedColumns } from "#src/run/checks.js";
import { type CliResult, expectEnd, runHere } from "../support/cli.js";
import { textRows } from "../support/expressions.js";
import { identity, smallJob } from "../support/faulty.js";
import { scratch, scratchFolder } from "../support/job.js";
import { writeModel } from "../support/onnx.js";
import { type TinyFile, tinyParquet } from "../support/parquet-bytes.js";
import { writeRows } from "../support/parquet.js";
import { usePostgres } from "../support/postgres.js";
import { scoreHere } from "../support/score.js";

const numbered = (prefix: string, count: number): string[] =>
  Array.from({ length: count }, (_, at) => `${prefix}${at}`);

const contract = {
  outputs: numbered("p", 65).map((column) => ({ column, type: "float32" })),
  passthrough: numbered("c", 129).map((column) => ({ column, source: { name: column, type: "utf8" } })),
} as unknown as Contract;

const requireLimit = (outputs: object) => (): void => {
  const spec = { checks: { outputs }, output: {} } as unknown as JobSpec;
  requireCheckedColumns({ spec, where: (path) => path.join(".") }, contract);
};

test("a limit for a column that comes after those that are profiled is refused, and says so", () => {
  expect(requireLimit({ p63: { range: [0, 1] }, c127: { nulls: 0 } })).not.toThrow();
  expect(requireLimit({ p64: { nulls: 0 } })).toThrow("`p64`, which is not one of the first 64 predicted columns");
  expect(requireLimit({ c128: { nulls: 0 } })).toThrow(
    "`c128`, which is not one of the first 128 columns from the input",
  );
});

test("values that a column of whole numbers or booleans can never have are refused, and any text is fine for texts", () => {
  const typed = { label: "utf8", class: "int64", churns: "bool" };
  const outputs = Object.entries(typed).map(([column, type]) => ({ column, type }));
  const limited =
    (column: string, ...values: string[]) =>
    (): void => {
      const spec = { checks: { outputs: { [column]: { in: values } } }, output: {} } as unknown as JobSpec;
      requireCheckedColumns({ spec, where: (path) => path.join(".") }, { ...contract, outputs } as unknown as Contract);
    };
  expect(limited("label", "1", "late")).not.toThrow();
  expect(limited("class", "1", "-2")).not.toThrow();
  expect(limited("churns", "true")).not.toThrow();
  expect(limited("class", "1", "late")).toThrow(
    "reading checks.outputs.class.in: late is no whole number, and `class` is int64",
  );
  expect(limited("churns", "yes")).toThrow("yes is no boolean, and `churns` is bool");
  expect(limited("label", "2097152")).not.toThrow();
  expect(limited("class", "2097151", "-2097151")).not.toThrow();
  for (const large of ["2097152", "-2097152"]) {
    expect(limited("class", "1", large)).toThrow(
      expect.objectContaining({
        exitCode: 64,
        message: expect.stringContaining(`reading checks.outputs.class.in: ${large} is too large`) as string,
        hint: expect.stringContaining("checks.sql") as string,
      }),
    );
  }
});

const requireKey = (name: string) => (): void => {
  const spec = { checks: { outputs: {}, unique: [name] }, output: {} } as unknown as JobSpec;
  const passthrough = ["parcel_id", "place_north", "place_south"].map((column) => ({
    column,
    source: { name: column, type: "int64" },
  }));
  requireCheckedColumns({ spec, where: (path) => path.join(".") }, { outputs: [], passthrough } as unknown as Contract);
};

test("a name that is the beginning of one column's only is taken for it", () => {
  expect(requireKey("parcel")).toThrow("there is no output column `parcel`; did you mean `parcel_id`?");
  expect(requireKey("place")).toThrow(/no output column `place`$/);
});

/** 2,000 rows of each of two countries, and ten of a third; `de`: SQL of the score of DE, from `u` between 0 and 1. */
const table = (de: string, fr: string): string =>
  `SELECT i AS id, u::VARCHAR AS name, country, CASE country WHEN 'DE' THEN ${de} WHEN 'FR' THEN ${fr} ELSE 0.5 END::FLOAT AS x
   FROM (SELECT i, ((i * 7919) % 4010) / 4010 AS u, CASE WHEN i >= 4000 THEN 'LI' WHEN i % 2 = 0 THEN 'DE' ELSE 'FR' END AS country
         FROM range(4010) t(i))`;

interface SlicesJob {
  readonly slices: readonly string[];
  readonly checks?: object;
}

async function slicedJob(folder: string, { slices, checks }: SlicesJob): ReturnType<typeof smallJob> {
  return await smallJob(folder, {
    model: identity,
    select: table("u", "1 + u"),
    params: { ds: "${today}" },
    commit_rows: 700,
    output: { columns: ["id", "country", "name"], parquet: { path: "out/dt=${ds}" } },
    checks: { slices, ...checks },
  });
}

const night = async (spec: string, date: string, ...args: string[]): Promise<CliResult> =>
  await runHere(["run", spec, "--param", `ds=${date}`, ...args]);

async function profileText(folder: string, date: string): Promise<string> {
  const runs = join(folder, `out/dt=${date}/_infer-batch`);
  const run = (await readdir(runs)).find((name) => name.startsWith("small-"));
  return await readFile(join(runs, run ?? "", "profile.json"), "utf8");
}

test("a run warns if the predictions of one value of a column differ from earlier runs, though those of all rows do not", async () => {
  const { spec } = await slicedJob(scratch.path, { slices: ["country"] });
  await expectEnd(night(spec, "2026-11-20"), 0);
  const profile = await profileText(scratch.path, "2026-11-20");
  expect(profile).toContain('"slices":[["country=DE",[["score"');
  expect(profile).toContain('["country=FR",');
  expect(profile).not.toContain("country=LI"); // of ten rows

  await writeRows(join(scratch.path, "in/a.parquet"), table("1 + u", "u"));
  const next = await expectEnd(
    night(spec, "2026-11-21"),
    0,
    /checks: country=DE: score: .*\(2026-11-20\)/,
    /checks: country=FR: score: .*\(2026-11-20\)/,
  );
  expect(next.stderr).not.toMatch(/checks: score: /);
});

test("the slices of a run by two workers are those of a run by one", async () => {
  const { spec } = await slicedJob(scratch.path, { slices: ["country"] });
  await expectEnd(night(spec, "2026-11-20"), 0);
  await expectEnd(night(spec, "2026-11-21", "--worker", "1/2"), 0);
  await expectEnd(night(spec, "2026-11-21", "--worker", "0/2"), 0);
  const [one, two] = await Promise.all(
    ["2026-11-20", "2026-11-21"].map(async (date) => (await profileText(scratch.path, date)).replace(/^.*?"rows"/, "")),
  );
  expect(two).toBe(one);
});

test("a column of checks.slices with too many values is not checked, and the run warns of it", async () => {
  const { spec } = await slicedJob(scratch.path, { slices: ["name"] });
  await expectEnd(
    night(spec, "2026-11-20"),
    0,
    "checks.slices: `name` has more than 50 values, so its slices are not checked",
  );
  expect(await profileText(scratch.path, "2026-11-20")).not.toContain('"slices"');
});

test.each([
  [["contry"], "there is no column `contry` in output.columns; did you mean `country`?"],
  [["score"], "there is no column `score` in output.columns"],
  [["x"], "there is no column `x` in output.columns"],
])("a column of checks.slices that cannot divide rows is an error of the spec: %s", async (slices, message) => {
  const { spec } = await slicedJob(scratch.path, { slices });
  await expectEnd(night(spec, "2026-11-20"), 64, message, /job\.yaml:\d+:\d+: checks\.slices/);
});

interface UniqueJob {
  /** Rows of the input, as a SELECT of id, k and x. */
  readonly select: string;
  readonly checks: object;
  readonly output?: object;
}

/** Scores rows in spans of three, so that keys repeat across spans. */
async function runUnique(folder: string, { select, checks, output }: UniqueJob): Promise<CliResult> {
  const { spec } = await smallJob(folder, {
    model: identity,
    select,
    commit_rows: 3,
    output: { columns: ["id", "k"], ...output },
    checks,
  });
  return await runHere(["run", spec]);
}

const rows = (ids: string): string =>
  `SELECT id, coalesce(id % 2, 0) AS k, 1::FLOAT AS x FROM (SELECT unnest([${ids}]) AS id)`;

test("a run with a key that repeats is held, and the message has keys to look for", async () => {
  await expectEnd(
    runUnique(scratch.path, { select: rows("1, 2, 3, 4, 5, 2, 3, 3"), checks: { unique: ["id"] } }),
    67,
    "id: 3 rows repeat a key, such as 2; 3",
  );
});

test("a NULL in a key holds the run, also where no key repeats", async () => {
  await expectEnd(
    runUnique(scratch.path, { select: rows("1, NULL, 3, 4, NULL"), checks: { unique: ["id", "k"] } }),
    67,
    "id, k: 2 rows have a NULL in their key",
  );
});

test("a key of several columns that is unique passes", async () => {
  const checks = { unique: ["k", "id"] };
  await expectEnd(runUnique(scratch.path, { select: rows("1, 2, 3, 4, 5"), checks }), 0);
});

test("a key that repeats only warns with on_fail: warn", async () => {
  const checks = { unique: ["k"], on_fail: "warn" };
  await expectEnd(
    runUnique(scratch.path, { select: rows("1, 2, 3, 4"), checks }),
    0,
    "checks: k: 2 rows repeat a key, such as 0; 1",
  );
});

test.each([
  [["ids"], "there is no output column `ids`; did you mean `id`?"],
  [["tags"], "`tags` is list<int32>, which cannot be part of a key"],
])("a key that cannot be checked is an error of the spec, before anything is scored: %s", async (unique, message) => {
  const select = "SELECT 1 AS id, [1] AS tags, 2 AS k, 1::FLOAT AS x";
  const output = { columns: ["id", "tags"] };
  await expectEnd(runUnique(scratch.path, { select, checks: { unique }, output }), 64, message);
});

const postgres = usePostgres();
postgres.describe("checks.unique of rows for Postgres", () => {
  test.each(["append", "replace"])("a run with a key that repeats is held: %s", async (mode) => {
    await using database = await postgres.server().createDatabase();
    const output = { parquet: undefined, postgres: { url: database.url, table: "scores", mode } };
    const checks = { unique: ["id", "k"] };
    await expectEnd(
      runUnique(scratch.path, { select: rows("1, 2, 3, 4, 5, 2, 3, NULL, NULL"), checks, output }),
      67,
      "id, k: 2 rows repeat a key, such as 2, 0; 3, 1; 2 rows have a NULL in their key",
    );
  });

  test("the rows of other runs in the table are not counted", async () => {
    await using database = await postgres.server().createDatabase();
    await database.query(
      "CREATE TABLE scores (id int, k int, score real); INSERT INTO scores VALUES (1, 1, 1), (1, 1, 1)",
    );
    const output = { parquet: undefined, postgres: { url: database.url, table: "scores", mode: "append" } };
    await expectEnd(runUnique(scratch.path, { select: rows("1, 2"), checks: { unique: ["id"] }, output }), 0);
  });

  test("checks.unique of rows for Postgres is refused in mode append with on_fail: warn, because its rows cannot be distinguished from those of other runs", async () => {
    const output = { parquet: undefined, postgres: { url: "postgres://x/y", table: "scores", mode: "append" } };
    await expectEnd(
      runUnique(scratch.path, { select: rows("1"), checks: { unique: ["id"], on_fail: "warn" }, output }),
      64,
      "checks.unique",
    );
  });
});

const columns = {
  clean: "nullif(x, 'nan'::double)",
  flag: "case when x between 0 and 100 then 1 else 0 end",
  listed: "x in (1, 'nan'::double)",
  above: "list_transform([x], lambda e: e > 50)",
  less: "{'x': x} < {'x': 50::double}",
  size: "abs(x)::float",
};

/** The rows that a job gives of files, one after the other; `kept` keeps what is not from 5 to 20. */
async function rowsOf(files: readonly TinyFile[]): Promise<unknown> {
  await using ownFolder = await scratchFolder();
  await mkdir(join(ownFolder.path, "in"));
  for (const [index, file] of files.entries()) {
    await writeFile(join(ownFolder.path, "in", `${index}.parquet`), tinyParquet(file));
  }
  await writeModel(join(ownFolder.path, "model.onnx"), {
    inputs: [{ name: "f", dtype: "float32", shape: ["n", 1] }],
    outputs: [{ name: "y", dtype: "float32", shape: ["n", 1] }],
    nodes: [{ op: "Identity", from: ["f"], to: "y" }],
  });
  const spec = join(ownFolder.path, "job.yaml");
  const job = {
    version: 1,
    name: "told",
    input: { path: "in/*.parquet", columns, where: "not (x between 5 and 20) and x <> 7" },
    model: { path: "model.onnx", inputs: { f: ["flag"] }, outputs: { y: "y" } },
    output: { columns: ["x", ...Object.keys(columns)], parquet: { path: "out" } },
  };
  await writeFile(spec, JSON.stringify(job));
  await scoreHere(spec);
  return (await textRows(join(ownFolder.path, "out"))).map((row) => Object.values(row).join(" "));
}

const row = (...values: readonly unknown[]): string => values.join(" ");
const of = (x: number, flag: number): string =>
  row(`${x}.0`, `${x}.0`, flag, x === 1, "[false]", true, `${Math.abs(x)}.0`, `${flag}.0`);
const ofNaN = row("nan", "", 0, true, "[true]", false, "nan", "0.0");

test.each([
  ["that leave NaN out", [1, 3]],
  ["that are wrong", [8, 9]],
  ["that are NaN", [Number.NaN, Number.NaN]],
  ["that are none", undefined],
] as const)("a file's statistics %s do not change a value", async (_what, bounds) => {
  const told = { values: [1, 2, Number.NaN, -3], ...(bounds === undefined ? {} : { bounds }) };
  const rowCount = [of(1, 1), of(2, 1), ofNaN, of(-3, 0)];

  expect(await rowsOf([told])).toEqual(rowCount);
  expect(await rowsOf([told, { values: [4] }])).toEqual([...rowCount, of(4, 1)]);
});
