import { mkdir, rename } from "node:fs/promises";
import { dirname, join } from "node:path";
import { describe, expect, test } from "vitest";
import { expectEnd, runHere } from "../support/cli.js";
import { identity, refusalOf, smallJob } from "../support/faulty.js";
import { scratch } from "../support/job.js";
import type { SmallModel } from "../support/onnx.js";
import { partNames } from "../support/output.js";
import { query, type Row, writeRows } from "../support/parquet.js";
import { reject, rejectLines } from "../support/rejects.js";
import { hasPyarrow, runPython } from "../support/pyarrow.js";
import { runSpec, scoreHere } from "../support/score.js";

interface HiveJob {
  readonly spec: string;
  readonly out: string;
}

/** Shards by path below `data/`, as a SELECT each; scored by a model that gives `x` back unless another is given. */
async function hiveJob(
  folder: string,
  shards: Readonly<Record<string, string>>,
  {
    model = identity,
    input,
    ...rest
  }: { model?: SmallModel; input?: object; modelSpec?: object; output?: object; commit_rows?: number },
): Promise<HiveJob> {
  for (const [path, select] of Object.entries(shards)) {
    const file = join(folder, "data", path);
    await mkdir(dirname(file), { recursive: true });
    await writeRows(join(folder, "shard.parquet"), select);
    await rename(join(folder, "shard.parquet"), file);
  }
  return await smallJob(folder, { model, select: "SELECT 1", input: { path: "data/**/*.parquet", ...input }, ...rest });
}

/** The rows of all parts with every value as text. */
async function textRows({ out }: HiveJob): Promise<Row[]> {
  const list = (await partNames(out)).map((name) => `'${join(out, name)}'`).join(", ");
  return await query(`SELECT COLUMNS(*)::VARCHAR FROM read_parquet([${list}], hive_partitioning = false)`);
}

async function outputTypes({ out }: HiveJob): Promise<Row[]> {
  return await query(`SELECT column_name, column_type FROM (DESCRIBE SELECT * FROM '${out}/*.parquet')`);
}

const one = (id: number): string => `SELECT ${id}::BIGINT AS id, ${id}::DOUBLE AS x`;
const carried = (...columns: string[]): { output: object } => ({ output: { columns, parquet: { path: "out" } } });

test("columns of hive folders are carried by their types, unescaped, NULL where Hive says so", async () => {
  const shards = {
    "dt=2026-01-31/region=a%20b/x.parquet": one(1),
    "dt=2026-02-28/region=100%/x.parquet": one(2),
    "dt=__HIVE_DEFAULT_PARTITION__/region=o'brien%3D%2F/x.parquet": one(3),
    "dt=2024-02-29/region=__HIVE_DEFAULT_PARTITION__/x.parquet": one(4),
    "dt=2024-02-29/region=é/x.parquet": one(5),
  };
  const settings = { input: { partitions: { dt: "date" } }, ...carried("id", "dt", "region"), commit_rows: 2 };
  const job = await hiveJob(scratch.path, shards, settings);

  await scoreHere(job.spec);

  expect((await textRows(job)).toSorted(({ id: a }, { id: b }) => Number(a) - Number(b))).toEqual([
    { id: "1", dt: "2026-01-31", region: "a b", score: "1.0" },
    { id: "2", dt: "2026-02-28", region: "100%", score: "2.0" },
    { id: "3", dt: null, region: "o'brien=/", score: "3.0" },
    { id: "4", dt: "2024-02-29", region: null, score: "4.0" },
    { id: "5", dt: "2024-02-29", region: "é", score: "5.0" },
  ]);
  expect((await outputTypes(job)).map((column) => Object.values(column))).toEqual([
    ["id", "BIGINT"],
    ["dt", "DATE"],
    ["region", "VARCHAR"],
    ["score", "FLOAT"],
  ]);
});

test("columns of hive folders have each of the types", async () => {
  const shards = {
    "i=-9223372036854775808/f=1e3/b=true/m=01/x.parquet": one(1),
    "i=9223372036854775807/f=-.5/b=FALSE/m=11/x.parquet": one(2),
  };
  const partitions = { i: "int64", f: "float64", b: "bool" };
  const job = await hiveJob(scratch.path, shards, { input: { partitions }, ...carried("i", "f", "b", "m") });

  await scoreHere(job.spec);

  expect(await textRows(job)).toEqual([
    { i: "-9223372036854775808", f: "1000.0", b: "true", m: "01", score: "1.0" },
    { i: "9223372036854775807", f: "-0.5", b: "false", m: "11", score: "2.0" },
  ]);
});

test("columns of hive folders are features when they are typed and listed", async () => {
  const mean: SmallModel = {
    ...identity,
    inputs: [{ name: "x", dtype: "float32", shape: ["N", 2] }],
    nodes: [{ op: "ReduceMean", from: ["x"], to: "score", attributes: { axes: [1], keepdims: 1 } }],
  };
  const settings = {
    model: mean,
    input: { partitions: { month: "int64" } },
    modelSpec: { inputs: { x: ["month", "x"] } },
    ...carried("id"),
  };
  const job = await hiveJob(scratch.path, { "month=9/x.parquet": one(1), "month=010/x.parquet": one(2) }, settings);

  await scoreHere(job.spec);

  expect(await textRows(job)).toEqual([
    { id: "2", score: "6.0" },
    { id: "1", score: "5.0" },
  ]);
});

test("columns of Hive folders are not features by default", async () => {
  const input = { partitions: { month: "int64", y: "float64" } };
  const renamed: SmallModel = {
    ...identity,
    inputs: [{ name: "features", dtype: "float32", shape: ["N", 1] }],
    nodes: [{ op: "Identity", from: ["features"], to: "score" }],
  };
  const job = await hiveJob(
    scratch.path,
    { "month=9/y=3/a.parquet": one(7) },
    { model: renamed, input, ...carried("id") },
  );

  await scoreHere(job.spec);

  expect(await textRows(job)).toEqual([{ id: "7", score: "7.0" }]);
});

test("folder values give way to a column of that name in the file", async () => {
  const shards = { "region=folder/DT=latest/a.parquet": `${one(1)}, 'file' AS region, DATE '2026-01-31' AS dt` };
  const settings = { input: { partitions: { DT: "date" } }, ...carried("region", "dt") };
  const job = await hiveJob(scratch.path, shards, settings);

  await scoreHere(job.spec);

  expect(await textRows(job)).toEqual([{ region: "file", dt: "2026-01-31", score: "1.0" }]);
});

describe("folders that do not fit are refused with 65, naming them", () => {
  test.each([
    { type: "date", value: "2026-02-30" },
    { type: "date", value: "20260131" },
    { type: "int64", value: "9223372036854775808" },
    { type: "int64", value: "1.5" },
    { type: "float64", value: "one" },
    { type: "bool", value: "yes" },
  ])("$value is no $type", async ({ type, value }) => {
    const settings = { input: { partitions: { k: type } }, ...carried("k") };
    const job = await hiveJob(scratch.path, { [`k=${value}/a.parquet`]: one(1) }, settings);

    expect(await refusalOf(scoreHere(job.spec))).toContain(
      `65 SCHEMA_MISMATCH\nplanning: the folder k=${value} of data/k=${value}/a.parquet is not of type ${type}\n`,
    );
  });

  test("Hive folders that do not fit are refused with 65, and the command names them", async () => {
    const shards = { "dt=2026-01-31/a.parquet": one(1), "dt=latest/a.parquet": one(2) };
    const job = await hiveJob(scratch.path, shards, { input: { partitions: { dt: "date" } }, ...carried("dt") });

    await expectEnd(
      runSpec(job.spec),
      65,
      "the folder dt=latest of data/dt=latest/a.parquet is not of type date",
      "input.partitions says dt: date",
    );
  });

  test("a shard outside of the Hive folders is refused with 65 and named", async () => {
    const shards = { "dt=2026-01-31/a.parquet": one(1), "z.parquet": one(2), "dt=2026-02-01/c.parquet": one(3) };
    const job = await hiveJob(scratch.path, shards, carried("id", "dt"));

    expect(await refusalOf(scoreHere(job.spec))).toMatch(
      /^65 SCHEMA_MISMATCH\nplanning: column `dt` is missing in .*z\.parquet, but utf8, from the folder name in /,
    );
  });

  test("a shard outside of the Hive folders is read if the job does not use the column", async () => {
    const shards = { "dt=2026-01-31/a.parquet": one(1), "b.parquet": one(2), "region=x/c.parquet": one(3) };
    const job = await hiveJob(scratch.path, shards, carried("id"));

    expect(await scoreHere(job.spec)).toMatchObject({ rowsScored: 3 });
  });
});

test("rejects tell the values of their folders", async () => {
  const shards = {
    "dt=2026-01-31/a.parquet": "SELECT 1::BIGINT AS id, NULL::DOUBLE AS x",
    "dt=2026-02-01/a.parquet": one(2),
  };
  const settings = { input: { partitions: { dt: "date" } }, ...carried("dt", "id"), ...reject };
  const job = await hiveJob(scratch.path, shards, settings);

  await scoreHere(job.spec);

  expect(await textRows(job)).toEqual([{ dt: "2026-02-01", id: "2", score: "2.0" }]);
  expect(await rejectLines(job.out)).toEqual([
    {
      shard: "data/dt=2026-01-31/a.parquet",
      row: 0,
      columns: { dt: "2026-01-31", id: "1" },
      column: "x",
      reason: "null",
      value: null,
    },
  ]);
});

test("columns of Hive folders that the name of the output folder has, too, are warned of, once a run is planned", async () => {
  const output = { columns: ["id", "DT", "region"], parquet: { path: "out/dt=2026-01-31" } };
  const shards = { "DT=2026-01-31/region=EU/a.parquet": one(1) };
  const job = await hiveJob(scratch.path, shards, { output });
  const warning =
    /(?:WARN|warning): the name of the output folder, \S*out\/dt=2026-01-31, has output column `DT`, too: pandas and pyarrow/;
  for (const command of ["validate", "plan", "run"]) {
    await expectEnd(runHere([command, job.spec]), 0, warning);
  }
  expect((await runHere(["run", job.spec])).stderr).not.toContain("pyarrow");
});

test("an output folder without the date of the run, which refuses the run of the next day, is warned of on the first", async () => {
  const warning =
    /(?:WARN|warning): output\.parquet\.path, \S*out, is the same every day: [^]*as in \S*out\/dt=\$\{ds\}/;
  const daily = async (path: string): Promise<(command: string, ds: string) => ReturnType<typeof runHere>> => {
    const params = { ds: "${today}" };
    const { spec } = await smallJob(scratch.path, {
      model: identity,
      select: one(1),
      params,
      output: { parquet: { path } },
    });
    return async (command, ds) => await runHere([command, spec, "--param", `ds=${ds}`]);
  };
  const night = await daily("out");
  for (const command of ["validate", "plan", "run"]) {
    await expectEnd(night(command, "2026-01-31"), 0, warning);
  }
  await expectEnd(night("run", "2026-02-01"), 64);

  for (const path of ["days/dt=${ds}", "months/${start_of_month(ds)}"]) {
    const { code, stderr } = await (await daily(path))("plan", "2026-01-31");
    expect([code, stderr]).toEqual([0, expect.not.stringContaining("every day")]);
  }
});

test.skipIf(!hasPyarrow)(
  "columns of Hive folders in the output folders' names are what pyarrow cannot read",
  async () => {
    for (const [table, columns] of [
      ["once", ["id"]],
      ["twice", ["id", "dt"]],
    ] as const) {
      await mkdir(join(scratch.path, table));
      const output = { columns: [...columns], parquet: { path: "out/dt=2026-01-31" } };
      const { spec } = await hiveJob(join(scratch.path, table), { "dt=2026-01-31/a.parquet": one(1) }, { output });
      await scoreHere(spec);
    }
    const read = (table: string): string =>
      runPython(
        "import sys, pyarrow.parquet as pq\nprint(pq.read_table(sys.argv[1]).column_names)",
        join(scratch.path, table, "out"),
      );
    expect(read("once").trim()).toBe("['id', 'score', 'dt']");
    expect(() => read("twice")).toThrow("Unable to merge: Field dt has incompatible types");
  },
);
