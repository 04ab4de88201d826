import { mkdir, readdir, readFile, stat, writeFile } from "node:fs/promises";
import { join } from "node:path";
import { describe, expect, test } from "vitest";
import * as arrow from "apache-arrow";
import { inspectArrow } from "#src/formats/arrow/inspect.js";
import { fixtureAsArrow, writeArrow } from "../support/arrow.js";
import { expectEnd, projectFolder } from "../support/cli.js";
import { identity, refusalOf, smallJob } from "../support/faulty.js";
import { differences, goldenRows } from "../support/golden.js";
import { fixtures, scratch, scratchFolder, writeSpec } from "../support/job.js";
import { faultsOfFinished, outputRows, without } from "../support/output.js";
import { query, readRows, type Row, writeRows } from "../support/parquet.js";
import { runInS3, upload } from "../support/s3-job.js";
import { useS3 } from "../support/s3.js";
import { leaveUnfinished, runSpec, scoreHere } from "../support/score.js";
import { tcpProxy } from "../support/tcp-proxy.js";
import { firstOf } from "../support/torture.js";
import { fixtureNamed } from "../support/world.js";

const written = join(projectFolder, "fixtures/arrow");

/** Carries columns of a file as they are; `computed` sends the rows through DuckDB on their way. */
async function carryAll(
  folder: string,
  file: string,
  { columns, computed = false }: { columns: string[]; computed?: boolean },
): Promise<Row[]> {
  const { spec, out } = await smallJob(folder, {
    model: identity,
    select: "SELECT 1",
    input: { path: file, ...(computed ? { columns: { id2: "id * 2" } } : {}) },
    modelSpec: { inputs: { x: [computed ? "id2" : "id"] } },
    output: { columns, parquet: { path: "out" } },
    commit_rows: 13,
  });
  await scoreHere(spec);
  return without("score", await outputRows(out));
}

/** Rows as text that tells -0 from 0. */
function text(rows: readonly object[]): string[] {
  return rows.map((row) => JSON.stringify(row, shown));
}

function shown(_: string, value: unknown): unknown {
  return typeof value === "bigint" || Object.is(value, -0)
    ? `${Object.is(value, -0) ? "-" : ""}${String(value)}n`
    : value;
}

test.each([
  { name: "plain.arrow", computed: false },
  { name: "plain.arrow", computed: true },
  { name: "lz4.arrow", computed: false },
  { name: "zstd.arrow", computed: false },
  { name: "plain.arrows", computed: false },
  { name: "zstd.arrows", computed: false },
])(
  "every Arrow type of pyarrow is carried like the Parquet type, from $name, through DuckDB: $computed",
  async ({ name, computed }) => {
    const described = await query(`DESCRIBE SELECT * FROM '${join(written, "types.parquet")}'`);
    const columns = described.map((row) => String(row["column_name"]));

    const rows = await carryAll(scratch.path, join(written, name), { columns, computed });

    expect(columns).toHaveLength(54);
    expect(text(rows)).toEqual(text(await readRows(join(written, "types.parquet"))));
  },
);

describe("what Python predicted is predicted from Arrow", () => {
  test.each(
    fixtures
      .filter(({ name }) =>
        [
          "cancer-logistic",
          "penguins-pipeline",
          "penguins-lightgbm",
          "embedding-mlp",
          "digits-lightgbm",
          "sentences-mean",
        ].includes(name),
      )
      .flatMap((fixture, index) =>
        (["file", "stream"] as const).map((kind) => ({ fixture, kind, name: fixture.name, index })),
      )
      .filter(({ kind, index }) => kind === "file" || index === 3),
  )("$name from a $kind, in spans that end anywhere", async ({ fixture, kind }) => {
    await mkdir(join(scratch.path, "in"));
    await fixtureAsArrow(join(scratch.path, "in"), fixture.table, kind);
    const spec = await writeSpec(scratch.path, fixture, { input: { path: "in/*" }, commit_rows: 111 });

    await scoreHere(spec);

    const out = join(scratch.path, "out");
    expect(differences(await outputRows(out), await goldenRows(fixture))).toEqual([]);
    expect(await faultsOfFinished(out, fixture.rows)).toEqual([]);
  });

  test.each(firstOf(["file", "stream"] as const))(
    "an interrupted run over Arrow gives Python's predictions, from a %s",
    async (kind) => {
      const fixture = fixtureNamed("cancer-logistic");
      await mkdir(join(scratch.path, "in"));
      await fixtureAsArrow(join(scratch.path, "in"), fixture.table, kind);
      const spec = await writeSpec(scratch.path, fixture, { input: { path: "in/*" }, commit_rows: 29 });
      const out = join(scratch.path, "out");
      await leaveUnfinished(spec, out, (span) => span % 3 === 1);

      const report = await scoreHere(spec);

      expect(report).toMatchObject({ status: "complete", spansPlanned: 20, spansResumed: 7 });
      expect(differences(await outputRows(out), await goldenRows(fixture))).toEqual([]);
    },
  );

  test("the command gives Python's predictions from Arrow and Parquet shards of one job", async () => {
    const fixture = fixtureNamed("cancer-logistic");
    await mkdir(join(scratch.path, "in"));
    await fixtureAsArrow(join(scratch.path, "in"), fixture.table, "stream");
    const other = "part-00001.parquet";
    await writeFile(
      join(scratch.path, "in", other),
      await readFile(join(projectFolder, "fixtures/data/cancer", other)),
    );
    const input = { path: ["in/part-00000.arrows", `in/${other}`, "in/part-00002.arrows"], verify: "full" };

    const { code, stderr } = await runSpec(await writeSpec(scratch.path, fixture, { input }));

    expect({ code, stderr }).toMatchObject({ code: 0 });
    expect(differences(await outputRows(join(scratch.path, "out")), await goldenRows(fixture))).toEqual([]);
  });
});

test.each(firstOf(["stream", "file"] as const))(
  "a batch of 20 MB, more than is read at once, is scored in parts and resumed in its middle, from a %s",
  async (kind) => {
    const select =
      "SELECT i::BIGINT AS id, CASE WHEN i % 5 <> 1 THEN repeat(md5(i::VARCHAR), 32) END AS note, i / 8 AS x FROM range(25000) t(i)";
    const name = kind === "file" ? "a.arrow" : "a.arrows";
    const job = await smallJob(scratch.path, {
      model: identity,
      select: "SELECT 1",
      input: { path: `in/${name}` },
      output: { columns: ["id", "note"], parquet: { path: "out" } },
      commit_rows: 3333,
    });
    await writeArrow(join(scratch.path, "in", name), select, { kind, batchRows: 25_000 });
    await leaveUnfinished(job.spec, job.out, (span) => span % 2 === 0);

    await scoreHere(job.spec);

    const sum = "count(*)::INTEGER AS rows, bit_xor(hash(id, note, score))::VARCHAR AS hash";
    expect(await query(`SELECT ${sum} FROM '${job.out}/*.parquet'`)).toEqual(
      await query(`SELECT ${sum} FROM (SELECT id, note, x::FLOAT AS score FROM (${select}))`),
    );
  },
);

describe("dictionaries", () => {
  test.each([
    ["deltas.arrows", ["a", "b", "a", "a", "b", "c", "c", "a", "b", "c", "d", null]],
    ["deltas.arrow", ["a", "b", "a", "a", "b", "c", "c", "a", "b", "c", "d", null]],
    ["replaced.arrows", ["x", "y", "z", null, "z", "y", "x", "w"]],
  ])("%s has the words of each batch", async (name, words) => {
    const rows = await carryAll(scratch.path, join(written, name), { columns: ["id", "word"] });

    expect(rows.map(({ word }) => word)).toEqual(words);
  });
});

describe("what Arrow before 0.15 wrote", () => {
  test.each(["older.arrow", "older.arrows"])("%s is read", async (name) => {
    const rows = await carryAll(scratch.path, join(written, name), { columns: ["id", "x", "word"] });

    const words = ["a", "bc", "", "d\u00e9f"];
    const expected = Array.from({ length: 60 }, (_, row) =>
      row % 7 === 3
        ? { id: BigInt(row), x: null, word: null }
        : { id: BigInt(row), x: row / 8, word: words[row % words.length] },
    );
    expect(rows).toEqual(expected);
  });
});

const numbers = (rows: number): string =>
  `SELECT i::BIGINT AS id, CASE WHEN i % 97 = 5 THEN NULL ELSE i / 8 END::DOUBLE AS x FROM range(${rows}) t(i)`;

describe("expressions, bad rows and folders mean what they mean over Parquet", () => {
  test.each(["arrow", "arrows"])(
    "expressions, bad rows and folders work over an Arrow shard as over Parquet: .%s",
    async (end) => {
      const shared = {
        input: { where: "id % 3 <> 0 or dt = '2026-01-02'", columns: { twice: "x * 2" }, partitions: { dt: "date" } },
        output: { columns: ["id", "dt", "twice"], parquet: { path: "out" } },
        on_bad_row: "reject",
        max_rejects: "50%",
        commit_rows: 70,
      };
      const job = await smallJob(scratch.path, { model: identity, select: "SELECT 1", ...shared });
      const score = async (format: string): Promise<unknown> => {
        const path = `${format}/*/*.${format}`;
        await job.rewrite({
          ...shared,
          name: format,
          input: { ...shared.input, path },
          output: { ...shared.output, parquet: { path: `out-${format}` } },
        });
        const { rowsRejected, rowsFiltered } = await scoreHere(job.spec);
        return { rows: await outputRows(join(scratch.path, `out-${format}`)), rowsRejected, rowsFiltered };
      };
      for (const day of ["2026-01-01", "2026-01-02"]) {
        await mkdir(join(scratch.path, `parquet/dt=${day}`), { recursive: true });
        await mkdir(join(scratch.path, `${end}/dt=${day}`), { recursive: true });
        await writeRows(join(scratch.path, `parquet/dt=${day}/a.parquet`), numbers(300));
        await writeArrow(join(scratch.path, `${end}/dt=${day}/a.${end}`), numbers(300), {
          kind: end === "arrow" ? "file" : "stream",
        });
      }

      const found = await score(end);

      expect(found).toEqual(await score("parquet"));
      expect(found).toMatchObject({ rowsRejected: 7, rowsFiltered: 100 });
    },
  );

  test("columns from folder names are carried with others", async () => {
    await mkdir(join(scratch.path, "in/dt=2026-01-31/k=x'y"), { recursive: true });
    const job = await smallJob(scratch.path, {
      model: identity,
      select: "SELECT 1",
      input: { path: "in/*/*/*.arrow", partitions: { dt: "date" } },
      output: { columns: ["id", "dt", "k"], parquet: { path: "out" } },
    });
    await writeArrow(join(scratch.path, "in/dt=2026-01-31/k=x'y/a.arrow"), numbers(5).replace("x", "x"));

    await scoreHere(job.spec);

    const rows = await query(`SELECT DISTINCT dt::VARCHAR AS dt, k FROM '${job.out}/*.parquet'`);
    expect(rows).toEqual([{ dt: "2026-01-31", k: "x'y" }]);
  });

  test("a bad row of an Arrow shard is reported with its shard, number and value", async () => {
    const job = await smallJob(scratch.path, { model: identity, select: "SELECT 1", input: { path: "in/a.arrows" } });
    await writeArrow(join(scratch.path, "in/a.arrows"), numbers(300), { kind: "stream" });

    const said = await refusalOf(scoreHere(job.spec));

    expect(said).toMatch(/^65 BAD_ROW\n.*a\.arrows: row 5, column `x` is NULL/);
  });
});

describe("a shard that is not what it should be ends the run with 65 before anything is scored", () => {
  const cases: readonly (readonly [string, string, (bytes: Buffer) => Buffer, RegExp])[] = [
    [
      "a stream without its end",
      "a.arrows",
      (bytes) => bytes.subarray(0, -8),
      /the stream has no end: it stops at byte \d+/,
    ],
    ["a stream cut off in a batch", "a.arrows", (bytes) => bytes.subarray(0, -100), /the stream has no end/],
    ["a file without its end", "a.arrow", (bytes) => bytes.subarray(0, -9), /its end is missing/],
    ["an empty file", "a.arrow", () => Buffer.alloc(0), /the file is empty \(0 bytes\)/],
    ["a file without its beginning", "a.arrow", (bytes) => bytes.subarray(8), /a message before the schema/],
  ];

  test.each(cases)("%s ends the run with 65", async (_, name, damage, says) => {
    const job = await smallJob(scratch.path, { model: identity, select: "SELECT 1", input: { path: `in/${name}` } });
    const path = join(scratch.path, "in", name);
    await writeArrow(path, numbers(300), { kind: name.endsWith("s") ? "stream" : "file" });
    await writeFile(path, damage(await readFile(path)));

    const said = await refusalOf(scoreHere(job.spec));

    expect(said).toMatch(/^65 SHARD_CORRUPT\n/);
    expect(said).toMatch(says);
  });

  test("a date in milliseconds that is no day of 32 bits is not carried as another one", async () => {
    const path = join(scratch.path, "in/a.arrow");
    for (const days of [2n ** 31n - 2n, 2n ** 31n - 1n, 3_000_000_000n]) {
      const day = arrow.makeVector({
        type: new arrow.DateMillisecond(),
        data: new BigInt64Array([days * 86_400_000n]),
      });
      const id = arrow.vectorFromArray([1n], new arrow.Int64());
      const output = { columns: ["day"], parquet: { path: `out${days}` } };
      const job = await smallJob(scratch.path, { model: identity, select: "SELECT 1", input: { path }, output });
      await writeFile(path, arrow.tableToIPC(new arrow.Table({ id, day }), "file"));
      const ended = scoreHere(job.spec);
      await (days < 2n ** 31n - 1n ? ended : expect(refusalOf(ended)).resolves.toMatch(/^65 SHARD_CORRUPT\n.*no day/));
    }
  });

  test("an Arrow stream may have any name if input.format is arrow", async () => {
    const job = await smallJob(scratch.path, {
      model: identity,
      select: "SELECT 1",
      input: { path: "in/a.arrow", format: "arrow", where: "x is not null" },
    });
    await writeArrow(join(scratch.path, "in/a.arrow"), numbers(300), { kind: "stream" });

    expect(await scoreHere(job.spec)).toMatchObject({ status: "complete", rowsScored: 296 });
  });
});

const jobOver = async (folder: string, input = {}): ReturnType<typeof smallJob> =>
  await smallJob(folder, {
    model: identity,
    select: "SELECT 1",
    input: { path: "in/*.arrow", ...input },
    output: { columns: ["id", "note"], parquet: { path: "out" } },
  });

const nulls = "SELECT i::BIGINT AS id, i / 8 AS x, NULL AS note FROM range(5) t(i)";
const typed = "SELECT i::BIGINT AS id, i / 8 AS x, 'n' || i AS note FROM range(5, 10) t(i)";

test.each(["a", "z"])(
  "a column that has NULLs only in a shard has the type of the other shards, in any order (%s)",
  async (name) => {
    const job = await jobOver(scratch.path);
    await writeArrow(join(scratch.path, "in/b.arrow"), typed);
    await writeArrow(join(scratch.path, `in/${name}.arrow`), nulls, { nulls: ["note"] });

    await scoreHere(job.spec);

    const rows = await query(`SELECT id::INTEGER AS id, note FROM '${job.out}/*.parquet' ORDER BY id`);
    expect(rows.map(({ note }) => note)).toEqual([null, null, null, null, null, "n5", "n6", "n7", "n8", "n9"]);
  },
);

test("a column that has NULLs only in a shard is refused if an expression depends on its type", async () => {
  const job = await jobOver(scratch.path, { where: "note <> 'n7'" });
  await writeArrow(join(scratch.path, "in/b.arrow"), typed);
  await writeArrow(join(scratch.path, "in/c.arrow"), nulls, { nulls: ["note"] });

  expect(await refusalOf(scoreHere(job.spec))).toMatch(
    /^65 SCHEMA_MISMATCH\nplanning: column `note` is null in .*c\.arrow, but utf8 in .*b\.arrow/,
  );
});

test("a column that has only NULLs is refused if no shard has a type for it", async () => {
  const job = await jobOver(scratch.path);
  await writeArrow(join(scratch.path, "in/c.arrow"), nulls, { nulls: ["note"] });

  expect(await refusalOf(scoreHere(job.spec))).toMatch(
    /^64 CONTRACT\n.*`note`, which has NULLs only, and a type in no shard/,
  );
});

test("expressions take it as a text that is NULL if no shard has a type for it", async () => {
  const job = await jobOver(scratch.path);
  const columns = { note: "coalesce(none::DOUBLE, id)", kind: "coalesce(none, 'none')" };
  await writeArrow(join(scratch.path, "in/c.arrow"), nulls.replace("note", "none"), { nulls: ["none"] });
  await job.rewrite({
    input: { path: "in/*.arrow", columns },
    output: { columns: ["id", "note", "kind"], parquet: { path: "out" } },
  });

  await scoreHere(job.spec);

  const rows = await query(`SELECT DISTINCT note = id AS same, kind FROM '${job.out}/*.parquet'`);
  expect(rows).toEqual([{ same: true, kind: "none" }]);
});

describe("every type that polars and DuckDB export is carried with its values", () => {
  test.each([
    { name: "polars.arrows", least: 38 },
    { name: "polars.arrow", least: 38 },
    { name: "duckdb.arrows", least: 50 },
    { name: "duckdb-views.arrows", least: 50 },
    { name: "duckdb-large.arrows", least: 50 },
  ])("$name", async ({ name, least }) => {
    const due = join(written, "types.parquet");
    const types = new Map(
      (await query(`DESCRIBE SELECT * FROM '${due}'`)).map((row) => [
        String(row["column_name"]),
        String(row["column_type"]),
      ]),
    );
    const inFile = (await inspectArrow(join(written, name))).columns.map((column) => column.name);
    const columns = inFile.filter((column) => types.has(column));
    const { spec, out } = await smallJob(scratch.path, {
      model: identity,
      select: "SELECT 1",
      input: { path: join(written, name) },
      modelSpec: { inputs: { x: ["id"] } },
      output: { columns, parquet: { path: "out" } },
    });

    await scoreHere(spec);

    // Hashes tell -0 from 0, and a difference by its row and column.
    const hashes = columns.map((column) => `hash(("${column}"::${types.get(column) ?? ""})::VARCHAR) AS "${column}"`);
    const rows = (files: string): ReturnType<typeof query> => query(`SELECT ${hashes.join(", ")} FROM '${files}'`);
    expect(await rows(`${out}/*.parquet`)).toEqual(await rows(due));
    expect(columns.length).toBeGreaterThanOrEqual(least);
  });
});

test.each(["file", "stream"] as const)(
  "booleans that are all NULL, of which Arrow's JavaScript library writes no values, are carried and bound from a %s",
  async (kind) => {
    const { spec, out } = await smallJob(scratch.path, {
      model: identity,
      select: "SELECT 1",
      input: { path: "in/b.arrow", format: "arrow" },
      modelSpec: { inputs: { x: ["x"] } },
      output: { columns: ["id", "flag", "flags"], parquet: { path: "out" } },
    });
    const select = `SELECT i AS id, i::FLOAT AS x, CASE WHEN i >= 20 THEN i % 2 = 0 END AS flag,
      CASE WHEN i < 10 THEN [NULL::BOOLEAN] ELSE [i % 3 = 0] END AS flags FROM range(30) t(i)`;
    await writeArrow(join(scratch.path, "in/b.arrow"), select, { kind, batchRows: 10 });

    await scoreHere(spec);

    expect(await query(`SELECT id, flag, flags FROM '${out}/*.parquet'`)).toEqual(
      await query(`SELECT id, flag, flags FROM (${select})`),
    );
  },
);

const s3 = useS3();
const port = (): number => s3.server().port;

s3.describe("Arrow shards in S3", () => {
  test.each([
    ["file", "penguins-pipeline"],
    ["stream", "sentences-mean"],
  ] as const)("Arrow shards in S3 are scored as Python did, from a %s (%s)", async (kind, name) => {
    await using folder = await scratchFolder();
    const bucket = await s3.server().createBucket();
    const fixture = fixtureNamed(name);
    await mkdir(join(folder.path, "in"));
    await fixtureAsArrow(join(folder.path, "in"), fixture.table, kind);
    await upload(bucket, join(folder.path, "in"), "lake/");
    const spool = join(folder.path, "spool");
    const input = { path: `s3://${bucket.name}/lake/*`, spool: { path: spool }, verify: "full" };

    await expectEnd(
      runInS3(["run", await writeSpec(folder.path, fixture, { input, commit_rows: 29 })], { port: port() }),
      0,
    );
    expect(differences(await outputRows(join(folder.path, "out")), await goldenRows(fixture))).toEqual([]);
    expect(await readdir(spool)).toEqual([]);
  });

  test.each(["plain.arrow", "zstd.arrows"])(
    "Arrow shards in S3 have every type, dictionaries among them (%s)",
    async (name) => {
      const bucket = await s3.server().createBucket();
      await bucket.putFile(`in/${name}`, join(projectFolder, "fixtures/arrow", name));
      const types = join(projectFolder, "fixtures/arrow/types.parquet");
      const columns = (await query(`DESCRIBE SELECT * FROM '${types}'`)).map((row) => String(row["column_name"]));
      const job = await smallJob(scratch.path, {
        model: identity,
        select: "SELECT 1",
        input: { path: `s3://${bucket.name}/in/*`, spool: { path: "spool" }, where: "id >= 0" },
        modelSpec: { inputs: { x: ["id"] } },
        output: { columns, parquet: { path: "out" } },
      });

      await expectEnd(runInS3(["run", job.spec], { port: port() }), 0);
      const rows = without("score", await outputRows(job.out));
      expect(rows).toEqual(await readRows(types));
    },
  );

  test("Arrow shards in S3 are fetched by needed column, and a row that cannot be scored is named", async () => {
    await using proxy = await tcpProxy(port());
    const bucket = await s3.server().createBucket();
    const job = await smallJob(scratch.path, { model: identity, select: "SELECT 1" });
    const columns = Array.from({ length: 32 }, (_, index) =>
      index === 7 ? "CASE WHEN i <> 19999 THEN i / 8 END::DOUBLE AS f7" : `hash(i + ${index})::DOUBLE AS f${index}`,
    );
    const path = join(scratch.path, "a.arrow");
    const select = `SELECT i::BIGINT AS id, ${columns.join(", ")} FROM range(20000) t(i)`;
    await writeArrow(path, select, { batchRows: 5000 });
    await bucket.putFile("in/a.arrow", path);
    await job.rewrite({
      input: { path: `s3://${bucket.name}/in/*.arrow`, spool: { path: "spool" } },
      model: { inputs: { x: ["f7"] } },
      output: { columns: ["id", "f20"] },
      on_bad_row: "reject",
    });

    const result = await expectEnd(runInS3(["run", job.spec, "--json"], { port: proxy.port }), 0);
    expect(JSON.parse(result.stdout)).toMatchObject({ rows_scored: 19_999, rows_rejected: 1 });
    const needed = (await stat(path)).size * (3 / 33);
    // The row that was rejected is read once more, in its batch.
    expect(proxy.bytesFromServer).toBeLessThan(needed * 1.5 + 128 * 1024);
    expect(proxy.bytesFromServer).toBeGreaterThan(needed * 0.8);
  });
});
