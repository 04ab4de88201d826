import { readdir, readFile, rm, writeFile } from "node:fs/promises";
import { join } from "node:path";
import { expect, test } from "vitest";
import { outputs, shifted } from "../support/challenger.js";
import { runHere } from "../support/cli.js";
import { scratch, type SpecOverrides, writeSpec } from "../support/job.js";
import { lastJson, nightlyJob } from "../support/nights.js";
import { query } from "../support/parquet.js";
import { writePgSpec } from "../support/pg-job.js";
import { usePostgres } from "../support/postgres.js";
import { fixtureNamed } from "../support/world.js";

interface Night {
  readonly night: string;
  readonly models: readonly { readonly rows: number; readonly rows_labelled: number; readonly mae: number }[];
}

test("evaluate judges the nights of a range by a CSV file, leaves out one without a run, and says what changed", async () => {
  const job = await nightlyJob(scratch.path, { checks: undefined, input: { where: "id <> 7" } });
  const dates = [20, 21, 22, 23, 24, 26].map((day) => `2026-11-${day}`);
  for (const date of dates) {
    if (date === "2026-11-26") {
      await job.rewrite({ input: { columns: { s1: "s1 + 1" }, where: "id <> 7" } });
    }
    const { code, stderr } = await job.night("run", date, "--quiet");
    expect(code, stderr).toBe(0);
  }
  const labels = join(scratch.path, "labels.csv");
  const known = Array.from({ length: 300 }, (_, row) => `${row + 1},${100 + row},${row % 2 === 0 ? "even" : "odd"}`);
  await writeFile(labels, `id,value,parity\n${known.join("\n")}\n`);
  const evaluate = (...args: string[]) =>
    runHere(["evaluate", job.spec, "--labels", labels, "--label", "value", ...args]);
  const range = ["--param", "ds=2026-11-20..2026-11-26"];
  const found = await evaluate(...range, "--json");
  expect(found.stderr).toMatch(/^warning: 2026-11-25 is left out: run .* is not planned\n$/);
  const { nights, changed } = lastJson(found) as { nights: Night[]; changed: { night: string; figure: string }[] };
  expect(nights.map(({ night }) => night)).toEqual(dates);
  expect(nights[0]?.models).toMatchObject([{ kind: "numbers", prediction: "score", rows: 441, rows_labelled: 299 }]);
  expect(changed.map(({ night, figure }) => `${night} ${figure}`)).toEqual(
    ["mae", "rmse", "bias"].map((figure) => `2026-11-26 ${figure}`),
  );

  const [page, gauges] = [join(scratch.path, "page.html"), join(scratch.path, "labels.prom")];
  const { stdout } = await evaluate(...range, "--by", "parity", "--html", page, "--metrics", gauges);
  expect(stdout).toContain(`score judged by value in ${labels}\n`);
  expect(stdout).toMatch(/2026-11-20 +odd +150 +150 +150 +[\d.]+ +[\d.]+ +-?[\d.]+\n/);
  expect(stdout).toMatch(/2026-11-26: MAE is [\d.]+, on the nights before [\d.]+ to [\d.]+\n/);
  const written = await readFile(page, "utf8");
  expect(written).toMatch(/<tr><th>2026-11-20<\/th><td>odd<\/td><td>150<\/td><td>150<\/td>/);
  expect(written).toMatch(/<p>2026-11-26: MAE is [\d.]+, on the nights before /);
  const metrics = await readFile(gauges, "utf8");
  expect(metrics).toContain('_info{batch_job="diabetes-mlp",night="2026-11-26"} 1\n');
  const champion = 'infer_batch_evaluation{batch_job="diabetes-mlp",model="champion"';
  expect(metrics).toContain(`${champion},slice="",figure="mae"} ${nights.at(-1)?.models[0]?.mae}\n`);
  expect(metrics).toContain(`${champion},slice="odd",figure="rows_labelled"} 150\n`);
  const elsewhere = await evaluate(...range, "--html", join(labels, "page.html"));
  expect([elsewhere.code, elsewhere.stderr]).toEqual([0, expect.stringMatching(/writing .*labels\.csv\/page\.html: /)]);

  const one = ["--param", "ds=2026-11-20"];
  expect(await evaluate("--param", "ds=2026-11-25")).toMatchObject({
    code: 64,
    stderr: expect.stringContaining("it is not planned"),
  });
  expect(await evaluate(...one, "--key", "customer")).toMatchObject({
    code: 64,
    stderr: expect.stringContaining("column customer"),
  });
  expect(await evaluate(...one, "--by", "region")).toMatchObject({
    code: 64,
    stderr: expect.stringContaining("column region"),
  });
  const unknown = await evaluate(...range, "--by", "region");
  expect(unknown).toMatchObject({ code: 64, stderr: expect.stringContaining("column region") });
  expect(unknown.stderr).not.toContain("left out");
  expect(await evaluate("--param", "ds=2026-12-01..2026-12-02")).toMatchObject({
    code: 64,
    stderr: expect.stringContaining("no night has a run"),
  });
  const gone = ["evaluate", job.spec, ...one, "--labels", "gone.csv", "--label", "value"];
  expect(await runHere(gone)).toMatchObject({ code: 64, stderr: expect.stringContaining("there is no such file") });
});

test("evaluate judges the challenger on the same rows, and keeps the champion's figures without it", async () => {
  const write = async (overrides: SpecOverrides): Promise<string> =>
    await writeSpec(scratch.path, fixtureNamed("cancer-logistic"), {
      commit_rows: 40,
      model: { outputs },
      params: { source: "../crm" },
      ...overrides,
    });
  const challenger = { path: shifted, outputs };
  const spec = await write({ challenger });
  const run = async (...args: string[]): Promise<void> => {
    const { code, stderr } = await runHere(["run", spec, "--quiet", ...args]);
    expect(code, stderr).toBe(0);
  };
  await run();
  const labels = join(scratch.path, "labels.parquet");
  await query(`COPY (SELECT id, label AS truth FROM read_parquet('${scratch.path}/out/*.parquet')) TO '${labels}'`);
  const asked = ["evaluate", spec, "--labels", labels, "--label", "truth", "--prediction", "p"];
  asked.push("--param", "source=../crm"); // no range of dates
  const both = await runHere(asked);
  expect([both.code, both.stderr]).toEqual([0, ""]);
  expect(both.stdout).toMatch(/calibration by decile champion\n[^]*calibration by decile challenger\n/);

  const expectAlone = async (reason: RegExp): Promise<void> => {
    const found = await runHere([...asked, "--json"]);
    expect(found.code, found.stderr).toBe(0);
    expect(found.stderr).toMatch(/^warning: the challenger is left out: .*\n$/);
    expect(found.stderr).toMatch(reason);
    expect(lastJson(found)).toMatchObject({ nights: [{ models: [{ model: "champion", auc: 1 }] }] });
  };
  const folder = join(scratch.path, "out/_challenger");
  const part = join(folder, (await readdir(folder)).find((name) => name.endsWith(".compared")) ?? "");
  const bytes = await readFile(part);
  await writeFile(part, bytes.subarray(0, 100));
  await expectAlone(/out\/_challenger/);
  await writeFile(part, bytes);

  // The challenger has not scored the rows of the new run.
  await write({});
  expect(lastJson(await runHere([...asked, "--json"]))).toMatchObject({
    nights: [{ models: [{ model: "champion" }] }],
  });
  await write({ commit_rows: 50 });
  await run("--new-run");
  await write({ commit_rows: 50, challenger });
  await expectAlone(/has no run of these rows/);

  await rm(join(scratch.path, "out"), { recursive: true });
  await write({ challenger: { path: shifted, outputs: { label: "label", q: "probabilities[1]" } } });
  await run();
  await expectAlone(/no column p/);
});

const postgres = usePostgres();

postgres.describe("in a database,", () => {
  test("evaluate joins the labels of a table by key and date, and leaves the rows of other runs out", async () => {
    await using database = await postgres.server().createDatabase();
    const spec = await writePgSpec(scratch.path, fixtureNamed("diabetes-mlp"), database, {
      params: { ds: "${today}" },
      output: { lineage: true, postgres: { mode: "append" } },
    });
    for (const date of ["2026-11-20", "2026-11-21"]) {
      expect((await runHere(["run", spec, "--param", `ds=${date}`])).code).toBe(0);
    }
    await database.query(`CREATE TABLE scores.labels AS SELECT i::bigint AS id, (100 + i)::numeric AS value,
      CASE WHEN i <= 40 THEN DATE '2026-11-20' ELSE DATE '2026-11-21' END AS since FROM generate_series(1, 100) AS i`);
    const asked = ["--labels", "scores.labels", "--label", "value", "--date", "since", "--json"];
    const found = await runHere(["evaluate", spec, "--param", "ds=2026-11-20..2026-11-21", ...asked]);
    expect(found.code, found.stderr).toBe(0);
    const { nights } = lastJson(found) as { nights: Night[] };
    expect(nights.map(({ models: [model] }) => [model?.rows, model?.rows_labelled])).toEqual([
      [442, 40],
      [442, 60],
    ]);
  });
});
