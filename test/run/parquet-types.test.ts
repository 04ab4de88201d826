import { rename, writeFile } from "node:fs/promises";
import { join } from "node:path";
import { describe, expect, test } from "vitest";
import { identity, refusalOf, smallJob } from "../support/faulty.js";
import { scratch, type SpecOverrides } from "../support/job.js";
import { query, writeRows } from "../support/parquet.js";
import { makeNanosUtc, replaceBytes } from "../support/parquet-patches.js";
import { reject } from "../support/rejects.js";
import { runSpec, scoreHere } from "../support/score.js";
import { expectEnd } from "../support/cli.js";

/** A job over `in/*.parquet`, of which `in/a.parquet` has the rows of a SELECT; `x` is the feature. */
async function jobOver(
  folder: string,
  select: string,
  columns: readonly string[],
  { input = {}, ...rest }: SpecOverrides = {},
): Promise<{ spec: string }> {
  return await smallJob(folder, {
    ...(rest as object),
    input,
    model: identity,
    select,
    output: { columns, parquet: { path: "out" } },
  });
}

test.each([
  { what: "columns", other: "kol_a", renamed: "COL_A", shown: "`COL_A`" },
  { what: "fields of a struct", other: "fle_a", renamed: "FLD_A", shown: "`u.FLD_A`" },
])("a file with $what that only case tells apart is refused", async ({ other, renamed, shown }) => {
  const rows = "SELECT 1.5::DOUBLE AS x, 2 AS col_a, 3 AS kol_a, {'fld_a': 1, 'fle_a': 2} AS u";
  const { spec } = await jobOver(scratch.path, rows, ["col_a"]);
  const path = join(scratch.path, "in/a.parquet");
  await replaceBytes(path, Buffer.from(other), Buffer.from(renamed));

  const refusal = await refusalOf(scoreHere(spec));

  expect(refusal).toMatch(/^65 SCHEMA_MISMATCH\n/);
  expect(refusal).toContain(shown);
});

const sqlOf = (value: bigint | null): string =>
  // DuckDB's name for the first and the last of them.
  value === null
    ? "NULL"
    : value > 2n ** 62n
      ? "'infinity'"
      : value < -(2n ** 62n)
        ? "'-infinity'"
        : `make_timestamp_ns(${value})`;

const of = (all: readonly (bigint | null)[]): unknown[] =>
  Array.from({ length: 4000 }, (_, row) => all[row % all.length]);

describe("nanoseconds in UTC", () => {
  test("a shard with instants in UTC beside one with times of a clock on a wall is refused", async () => {
    const select = "SELECT 1::BIGINT AS id, 1.5::DOUBLE AS x, '2020-01-01'::TIMESTAMP_NS AS t";
    const { spec } = await jobOver(scratch.path, select, ["id", "t"]);
    await writeRows(join(scratch.path, "in/b.parquet"), select);
    await makeNanosUtc(join(scratch.path, "in/b.parquet"));

    expect(await refusalOf(scoreHere(spec))).toMatch(/^65 SCHEMA_MISMATCH\n[^]*`t` is .* in UTC in /);
  });

  const values = [1_700_000_000_123_456_789n, -1n, 2n ** 63n - 1n, -(2n ** 63n) + 1n, 999n, null];
  const cases = values.map((value, index) => `WHEN ${index} THEN ${sqlOf(value)}`).join(" ");
  const nanos = `(CASE i % ${values.length} ${cases} END)::TIMESTAMP_NS`;
  const select = `SELECT i AS id, i / 8 AS x, t, {'t': t, 'k': i} AS s, [t, NULL, t] AS l, [{'t': t}] AS ls
    FROM (SELECT i, ${nanos} AS t FROM range(4000) AS r(i))`;

  async function utcJob(folder: string, columns: readonly string[], overrides: SpecOverrides = {}): Promise<string> {
    const { spec } = await jobOver(folder, "SELECT 1", columns, overrides);
    const path = join(folder, "in/a.parquet");
    await writeRows(path, select, "COMPRESSION snappy, ROW_GROUP_SIZE 2048");
    await makeNanosUtc(path);
    return spec;
  }

  test.each([
    { name: "read by workers", carried: ["t"], got: ["epoch_ns(t)"] },
    {
      name: "read by DuckDB, in structs and lists",
      carried: ["s", "l", "ls"],
      got: ["epoch_ns(s.t)", "epoch_ns(l[1])", "epoch_ns(l[3])", "epoch_ns(ls[1].t)"],
    },
    { name: "a field by its path", carried: ["s.t"], got: ["epoch_ns(s_t)"] },
    { name: "beside an expression", input: { where: "id >= 0" }, carried: ["t"], got: ["epoch_ns(t)"] },
  ])("nanoseconds in UTC are carried exactly: $name", async ({ input = {}, carried, got }) => {
    await scoreHere(await utcJob(scratch.path, ["id", ...carried], { input }));

    for (const value of got) {
      const rows = await query(`SELECT ${value} AS v FROM '${scratch.path}/out/*.parquet' ORDER BY id`);
      expect(rows.map(({ v }) => v)).toEqual(of(values));
    }
  });

  test("expressions compute with nanoseconds in UTC as they are, and functions of dates and times with microseconds", async () => {
    const columns = {
      ns: "epoch_ns(t)",
      same: "t",
      us: "epoch_us(t)",
      year: 'year("t")',
      inside: "year(s.t)",
      cast: "epoch_us(T::TIMESTAMP)",
      either: "year(coalesce(t, TIMESTAMP '2000-01-01'))",
    };
    const spec = await utcJob(scratch.path, ["id", ...Object.keys(columns)], {
      input: { columns, where: "epoch_ns(t) IS NULL OR t = t" },
    });

    await scoreHere(spec);

    const rows = await query(
      `SELECT * REPLACE (epoch_ns(same) AS same) FROM '${scratch.path}/out/*.parquet' ORDER BY id`,
    );
    const column = (name: string): unknown[] => rows.map((row) => row[name]);
    expect(column("ns")).toEqual(of(values));
    expect(column("same")).toEqual(of(values));
    expect(column("us").slice(0, 2)).toEqual([1_700_000_000_123_456n, 0n]);
    expect(column("cast").slice(0, 2)).toEqual([1_700_000_000_123_456n, 0n]);
    for (const name of ["year", "inside", "either"]) {
      expect(column(name).slice(0, 2)).toEqual([2023n, 1970n]);
    }
  });

  test("small shards with nanoseconds in UTC are read exactly, and so are their bad rows", async () => {
    const spec = await utcJob(scratch.path, ["id", "t"], { ...reject, input: { columns: { x: "1 / (x * x)" } } });
    for (const name of ["b", "c"]) {
      await writeRows(join(scratch.path, `in/${name}.parquet`), `${select} LIMIT 10`);
      await makeNanosUtc(join(scratch.path, `in/${name}.parquet`));
    }

    expect(await scoreHere(spec)).toMatchObject({ rowsPlanned: 4020 });

    const rows = await query(
      `SELECT DISTINCT id % 6 AS k, epoch_ns(t) AS v FROM '${scratch.path}/out/*.parquet' ORDER BY 1`,
    );
    expect(rows.map(({ v }) => v)).toEqual(values);
  });
});

/** A file that pyarrow wrote: `id`, `x`, and `note` of type null, in two rows. */
const nullFile =
  "UEFSMRUAFSwVLCwVBBUAFQYVBhwAAAACAAAABAEBAAAAAAAAAAIAAAAAAAAAFQAVLBUsLBUEFQAVBhUGHAAAAAIAAAAEAQAAAAAAAPA/AAAAAAAAAEAVABUMFQwsFQQVABUGFQYcAAAAAgAAAAQAFQQZTDUAGAZzY2hlbWEVBgAVBCUCGAJpZAAVCiUCGAF4ABUCJQIYBG5vdGVsvAAAABYEGRwZPCYAHBUEGSUGABkYAmlkFQAWBBZSFlImCEkcFQAVABUCADwpBhkmAAQAAAAmABwVChklBgAZGAF4FQAWBBZSFlImWkkcFQAVABUCADwpBhkmAAQAAAAmABwVAhklBgAZGARub3RlFQAWBBYyFjImrAFJHBUAFQAVAgA8KQYZJgQAAAAAFtYBFgQmCBbWAQAoIHBhcnF1ZXQtY3BwLWFycm93IHZlcnNpb24gMjYuMC4xGTwcAAAcAAAcAAAA8wAAAFBBUjE=";

async function nullJob(
  folder: string,
  name: string,
  overrides: SpecOverrides = {},
  note = "'n' || i",
  columns: readonly string[] = ["id", "note"],
): Promise<string> {
  const select = `SELECT i::BIGINT AS id, i / 8 AS x, ${note} AS note FROM range(5, 8) t(i)`;
  const { spec } = await jobOver(folder, select, columns, overrides);
  await rename(join(folder, "in/a.parquet"), join(folder, "in/b.parquet"));
  await writeFile(join(folder, `in/${name}.parquet`), Buffer.from(nullFile, "base64"));
  return spec;
}

describe("a Parquet column of type null", () => {
  test.each(
    ["a", "z"].flatMap((name) => [
      { name, note: "'n' || i", found: ["n5", "n6", "n7"] },
      { name, note: "{'v': i}", found: [{ entries: { v: 5n } }, { entries: { v: 6n } }, { entries: { v: 7n } }] },
      { name, note: "uuid()", found: undefined },
    ]),
  )("it has the type of the other shards, in any order ($name, $note)", async ({ name, note, found }) => {
    await scoreHere(await nullJob(scratch.path, name, {}, note));

    const rows = await query(`SELECT note FROM '${scratch.path}/out/*.parquet' ORDER BY id`);
    expect(rows.slice(0, 2)).toEqual([{ note: null }, { note: null }]);
    expect(rows.slice(2).map(({ note: value }) => value)).toMatchObject(found ?? [{}, {}, {}]);
  });

  test("it is refused if an expression depends on its type", async () => {
    const refusal = await refusalOf(scoreHere(await nullJob(scratch.path, "c", { input: { where: "note <> 'n7'" } })));

    expect(refusal).toMatch(/^65 SCHEMA_MISMATCH\nplanning: column `note` is NULL in .*c\.parquet/);
  });

  test("it is refused if no shard has a type for it", async () => {
    const spec = await nullJob(scratch.path, "c");
    await rename(join(scratch.path, "in/b.parquet"), join(scratch.path, "b.parquet"));

    expect(await refusalOf(scoreHere(spec))).toMatch(
      /^64 CONTRACT\n.*`note`, which has NULLs only, and a type in no shard[^]*note::DOUBLE/,
    );
  });

  test("expressions take it as NULL if no shard has a type for it", async () => {
    const columns = { d: "note::DOUBLE", e: "coalesce(upper(note), 'none')" };
    const input = { columns, where: "note IS NULL OR note <> 'n7'" };
    const spec = await nullJob(scratch.path, "c", { input }, "1", ["d", "e"]);
    await rename(join(scratch.path, "in/b.parquet"), join(scratch.path, "b.parquet"));
    await writeFile(join(scratch.path, "in/d.parquet"), Buffer.from(nullFile, "base64"));

    expect(await scoreHere(spec)).toMatchObject({ rowsScored: 4 });

    const rows = await query(`SELECT DISTINCT d, typeof(d) AS type, e FROM '${scratch.path}/out/*.parquet'`);
    expect(rows).toEqual([{ d: null, type: "DOUBLE", e: "none" }]);
  });
});

describe("dates in Spark's legacy calendar", () => {
  const keys = "KV_METADATA {'org.apache.spark.legacyDateTime': '', 'org.apache.spark.timeZone': 'UTC'}";

  test.each([
    { used: "d", warned: true },
    { used: "id", warned: false },
  ])("a job that uses such a column ($used) is warned: $warned", async ({ used, warned }) => {
    const select = "SELECT 1 AS id, 1.5::DOUBLE AS x, DATE '1500-01-01' AS d";
    const { spec } = await jobOver(scratch.path, select, [used]);
    await writeRows(join(scratch.path, "in/a.parquet"), select, keys);

    const { stderr } = await expectEnd(runSpec(spec), 0);
    expect(/`d`.*org\.apache\.spark\.legacyDateTime.*org\.apache\.spark\.timeZone = UTC/.test(stderr)).toBe(warned);
  });
});
