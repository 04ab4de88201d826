import { mkdir, readdir, writeFile } from "node:fs/promises";
import { join } from "node:path";
import { describe, expect, test } from "vitest";
import { shiftedBy } from "../support/challenger.js";
import { type CliResult, expectEnd, projectFolder, runHere } from "../support/cli.js";
import { identity, smallJob } from "../support/faulty.js";
import { scratch, writeSpec } from "../support/job.js";
import { lastJson, nightlyJob, type Nights } from "../support/nights.js";
import { outputRows } from "../support/output.js";
import { writeRows } from "../support/parquet.js";
import { usePostgres } from "../support/postgres.js";
import { useCredentials } from "../support/s3-output.js";
import { useS3 } from "../support/s3.js";
import { inspectParquet } from "#src/formats/parquet/inspect.js";
import { scoreHere } from "../support/score.js";
import { fixtureNamed } from "../support/world.js";

const table = join(projectFolder, "fixtures/data/diabetes/*.parquet");
const predicted = join(projectFolder, "fixtures/golden/diabetes-mlp.parquet");

/** Writes 40 rows of the fixture with what Python's ONNX Runtime predicts for them. `score`: SQL over `score` and `id`. */
async function writeGolden(folder: string, score = "score", options = "COMPRESSION snappy"): Promise<void> {
  const select = `SELECT t.*, (${score})::FLOAT AS score
    FROM read_parquet('${table}') t JOIN (SELECT id AS golden_id, score FROM '${predicted}') ON golden_id = t.id
    WHERE t.id < 40 ORDER BY t.id`;
  await writeRows(join(folder, "golden.parquet"), select, options);
}

const golden = { path: "golden.parquet", atol: 1e-4, rtol: 1e-4 };

async function goldenNights(folder: string, overrides: object = {}): Promise<Nights> {
  return await nightlyJob(folder, { checks: { golden }, ...overrides });
}

/** A row filter that fails on row 200. */
const spoilt = { input: { where: "case when id < 200 then true else cast(concat('x', id) as integer) > 0 end" } };

const run = async (nights: Nights, ...args: string[]): Promise<CliResult> =>
  await nights.night("run", "2026-11-20", "--json", ...args);

const filesOf = async (nights: Nights): Promise<string[]> =>
  await readdir(nights.folder("2026-11-20"), { recursive: true }).catch(() => []);

const warning =
  /WARN: first run with \S*model\.onnx \(sha256 [0-9a-f]{12}…\), and without known predictions: its predictions are compared (with nothing|with earlier runs only),/;

test("plan scores the golden rows, too: a difference ends it with 65, as it would end the run; validate says that it does not", async () => {
  const nights = await goldenNights(scratch.path);
  for (const [score, expected] of [
    ["score + 1", 65],
    ["score", 0],
  ] as const) {
    await writeGolden(scratch.path, score);
    const { code, stderr, stdout: plan } = await nights.night("plan", "2026-11-20");
    expect(code, stderr).toBe(expected);
    const line = "golden rows, before any other; if one differs, the attempt ends with exit code 65";
    expect(plan.includes(`a failed check holds the run\nchecks   ${line}\n`)).toBe(code === 0);
    const { stdout } = await nights.night("validate", "2026-11-20");
    expect(stdout).toMatch(/^untried {2}the golden rows of \S*golden\.parquet; infer-batch plan scores them$/m);
    expect(await filesOf(nights)).toEqual([]);
  }
});

test("the golden rows of each date of a backfill are those of its own date", async () => {
  const nights = await nightlyJob(scratch.path, { checks: { golden: { ...golden, path: "${ds}/golden.parquet" } } });
  for (const [date, score] of [
    ["2026-11-20", "score"],
    ["2026-11-21", "score + 1"],
  ] as const) {
    await mkdir(join(scratch.path, date));
    await writeGolden(join(scratch.path, date), score);
  }
  const ended = await expectEnd(
    runHere(["backfill", nights.spec, "--param", "ds=2026-11-20..2026-11-21", "--json"]),
    65,
  );
  expect(lastJson(ended)).toMatchObject({ complete: 1, values_failed: ["2026-11-21"] });
  expect(ended.stderr).toMatch(/2026-11-21\/golden\.parquet: 40 of 40 rows differ/);
});

describe("a run without golden rows", () => {
  test("the first run of each model warns what its predictions are compared with, and later runs with that model do not", async () => {
    const model = join(scratch.path, "model.onnx");
    const nights = await nightlyJob(scratch.path, { model: { path: "model.onnx" } }, "cancer-logistic");
    const warned: unknown[] = [];
    for (const [date, shift] of [
      ["2026-11-20", 0.01],
      ["2026-11-21", 0.01],
      ["2026-11-22", 0.02],
      ["2026-11-23", 0.02],
      ["2026-11-24", 0.01],
    ] as const) {
      await writeFile(model, await shiftedBy(shift));
      const { stderr } = await expectEnd(nights.night("run", date), 0);
      warned.push(warning.exec(stderr)?.[1]);
    }
    expect(warned).toEqual(["with nothing", undefined, "with earlier runs only", undefined, undefined]);
  });

  test("a job without checks, or whose runs have no date, does not warn that it has no golden rows", async () => {
    const nights = await nightlyJob(scratch.path, { checks: undefined });
    expect((await nights.night("run", "2026-11-20")).stderr).not.toContain("golden");
    await nights.rewrite({ checks: {}, params: {}, output: { parquet: { path: "undated" } } });
    const undated = await runHere(["run", nights.spec]);
    expect([undated.code, undated.stderr]).toEqual([0, expect.not.stringContaining("golden")]);
  });
});

test("a run with golden rows is published if the predictions equal those of another program, and does not count golden rows", async () => {
  await writeGolden(scratch.path);
  const done = await expectEnd(run(await goldenNights(scratch.path)), 0);
  expect(lastJson(done)).toMatchObject({ status: "complete", rows_scored: 442, rows_rejected: 0 });
  expect(done.stderr).toContain("the predictions of 40 rows of");
  expect(done.stderr).not.toMatch(warning);
});

test("a run with golden rows ends with exit code 65 before anything is planned when a prediction differs, and says what is wrong", async () => {
  await writeGolden(scratch.path, "CASE WHEN id IN (7, 9) THEN score + 1 ELSE score END");
  const nights = await goldenNights(scratch.path);
  await expectEnd(
    run(nights),
    65,
    /golden\.parquet: 2 of 40 rows differ; row 7: `score` is [\d.]+, expected [\d.]+; scored by model .*diabetes-mlp\.onnx \(sha256 [0-9a-f]{64}\) on cpu/,
    "the model, its preprocessing or the provider is wrong",
  );
  expect((await filesOf(nights)).filter((name) => /plan|part|SUCCESS/.test(name))).toEqual([]);

  await writeGolden(scratch.path); // the run was never planned: a mended file is no change
  await expectEnd(run(nights), 0);
});

test("a run with golden rows is refused when the file says that another model made it", async () => {
  await writeGolden(scratch.path, "score", `KV_METADATA {'infer_batch.model_sha256': '${"ab".repeat(32)}'}`);
  await expectEnd(run(await goldenNights(scratch.path)), 65, `sha256 ${"ab".repeat(32)}`);
});

test("a planned run with other golden rows is refused with exit code 66, and --new-run accepts them", async () => {
  await writeGolden(scratch.path);
  const nights = await goldenNights(scratch.path, spoilt);
  await expectEnd(run(nights), 65); // planned, and not finished
  await writeGolden(scratch.path, "score", "COMPRESSION zstd");
  await expectEnd(run(nights), 66, "golden.parquet");
  await nights.rewrite({ ...spoilt, checks: {} });
  await expectEnd(run(nights), 66, "checks.golden.path is null, planned");
  await nights.rewrite({ ...spoilt, on_bad_row: "reject", checks: { golden, rejects: "100%" } });
  const next = await run(nights, "--new-run");
  expect([next.code, lastJson(next)["run_id"]]).toEqual([0, expect.stringMatching(/-r2$/)]);
  expect((await outputRows(nights.folder("2026-11-20"))).length).toBe(200);
});

test("a run with golden rows checks them again when it is resumed, with the current tolerance", async () => {
  await writeGolden(scratch.path, "score + 0.5");
  const nights = await goldenNights(scratch.path, { ...spoilt, checks: { golden: { ...golden, atol: 1 } } });
  await expectEnd(run(nights), 65);
  await nights.rewrite({ ...spoilt, checks: { golden } });
  await expectEnd(run(nights), 65, "40 of 40 rows differ");
});

test.each([
  ["SELECT 1::FLOAT AS x", 65, "it has no column `score`"],
  ["SELECT 1::DOUBLE AS x, 1::FLOAT AS score", 65, "column `x` is float64, but float32 in the input"],
  ["SELECT 1::FLOAT AS x, 'a' AS score", 65, "column `score` is utf8, but the prediction is float32"],
  ["SELECT 1::FLOAT AS x, 1::FLOAT AS score LIMIT 0", 65, "the file has no rows"],
  ["SELECT NULL::FLOAT AS x, 1::FLOAT AS score", 65, "row 0 cannot be scored: null (`x` is NULL)"],
  ["SELECT 2::FLOAT AS x, 2::FLOAT AS score", 65, "input.where leaves out 1 row"],
])("a run with golden rows refuses golden rows that cannot be compared: %s", async (select, code, message) => {
  await writeRows(join(scratch.path, "golden.parquet"), select);
  const job = await smallJob(scratch.path, {
    model: identity,
    select: "SELECT i AS id, i::FLOAT AS x FROM range(5) t(i)",
    input: { where: "x <> 2 or x is null" },
    output: { columns: ["id"] },
    checks: { golden: { path: "golden.parquet" } },
  });
  await expectEnd(runHere(["run", job.spec]), code, message);
});

test("a golden row that is rejected for NaN passes if the file has NaN, and the next row is numbered right", async () => {
  const job = await smallJob(scratch.path, {
    model: { ...identity, nodes: [{ op: "Log", from: ["x"], to: "score" }] },
    select: "SELECT i AS id, 1::FLOAT AS x FROM range(5) t(i)",
    output: { columns: ["id"] },
    checks: { golden: { path: "golden.parquet" } },
  });
  await writeRows(
    join(scratch.path, "golden.parquet"),
    "SELECT x::FLOAT AS x, score::FLOAT AS score FROM (VALUES (1, '0'), (0, '-inf'), (-1, 'nan'), (1, '7')) t(x, score)",
  );
  await expectEnd(runHere(["run", job.spec]), 65, "1 of 4 rows differ; row 3: `score` is 0, expected 7");
});

test.each([
  ["a computed column", "in", { columns: { x: "y * 2" } }, "SELECT 1 AS id, 4::DOUBLE AS y", "3::DOUBLE AS y, 6"],
  [
    "a folder name",
    "in/x=8",
    { partitions: { x: "float64" }, path: "in/*/*.parquet" },
    "SELECT 1 AS id",
    "6::DOUBLE AS x, 6",
  ],
])("a run with golden rows reads %s from a column of the file", async (_name, folder, input, select, row) => {
  const job = await smallJob(scratch.path, {
    model: identity,
    select,
    input,
    output: { columns: ["id"] },
    checks: { golden: { path: "golden.parquet" } },
  });
  await mkdir(join(scratch.path, folder), { recursive: true });
  await writeRows(join(scratch.path, folder, "a.parquet"), select);
  await writeRows(join(scratch.path, "golden.parquet"), `SELECT ${row}::FLOAT AS score`);
  await expectEnd(runHere(["run", job.spec]), 0);
  await writeRows(join(scratch.path, "golden.parquet"), `SELECT ${row} + 1::FLOAT AS score`);
  await expectEnd(runHere(["run", job.spec, "--new-run"]), 65, "`score` is 6, expected 7");
});

test("a run with golden rows is checked by each worker", async () => {
  await writeGolden(scratch.path);
  const nights = await goldenNights(scratch.path);
  for (const worker of ["0/2", "1/2"]) {
    await expectEnd(run(nights, "--worker", worker), 0, "the predictions of 40 rows of");
  }
});

test("the file of golden rows that is missing is an error of the spec, with its place", async () => {
  const nights = await goldenNights(scratch.path);
  await expectEnd(
    run(nights),
    64,
    /job\.yaml:\d+:\d+: checks\.golden\.path: .*there is no file golden\.parquet/,
    "docs/own-checks.md says how to make the file",
  );
  await expectEnd(nights.night("validate", "2026-11-20"), 64, "there is no file golden.parquet");
});

const postgres = usePostgres();
postgres.describe("a run into Postgres with golden rows", () => {
  test("a run into Postgres writes nothing if the prediction of a golden row differs", async () => {
    await using database = await postgres.server().createDatabase();
    const { url } = database;
    const to = { output: { parquet: undefined, postgres: { url, table: "scores.predictions", mode: "append" } } };
    await writeGolden(scratch.path, "score + 1");
    const nights = await goldenNights(scratch.path, to);
    await expectEnd(run(nights), 65);
    expect(await database.query("SELECT FROM information_schema.tables WHERE table_schema = 'scores'")).toEqual([]);
    await writeGolden(scratch.path);
    await expectEnd(run(nights), 0);
    expect((await database.query("SELECT FROM scores.predictions")).length).toBe(442);
  });
});

const s3 = useS3();
s3.describe("golden rows in S3", () => {
  test("golden rows in S3 are read for an input on disk", async () => {
    const bucket = await s3.server().createBucket();
    useCredentials();
    await writeGolden(scratch.path, "CASE WHEN id = 7 THEN score + 1 ELSE score END");
    await bucket.putFile("golden.parquet", join(scratch.path, "golden.parquet"));
    const nights = await goldenNights(scratch.path, {
      input: { endpoint: `http://127.0.0.1:${s3.server().port}`, spool: { path: "spool" } },
      checks: { golden: { ...golden, path: `s3://${bucket.name}/golden.parquet` } },
    });
    await expectEnd(run(nights), 65, "1 of 40 rows differ; row 7");
  });
});

test("a run whose model was published by an approval does not warn that it is the first run with this model", async () => {
  const nights = await nightlyJob(scratch.path, { checks: { sql: { no_rows: "count(*) = 0" } } });
  const found: unknown[] = [];
  for (const date of ["2026-11-20", "2026-11-21"]) {
    const { code, stderr } = await nights.night("run", date);
    found.push([code, stderr.includes("first run with")]);
    await expectEnd(nights.night("approve", date), 0);
  }
  expect(found).toEqual([
    [67, true],
    [67, false],
  ]);
});

test("status of a run whose golden rows differ, of which nothing is stored, names the command that says why", async () => {
  const nights = await nightlyJob(scratch.path, { checks: { golden: { path: "golden.parquet" } } });
  const goldenTable = join(projectFolder, "fixtures/data/diabetes/*.parquet");
  const select = `SELECT *, 1e6::FLOAT AS score FROM read_parquet('${goldenTable}') WHERE id < 40`;
  await writeRows(join(scratch.path, "golden.parquet"), select, "COMPRESSION snappy");
  await expectEnd(nights.night("run", "2026-11-20"), 65);
  const { stdout } = await nights.night("status", "2026-11-20");
  const [, command = ""] =
    /: not planned yet; .*; to score it, or see why an attempt failed before it was planned:\n {2}infer-batch (.*)\n$/.exec(
      stdout,
    ) ?? [];
  await expectEnd(runHere(command.split(" ")), 65, "40 of 40 rows differ");
  expect(lastJson(await nights.night("status", "2026-11-20", "--json"))).toMatchObject({
    status: "not_planned",
    commands: [`infer-batch ${command}`],
  });
});

const featureNames = Array.from({ length: 10 }, (_, index) => `f${index}`);
const features = featureNames.map((name) => `(row / 10)::DOUBLE AS ${name}`).join(", ");
/** POINT (1 2), as WKB. */
const point = "0101000000000000000000f03f0000000000000040";

test.each([
  { version: "1.0.0", column: { encoding: "WKB", geometry_types: ["Point"] } },
  // As written before version 1: DuckDB's own reading of it refuses the file.
  { version: "0.1.0", column: { encoding: "WKB", geometry_type: "Point" } },
])("a column of geometries of GeoParquet $version is carried as the bytes in the file", async ({ version, column }) => {
  await mkdir(join(scratch.path, "in"));
  const geo = JSON.stringify({ version, primary_column: "place", columns: { place: column } });
  await writeRows(
    join(scratch.path, "in/a.parquet"),
    `SELECT row, from_hex('${point}') AS place, ${features} FROM range(5) AS t(row)`,
    `KV_METADATA {geo: '${geo}'}`,
  );
  const spec = await writeSpec(scratch.path, fixtureNamed("diabetes-mlp"), {
    input: { path: "in/*.parquet" },
    model: { inputs: { features: featureNames } },
    output: { columns: ["row", "place"] },
  });

  expect(await scoreHere(spec)).toMatchObject({ status: "complete", rowsScored: 5 });

  const places = (await outputRows(join(scratch.path, "out"))).map(({ place }) => String(place));
  expect(new Set(places)).toEqual(
    new Set([String.raw`\x01\x01\x00\x00\x00\x00\x00\x00\x00\x00\x00\xF0?\x00\x00\x00\x00\x00\x00\x00@`]),
  );
});

test("a column of geometries is named without the JSON of its coordinate system", async () => {
  const path = join(scratch.path, "a.parquet");
  const crs = JSON.stringify({ type: "ProjectedCRS", name: "it's far", id: { authority: "A", code: 1 } });
  const type = `GEOMETRY('${crs.replaceAll("'", "''")}')`;
  await writeRows(
    path,
    `SELECT 'POINT (1 2)'::${type} AS g, {'in': 'POINT (1 2)'::${type}} AS s`,
    "GEOPARQUET_VERSION V2",
  );

  const { columns } = await inspectParquet(path);

  expect(columns.map((column) => column.type)).toEqual(["GEOMETRY", 'STRUCT("in" GEOMETRY)']);
});
