import { mkdir, rename, cp } from "node:fs/promises";
import { join } from "node:path";
import { expect, test } from "vitest";
import { runHere, projectFolder } from "../support/cli.js";
import { scratch, type SpecOverrides } from "../support/job.js";
import { lastJson, nightlyJob, type Nights } from "../support/nights.js";
import { writeRows } from "../support/parquet.js";

const rows = (values: string): string => `SELECT * FROM (VALUES ${values}) AS t (id, in_a, label, score, extra)`;

test("diff compares two nights of a job by key: rows added, gone and changed, and the rows that changed most", async () => {
  const job = await nightlyJob(scratch.path, { checks: undefined });
  const diff = (...args: string[]) => runHere(["diff", job.spec, "--param", "ds=2026-11-21", "--against", ...args]);
  expect(await diff("ds=2026-11-20")).toMatchObject({ code: 64, stderr: expect.stringContaining("it is not planned") });
  await job.rewrite({ input: { where: "id <> 7" } });
  await job.night("run", "2026-11-20");
  await job.rewrite({ input: { where: "id <> 3 and id <> 4", columns: { s1: "s1 + if(id % 100 = 0, 1, 0)" } } });
  await job.night("run", "2026-11-21");

  const narrow = ["diff", job.spec, "--param", "ds=2026-11-21", "--against", "ds=2026-11-20"];
  expect((await runHere(narrow, { columns: 80 })).stdout).toMatch(
    /^ {2}column +rows beyond 0 +largest +mean difference +PSI +p99\n.*\nno room in 80 characters for: rank/m,
  );
  const found = lastJson(await diff("ds=2026-11-20", "--json"));
  expect(found).toMatchObject({
    rows_a: 441,
    rows_b: 440,
    rows_gone: 2,
    rows_added: 1,
    rows_compared: 439,
    rows_changed: 5,
    keys_repeated: 0,
    key: ["id"],
    outputs: { score: { kind: "numbers", rows_beyond_tolerance: 5, largest_difference: expect.any(Number) } },
  });
  const { score } = found["outputs"] as { score: { most_different: { columns: { id: string } }[] } };
  expect(score.most_different.map(({ columns }) => Number(columns.id) % 100)).toEqual([0, 0, 0, 0, 0]);
  const { stdout } = await diff("ds=2026-11-20");
  expect(
    stdout
      .replaceAll(/-[\da-f]{12}\b/g, "-ID")
      .replaceAll(/\d+\.\d{3,}/g, "FIGURE")
      .replaceAll(/ {2,}/g, "  "),
  ).toMatchSnapshot();
  expect(lastJson(await diff("ds=2026-11-20", "--json", "--tolerance", "1000"))).toMatchObject({ rows_changed: 0 });
  expect(await diff("ds=2026-11-21")).toMatchObject({ code: 64, stderr: expect.stringContaining("the same run") });
  const wrong = await diff("ds=2026-11-20", "--key", "customer");
  expect(wrong).toMatchObject({
    code: 64,
    stderr: expect.stringMatching(/it has no column customer\n.*there are id, score/),
  });
});

test("diff of two folders counts repeated keys, treats NULL as a key, and compares columns of the same type", async () => {
  const [a, b] = [join(scratch.path, "a"), join(scratch.path, "b")];
  await mkdir(a);
  await mkdir(b);
  const before =
    "(1, 1, 'x', 0.5::float, 1), (NULL, 2, 'y', NULL, 1), (3, 3, 'z', 1, 1), (4, 4, 'q', 1, 1), (4, 4, 'q', 1, 1)";
  const after = "(1, 1, 'x', 0.5::float, 'a'), (NULL, 2, 'x', 2, 'a'), (4, 4, 'q', 1, 'a'), (5, 5, 'q', 1, 'a')";
  await writeRows(join(a, "one.parquet"), rows(before));
  await writeRows(join(b, "one.parquet"), rows(after));
  const run = (...args: string[]) => runHere(["diff", b, "--against", a, ...args]);
  expect((await run()).code).toBe(64);
  const found = lastJson(await run("--key", "id", "--json"));
  expect(found).toMatchObject({
    rows_a: 5,
    rows_b: 4,
    rows_gone: 1,
    rows_added: 1,
    rows_compared: 2,
    rows_changed: 1,
    keys_repeated: 1,
    keys_uneven: 1,
    repeated: [{ key: "4", a: 2, b: 1 }],
    outputs: {
      in_a: { kind: "labels", rows_equal: 2 },
      label: { rows_equal: 1, flips: [{ a: '"y"', b: '"x"', rows: 1 }], most_different: [{ columns: { id: null } }] },
      score: { rows_beyond_tolerance: 1 },
    },
    not_compared: { extra: "int32 in A, utf8 in B" },
  });
  // As the files of a challenger end.
  await rename(join(a, "one.parquet"), join(a, "one.compared"));
  expect(lastJson(await run("--key", "id", "--json"))).toEqual(found);
  const narrow = await runHere(["diff", "b", "--against", "a", "--key", "id"], { columns: 24, cwd: scratch.path });
  expect(narrow.stdout.slice(narrow.stdout.indexOf("numbers\n"))).toMatchInlineSnapshot(`
    "numbers
      column  rows beyond 0
      score             50%
    no room in 24 characters
    for: largest (0 in all
    rows), mean difference
    (0 in all rows), PSI (0
    in all rows), p99 (0 in
    all rows), rank
    correlation, median (0
    in all rows), p90 (0 in
    all rows)
    labels
      column  rows equal
      label          50%
      in_a          100%
    no room in 24 characters
    for: PSI
    labels that differ
      column  A    B    rows
      label   "y"  "x"     1
    not compared
      extra
          int32 in A, utf8
          in B
    rows that differ in label
      id    A    B
      NULL  "y"  "x"
    rows that differ most in score
      id
        A
        B
        difference
      NULL
        NULL
        2
        infinite
    "
  `);
  expect((await run("--key", "id")).stdout).toContain(
    "1 key with several rows, not compared; 1 not as often in B as in A",
  );
});

test("diff counts the same rows as changed and as beyond the tolerance: long decimals and floats, and wide decimals", async () => {
  const [a, b] = [join(scratch.path, "a"), join(scratch.path, "b")];
  await mkdir(a);
  await mkdir(b);
  const decimals = `SELECT i AS id, (hash(i) // 10000000)::VARCHAR AS whole, lpad((hash(i) % 100)::VARCHAR, 2, '0') AS cents,
    if(i % 2 = 0, '1', '7') || repeat('0', 27) AS wide FROM range(6000) t(i)`;
  const long = "(whole || '.' || cents)::DECIMAL(20,2)";
  const short = "('0.' || whole || cents || '42')::DECIMAL(18,17)";
  await writeRows(
    join(a, "one.parquet"),
    `SELECT id, ${long} AS long, ${short} AS short, wide::DECIMAL(38,10) AS wide FROM (${decimals})`,
  );
  await writeRows(
    join(b, "one.parquet"),
    `SELECT id, ${long}::VARCHAR::DOUBLE AS long, ${short}::VARCHAR::DOUBLE AS short,
      if(id < 5, '1' || repeat('0', 29), wide)::DECIMAL(30,0) AS wide FROM (${decimals})`,
  );
  const found = lastJson(await runHere(["diff", b, "--against", a, "--key", "id", "--json"]));
  expect(found).toMatchObject({
    rows_compared: 6000,
    rows_changed: 5,
    outputs: {
      long: { kind: "numbers", rows_beyond_tolerance: 0, largest_difference: 0 },
      short: { kind: "numbers", rows_beyond_tolerance: 0, largest_difference: 0 },
      wide: { kind: "numbers", rows_beyond_tolerance: 5 },
    },
  });
});

test("diff shows the extremes of nanoseconds as the times that they are in Parquet", async () => {
  const [a, b] = [join(scratch.path, "a"), join(scratch.path, "b")];
  await mkdir(a);
  await mkdir(b);
  await writeRows(join(a, "one.parquet"), "SELECT 1 AS id, 'infinity'::TIMESTAMP_NS AS at");
  await writeRows(join(b, "one.parquet"), "SELECT 1 AS id, '-infinity'::TIMESTAMP_NS AS at");
  const found = lastJson(await runHere(["diff", b, "--against", a, "--key", "id", "--json"]));
  expect(found["outputs"]).toMatchObject({
    at: {
      kind: "times",
      rows_equal: 0,
      most_different: [{ a: "2262-04-11T23:47:16.854775807", b: "1677-09-21T00:12:43.145224193" }],
    },
  });
});

test("diff names the same rows among those that differ equally, in any order of the files' rows", async () => {
  const [a, b] = [join(scratch.path, "a"), join(scratch.path, "b")];
  await mkdir(a);
  await mkdir(b);
  const reports = [];
  for (const order of ["id", "id DESC"]) {
    // More rows than a sample has: it should have the same ones, too.
    for (const [folderOf, score] of [
      [a, "2 + (hash(i) % 2)"],
      [b, "i % 3 - 5"],
    ]) {
      const select = `SELECT i AS id, (${score})::DOUBLE AS score FROM range(150000) t(i)`;
      await writeRows(join(String(folderOf), "one.parquet"), `FROM (${select}) ORDER BY ${order}`);
    }
    reports.push(lastJson(await runHere(["diff", b, "--against", a, "--key", "id", "--json"])));
  }
  expect(reports[0]).toMatchObject({ rows_changed: 150_000 });
  expect(reports[1]).toEqual(reports[0]);
});

const dates = ["2026-11-20", "2026-11-21"] as const;

/** Two nights whose rows are in folders named by the date, which is copied to the output. */
async function datedNights(folder: string, overrides: SpecOverrides): Promise<Nights> {
  for (const date of dates) {
    const features = join(folder, "features", `dt=${date}`);
    await cp(join(projectFolder, "fixtures/data/diabetes"), features, { recursive: true });
  }
  const { output, ...rest } = overrides;
  const job = await nightlyJob(folder, {
    checks: undefined,
    ...rest,
    input: { path: "features/dt=${ds}/*.parquet", partitions: { dt: "date" } },
    output: { columns: ["id", "dt"], parquet: { path: "out/${ds}" }, ...output },
  });
  for (const date of dates) {
    const { code, stderr } = await job.night("run", date);
    expect(code, stderr).toBe(0);
  }
  return job;
}

test.each([
  ["output.columns", {}],
  ["checks.unique", { checks: { unique: ["id", "dt"] } }],
  ["reuse.key", { reuse: { key: ["id", "dt"] } }],
])("diff leaves the date of the input's folder out of a key that is %s", async (_, overrides) => {
  const job = await datedNights(scratch.path, overrides);
  const diff = (...args: string[]) =>
    runHere(["diff", job.spec, "--param", `ds=${dates[1]}`, "--against", `ds=${dates[0]}`, "--json", ...args]);
  const found = await diff();
  expect(found.stderr).toBe("");
  expect(lastJson(found)).toMatchObject({ key: ["id"], rows_compared: 442, rows_gone: 0, rows_added: 0 });
});

test("diff says so if no key is in both, and what to do", async () => {
  const job = await datedNights(scratch.path, {});
  const diff = (...args: string[]) =>
    runHere(["diff", job.spec, "--param", `ds=${dates[1]}`, "--against", `ds=${dates[0]}`, ...args]);
  const apart = await diff("--key", "id", "--key", "dt");
  expect(apart).toMatchObject({ code: 0, stdout: expect.stringMatching(/only in A \(gone\) +442\n/) });
  expect(apart.stderr).toMatchInlineSnapshot(`
    "warning: A and B have rows, but no key (id, dt) is in both: name the columns that identify a row with --key, without those that differ from run to run, such as a date
    "
  `);
  const folders = await runHere(
    ["diff", "out/2026-11-21", "--against", "out/2026-11-20", "--key", "id", "--key", "dt"],
    { cwd: scratch.path },
  );
  expect(folders.stderr).toBe(apart.stderr);
  expect((await diff("--key", "id")).stderr).toBe("");
});
