import { mkdir } from "node:fs/promises";
import { join } from "node:path";
import { isDeepStrictEqual } from "node:util";
import { describe, expect, test } from "vitest";
import { expectEnd } from "../support/cli.js";
import { type TypeCase, typeCases } from "../support/column-types.js";
import { identity as echo, refusalOf, smallJob } from "../support/faulty.js";
import { readIndependently } from "../support/hyparquet.js";
import { scratch, scratchFolder, writeSpec } from "../support/job.js";
import { outputRows, partNames } from "../support/output.js";
import { query, readRows, type Row, writeRows } from "../support/parquet.js";
import { hasPyarrow, runPython } from "../support/pyarrow.js";
import { runSpec, scoreHere } from "../support/score.js";
import { fixtureNamed } from "../support/world.js";

const fixture = fixtureNamed("diabetes-mlp");

const featureNames = Array.from({ length: 10 }, (_, index) => `f${index}`);

const features = featureNames.map((name, index) => `((row * 7 + ${index}) % 100 / 100)::DOUBLE AS ${name}`).join(", ");

/** More than a vector, and no multiple of one. */
const rowCount = 2500;

/** Every column of the input is in the output as it was, row by row; `columns`: input expression by output column. */
async function changed(input: string, output: string, columns: Readonly<Record<string, string>>): Promise<unknown[]> {
  const found: unknown[] = [];
  const given = `read_parquet('${input}', hive_partitioning = false)`;
  const came = `read_parquet('${output}', hive_partitioning = false)`;
  for (const [name, source] of Object.entries(columns)) {
    const [row] = await query(`
      WITH given AS (SELECT row, ${source} AS v FROM ${given}), came AS (SELECT row, "${name}" AS v FROM ${came})
      SELECT (SELECT count(*) FROM given) AS given_rows, (SELECT count(*) FROM came) AS came_rows,
        (SELECT count(*) FROM (FROM given EXCEPT ALL FROM came)) AS missing,
        (SELECT count(*) FROM (FROM came EXCEPT ALL FROM given)) AS added,
        (SELECT count(*) FROM given FULL JOIN came USING (row) WHERE given.v IS DISTINCT FROM came.v
           OR given.v::VARCHAR IS DISTINCT FROM came.v::VARCHAR) AS different,
        (SELECT any_value(typeof(v)) FROM given) = (SELECT any_value(typeof(v)) FROM came) AS same_type`);
    if (row?.["given_rows"] !== row?.["came_rows"] || Number(row?.["given_rows"]) === 0) {
      found.push([name, "rows", row]);
    } else if (row?.["missing"] !== 0n || row["added"] !== 0n || row["different"] !== 0n || row["same_type"] !== true) {
      found.push([name, row]);
    }
  }
  return found;
}

/** A job over `<folder>/in/*.parquet` that predicts from f0 to f9. */
async function jobOver(folder: string, columns: readonly string[], model: object = {}): Promise<string> {
  return await writeSpec(folder, fixture, {
    input: { path: "in/*.parquet" },
    model: { inputs: { features: featureNames }, ...model },
    output: { columns: ["row", ...columns] },
    commit_rows: 700,
  });
}

/** Values of a type in turn, a NULL every seventh row. */
function columnSql({ values, inParquet = values, sql }: TypeCase, name: string): string {
  const cases = inParquet.map((value, index) => `WHEN row % ${inParquet.length} = ${index} THEN ${value}`);
  return `(CASE WHEN row % 7 = 3 THEN NULL ${cases.join(" ")} END)::${sql} AS "${name}"`;
}

/** Dates as numbers: those that Date cannot hold would not equal themselves. */
const column = (rows: readonly Row[], name: string): unknown[] =>
  rows.map(({ [name]: value }) => (value instanceof Date ? value.getTime() : value));

test("carried columns of every type keep their values over shards, row groups and spans", async () => {
  await mkdir(join(scratch.path, "in"));
  const names = typeCases.map((_, index) => `c${index}`);
  const columns = typeCases.map((given, index) => columnSql(given, `c${index}`)).join(", ");
  for (const [index, name] of ["a", "b"].entries()) {
    const rows = `range(${index * rowCount}, ${(index + 1) * rowCount}) AS t(row)`;
    // In a dictionary DuckDB keeps one of equal values only: b has 0 and -0, a month and 30 days.
    const options = `COMPRESSION zstd, ROW_GROUP_SIZE 2048${name === "b" ? ", DICTIONARY_SIZE_LIMIT 0" : ""}`;
    await writeRows(
      join(scratch.path, `in/${name}.parquet`),
      `SELECT row, ${columns}, ${features} FROM ${rows}`,
      options,
    );
  }

  const report = await scoreHere(await jobOver(scratch.path, names));

  expect(report).toMatchObject({ status: "complete", rowsScored: 2 * rowCount });
  const expected = Object.fromEntries(["row", ...names].map((name) => [name, name]));
  const [input, output] = [join(scratch.path, "in/*.parquet"), join(scratch.path, "out/*.parquet")];
  const different = await changed(input, output, expected);
  expect(
    different.map((found) => [typeCases[Number(/\d+/.exec(String((found as string[])[0]))?.[0])]?.name, found]),
  ).toEqual([]);
  const shards = ["a", "b"].map((name) => join(scratch.path, `in/${name}.parquet`));
  const parts = (await partNames(join(scratch.path, "out"))).map((name) => join(scratch.path, "out", name));
  // That reader has no intervals.
  const readable = names.filter((_, index) => !typeCases[index]?.sql.startsWith("INTERVAL"));
  const [given, came] = [await readIndependently(shards, readable), await readIndependently(parts, readable)];
  expect(readable.filter((name) => !isDeepStrictEqual(column(came, name), column(given, name)))).toEqual([]);
});

/** `user` is a struct; `shard` too, with a field called like another column; `tags` is a map. */
const nested = `
  {'age': (row % 90)::SMALLINT, 'home': {'city': CASE WHEN row % 3 = 0 THEN NULL ELSE 'city ' || row END}, 'ratio': row / 3} AS user,
  {'f0': row / 7, 'row': 'not the row'} AS shard,
  MAP {'a': row} AS tags`;

async function nestedShard(folder: string): Promise<string> {
  await mkdir(join(folder, "in"));
  const path = join(folder, "in/a.parquet");
  await writeRows(path, `SELECT row, ${nested}, ${features} FROM range(${rowCount}) AS t(row)`);
  return path;
}

test("fields of struct columns are carried under their path with _ for dots, together with the whole struct", async () => {
  const shard = await nestedShard(scratch.path);

  await scoreHere(await jobOver(scratch.path, ["user.age", "user.home.city", "user"]));

  const output = join(scratch.path, "out/*.parquet");
  const expected = { user_age: "user.age", user_home_city: "user.home.city", user: "user" };
  expect(await changed(shard, output, expected)).toEqual([]);
  expect(Object.keys((await readRows(output))[0] ?? {})).toEqual(["row", ...Object.keys(expected), "score"]);
});

test("fields of a struct column do not collide with other columns, for any name of the struct", async () => {
  const shard = await nestedShard(scratch.path);

  await scoreHere(await jobOver(scratch.path, ["shard.row", "shard.f0", "shard"]));

  const expected = { shard_row: "(shard).row", shard_f0: "(shard).f0", shard: "shard" };
  expect(await changed(shard, join(scratch.path, "out/*.parquet"), expected)).toEqual([]);
});

test("fields of struct columns are features: the same predictions as from columns of their own", async () => {
  await nestedShard(scratch.path);
  const [, ...others] = featureNames;

  await scoreHere(await jobOver(scratch.path, ["user"], { inputs: { features: ["user.ratio", ...others] } }));

  await using flat = await scratchFolder();
  await mkdir(join(flat.path, "in"));
  const select = `SELECT row, user.ratio AS ratio, * EXCLUDE (row, tags) FROM '${join(scratch.path, "in/a.parquet")}'`;
  await writeRows(join(flat.path, "in/a.parquet"), select);
  await scoreHere(await jobOver(flat.path, ["user"], { inputs: { features: ["ratio", ...others] } }));
  const [mine, theirs] = await Promise.all([scratch, flat].map(({ path }) => readRows(join(path, "out/*.parquet"))));
  expect(mine).toEqual(theirs);
  expect(new Set(mine?.map(({ score }) => score)).size).toBeGreaterThan(100);
});

test("fields of struct columns that are NULL are named by their path", async () => {
  await mkdir(join(scratch.path, "in"));
  const select = `SELECT row, CASE WHEN row <> 1234 THEN {'a': {'x': 1}} END AS s, ${features} FROM range(${rowCount}) AS t(row)`;
  await writeRows(join(scratch.path, "in/a.parquet"), select);

  await expectEnd(
    runSpec(await jobOver(scratch.path, [], { inputs: { features: ["s.a.x", ...featureNames.slice(1)] } })),
    65,
    "in/a.parquet: row 1234, column `s.a.x` is NULL\n",
  );
});

test("an unused map column does not stop a run", async () => {
  await nestedShard(scratch.path);
  expect(await scoreHere(await jobOver(scratch.path, []))).toMatchObject({ status: "complete", rowsScored: rowCount });
});

test.each([
  ["carried", ["tags"], featureNames],
  ["a feature", [], ["tags", ...featureNames.slice(1)]],
])("a map column is refused by name when it is %s", async (_what, columns, inputs) => {
  await nestedShard(scratch.path);

  await expectEnd(
    runSpec(await jobOver(scratch.path, columns, { inputs: { features: inputs } })),
    64,
    /(output\.columns|model\.inputs\.features) names `tags`, whose type MAP\(VARCHAR, BIGINT\) is not supported\n/,
  );
  expect(await partNames(join(scratch.path, "out"))).toEqual([]);
});

const writeWithPyarrow = `
import sys, datetime as dt, decimal
import pyarrow as pa, pyarrow.parquet as pq
utc = dt.timezone.utc
D = decimal.Decimal
when = [dt.datetime(2026, 11, 21, 12, 34, 56, 789012), dt.datetime(1969, 12, 31, 23, 59, 59)]
ns = [1, -1, 2**62 + 7]
columns = {
  "i8": (pa.int8(), [-128, 127]), "i16": (pa.int16(), [-2**15, 2**15 - 1]),
  "i32": (pa.int32(), [-2**31, 2**31 - 1]), "i64": (pa.int64(), [-2**63, 2**63 - 1]),
  "u8": (pa.uint8(), [0, 255]), "u16": (pa.uint16(), [0, 2**16 - 1]),
  "u32": (pa.uint32(), [0, 2**32 - 1]), "u64": (pa.uint64(), [0, 2**64 - 1]),
  "f16": (pa.float16(), [0.5, -65504.0, 6e-8]), "f32": (pa.float32(), [-0.0, 1e-45]), "f64": (pa.float64(), [5e-324, -0.0]),
  "flag": (pa.bool_(), [True, False]),
  "text": (pa.string(), ["", "twelve bytes", "thirteen byte", "日本" * 5000]), "large_text": (pa.large_string(), ["x", "ü" * 40]),
  "category": (pa.dictionary(pa.int8(), pa.string()), ["red", "a category of more than twelve bytes"]),
  "raw": (pa.binary(), [b"", b"\\x00\\xff" * 20]), "fixed_raw": (pa.binary(3), [b"abc", b"\\x00\\x00\\x01"]),
  "d5": (pa.decimal128(5, 2), [D("-999.99"), D("0.01")]), "d18": (pa.decimal128(18, 0), [D(10**18 - 1), D(-1)]),
  "d38": (pa.decimal128(38, 10), [D("-" + "9" * 28 + "." + "9" * 10), D("1e-10")]),
  "day": (pa.date32(), [dt.date(1, 1, 1), dt.date(9999, 12, 31)]), "day64": (pa.date64(), [dt.date(2026, 1, 31), dt.date(1969, 1, 1)]),
  "time_ms": (pa.time32("ms"), [dt.time(23, 59, 59, 999000), dt.time(0)]), "time_us": (pa.time64("us"), [dt.time(23, 59, 59, 999999), dt.time(0)]),
  "time_ns": (pa.time64("ns"), [86399999999999, 1]),
  "at_s": (pa.timestamp("s"), [0, -1]), "at_ms": (pa.timestamp("ms"), [1, -1]), "at_us": (pa.timestamp("us"), when), "at_ns": (pa.timestamp("ns"), ns),
  "at_utc": (pa.timestamp("us", tz="UTC"), [w.replace(tzinfo=utc) for w in when]),
  "at_berlin": (pa.timestamp("us", tz="Europe/Berlin"), [w.replace(tzinfo=utc) for w in when]),
  "numbers": (pa.list_(pa.float32()), [[], [1.5, None], [float(i) for i in range(50)]]),
  "large_list": (pa.large_list(pa.int64()), [[2**62], []]), "pairs": (pa.list_(pa.int16(), 2), [[1, 2], [3, None]]),
  "texts": (pa.list_(pa.string()), [["a", None, "long " * 9], []]), "lists": (pa.list_(pa.list_(pa.string())), [[["a"], None, []], []]),
  "person": (pa.struct([("name", pa.string()), ("2", pa.int32()), ("1", pa.list_(pa.date32()))]),
     [{"name": "Ö", "2": 2, "1": [dt.date(2026, 1, 1), None]}, {"name": None, "2": None, "1": None}]),
  "people": (pa.list_(pa.struct([("a", pa.int8()), ("b", pa.struct([("c", pa.string())]))])),
     [[{"a": 1, "b": {"c": "x" * 30}}, None], [], [{"a": None, "b": None}]]),
}
rows = ${rowCount}
table = {"row": pa.array(range(rows), pa.int64())}
for name, (type, values) in columns.items():
  table[name] = pa.array([None if row % 7 == 3 else values[row % len(values)] for row in range(rows)], type)
for f in range(10):
  table[f"f{f}"] = pa.array([(row * 7 + f) % 100 / 100 for row in range(rows)], pa.float64())
pq.write_table(pa.table(table), sys.argv[1], row_group_size=999, version=sys.argv[2], data_page_version=sys.argv[3], compression=sys.argv[4])
print(" ".join(columns))
`;

/** Values as Python sees them; what pyarrow cannot tell apart as objects is compared as the integers below. */
const compareWithPyarrow = `
import sys, glob, pyarrow as pa, pyarrow.parquet as pq, pyarrow.compute as pc
def plain(column):
  if pa.types.is_dictionary(column.type): column = column.cast(column.type.value_type)
  if pa.types.is_timestamp(column.type) or pa.types.is_time64(column.type):
    unit = 1000 if column.type.unit == "us" else 1_000_000 if column.type.unit == "ms" else 1
    return [None if v is None else v * unit for v in column.cast(pa.int64()).to_pylist()]
  if pa.types.is_time32(column.type):
    return [None if v is None else v * 1_000_000 for v in column.cast(pa.int32()).to_pylist()]
  if pa.types.is_date64(column.type): column = column.cast(pa.date32())
  return [repr(v) for v in column.to_pylist()]
given = pq.read_table(sys.argv[1])
came = pa.concat_tables([pq.read_table(path) for path in sorted(glob.glob(sys.argv[2] + "/*.parquet"))])
print(" ".join(name for name in came.column_names if name != "score" and plain(given[name]) != plain(came[name])))
`;

describe.skipIf(!hasPyarrow)("a shard that pyarrow wrote", () => {
  test.each([
    ["2.6", "1.0", "snappy"],
    ["2.6", "2.0", "zstd"],
  ])("a shard that pyarrow wrote is carried as it is: format %s, pages %s, %s", async (version, pages, compression) => {
    await mkdir(join(scratch.path, "in"));
    const shard = join(scratch.path, "in/a.parquet");
    const names = runPython(writeWithPyarrow, shard, version, pages, compression).trim().split(" ");

    await scoreHere(await jobOver(scratch.path, names));

    const expected = Object.fromEntries(["row", ...names].map((name) => [name, name]));
    expect(await changed(shard, join(scratch.path, "out/*.parquet"), expected)).toEqual([]);
    expect(runPython(compareWithPyarrow, shard, join(scratch.path, "out")).trim()).toBe("");
  });
});

const tensors = ["float16", "float32", "float64", "int8", "int16", "int32", "int64"];
const unsigned = ["uint8", "uint16", "uint32", "uint64", "bool", "string"];
const identity = { ...fixture, name: "types-identity", model: "types-identity.onnx" };
const sources: Readonly<Record<string, string>> = {
  float16: "(row - 1024)::FLOAT / 64",
  float32: "(row / 7)::FLOAT",
  float64: "1 / (row + 3)::DOUBLE",
  int8: "(row % 256 - 128)::TINYINT",
  int16: "(row * 26 - 32768)::SMALLINT",
  int32: "(row - 2147483648)::INTEGER",
  int64: "(9223372036854775807 - row)::BIGINT",
  uint8: "(row % 256)::UTINYINT",
  uint16: "(65535 - row)::USMALLINT",
  uint32: "(4294967295 - row)::UINTEGER",
  uint64: "(18446744073709551615 - row)::UBIGINT",
  bool: "row % 3 = 0",
  string:
    "CASE row % 4 WHEN 0 THEN '' WHEN 1 THEN 'tëxt ' || row WHEN 2 THEN repeat('長い', row % 90) ELSE chr(65279) || 'x' END",
};
const all = [...tensors, ...unsigned];

test.each([1, 64, 4096])(
  "a model with an input and an output of every type gives each value back, in batches of %i",
  async (batch) => {
    await mkdir(join(scratch.path, "in"));
    const shard = join(scratch.path, "in/a.parquet");
    const columns = all.map((dtype) => `${sources[dtype]} AS in_${dtype}`);
    await writeRows(shard, `SELECT row, ${columns.join(", ")} FROM range(${batch === 1 ? 300 : rowCount}) AS t(row)`);
    const spec = await writeSpec(scratch.path, identity, {
      input: { path: "in/*.parquet" },
      model: { outputs: Object.fromEntries(all.map((dtype) => [`out_${dtype}`, `out_${dtype}`])) },
      engine: { batch_size: batch },
      output: { columns: ["row"] },
      commit_rows: 700,
    });

    await scoreHere(spec);

    const expected = Object.fromEntries(all.map((dtype) => [`out_${dtype}`, `in_${dtype}`]));
    expect(await changed(shard, join(scratch.path, "out/*.parquet"), expected)).toEqual([]);
  },
);

const select =
  "SELECT 1::BIGINT AS id, {'a': 1.5::FLOAT, 'm': MAP {'k': 1}, 'in': {'b': 2::INTEGER, 'm': MAP {1: 2}}} AS s";

test("a struct with a map in it gives the fields that can be read", async () => {
  const job = await smallJob(scratch.path, {
    model: echo,
    select,
    modelSpec: { inputs: { x: ["s.a"] } },
    output: { columns: ["id", "s.in.b"] },
  });

  await scoreHere(job.spec);

  expect(await outputRows(job.out)).toEqual([{ id: 1n, s_in_b: 2, score: 1.5 }]);
});

test.each(["s", "s.m", "s.in", "s.in.m"])("a struct with a map in it is refused as %s", async (name) => {
  const job = await smallJob(scratch.path, {
    model: echo,
    select,
    modelSpec: { inputs: { x: ["s.a"] } },
    output: { columns: [name] },
  });

  expect(await refusalOf(scoreHere(job.spec))).toMatch(
    /output\.columns names `s[a-z.]*`, whose type .*MAP.* is not supported/,
  );
});
