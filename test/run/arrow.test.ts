import { mkdir, readFile, writeFile } from "node:fs/promises";
import { join } from "node:path";
import { describe, expect, test } from "vitest";
import { fixtureAsArrow, writeArrow } from "../support/arrow.js";
import { projectFolder } from "../support/cli.js";
import { identity, refusalOf, smallJob } from "../support/faulty.js";
import { differences, goldenRows } from "../support/golden.js";
import { fixtures, scratch, writeSpec } from "../support/job.js";
import { faultsOfFinished, outputRows, without } from "../support/output.js";
import { query, type Row, readRows, writeRows } from "../support/parquet.js";
import { leaveUnfinished, runSpec, scoreHere } from "../support/score.js";
import { fixtureNamed } from "../support/world.js";
import { firstOf } from "../support/torture.js";

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
