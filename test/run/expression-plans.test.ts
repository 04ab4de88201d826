import { readdir, readFile, writeFile } from "node:fs/promises";
import { join } from "node:path";
import { describe, expect, test } from "vitest";
import type { Plan } from "#src/run/plan/plan.js";
import { sealedText } from "#src/targets/parquet/plan-file.js";
import { expectKept, partLabels } from "../support/expressions.js";
import { identity, refusalOf, smallJob } from "../support/faulty.js";
import { goldenRows } from "../support/golden.js";
import { scratch, type SpecOverrides, writeSpec } from "../support/job.js";
import { outputRows } from "../support/output.js";
import type { Row } from "../support/parquet.js";
import { reject, rejectLines } from "../support/rejects.js";
import { leaveUnfinished, runSpec, scoreHere } from "../support/score.js";
import { shownCli } from "../support/shown.js";
import { fixtureNamed } from "../support/world.js";
import { firstOf } from "../support/torture.js";
import { expectEnd } from "../support/cli.js";

const digits = fixtureNamed("digits-lightgbm");
const select =
  "SELECT row AS id, row::DOUBLE AS v, 'it''s ' || row % 3 AS t, MAP {'k': row} AS m FROM range(100) AS t(row)";
const job = (
  folder: string,
  overrides: Omit<SpecOverrides, "model"> & { modelSpec?: object },
): ReturnType<typeof smallJob> => smallJob(folder, { ...overrides, model: identity, select });

async function thirds(): Promise<{ rows: Row[]; planned: number }> {
  const golden = await goldenRows(digits);
  return { rows: golden.filter(({ id }) => BigInt(String(id)) % 3n === 0n), planned: golden.length };
}

const cuts = [
  { what: "with holes", keep: (span: number) => span % 4 !== 1 },
  { what: "early", keep: (span: number) => span < 3 },
  { what: "before its last span", keep: (span: number) => span < 11 },
];

test.each(firstOf(cuts))("a filtered run that was cut off $what is finished with the same rows", async ({ keep }) => {
  const settings = { input: { where: "id % 3 = 0" }, commit_rows: 150, engine: { batch_size: 16 } };
  const spec = await writeSpec(scratch.path, digits, settings);
  const out = join(scratch.path, "out");
  const left = await leaveUnfinished(spec, out, keep);

  expect(await scoreHere(spec)).toMatchObject({ status: "complete", spansPlanned: 12, spansResumed: left.length });

  await expectKept(out, await thirds());
});

test("a filtered run that was cut off counts the rows that earlier attempts rejected and filtered out", async () => {
  const input = { columns: { x: "ln(v - 30)" }, where: "id % 2 = 0" };
  const { spec, out } = await job(scratch.path, { ...reject, input, commit_rows: 10 });
  await leaveUnfinished(spec, out, (span) => span !== 1 && span !== 7);
  const lines = await rejectLines(out);

  await scoreHere(spec);

  const rows = Array.from({ length: 100 }, (_, id) => id)
    .filter((id) => id % 2 === 0 && id > 30)
    .map((id) => ({ id: BigInt(id), score: Math.fround(Math.log(id - 30)) }));
  await expectKept(out, { rows, planned: 100, rejected: 16 });
  expect((await partLabels(out)).map(({ rejected, filtered }) => [rejected, filtered])).toEqual(
    Array.from({ length: 10 }, (_, span) => [span < 3 ? 5 : span === 3 ? 1 : 0, 5]),
  );
  expect(await rejectLines(out)).toEqual(lines);
});

test("a filtered run that was cut off is finished by two processes at once, with each row once", async () => {
  const settings = { input: { where: "id % 3 = 0" }, commit_rows: 120 };
  const spec = await writeSpec(scratch.path, digits, settings);
  await leaveUnfinished(spec, join(scratch.path, "out"), (span) => span % 3 === 0);

  const results = await Promise.all([1, 2].map(() => runSpec(spec, { ownProcess: true })));

  for (const { code, stderr, summary } of results) {
    expect(code, stderr).toBe(0);
    expect(summary).toMatchObject({ rows_planned: 1797, spans_committed: 15 });
  }
  await expectKept(join(scratch.path, "out"), await thirds());
});

describe("a run goes on only with the expressions that it was planned with", () => {
  const planned = { columns: { x: "v + 1" }, where: "id < 50" };

  test.each([
    ["another condition", { ...planned, where: "id < 51" }],
    ["no condition", { columns: planned.columns }],
    ["another column", { ...planned, columns: { x: "v + 2" } }],
    ["no column", { where: planned.where }],
    ["another spelling", { ...planned, where: "id  < 50" }],
  ])("%s is refused with 66, naming it", async (_what, input) => {
    const modelSpec = "columns" in input ? {} : { inputs: { x: ["v"] } };
    const { spec, out, rewrite } = await job(scratch.path, { input: planned, commit_rows: 10 });
    await leaveUnfinished(spec, out, (span) => span < 2);
    await rewrite({ input, model: modelSpec, commit_rows: 10 });

    expect((await refusalOf(scoreHere(spec))).replaceAll(scratch.path, "<folder>")).toMatchSnapshot();
  });

  test("computed columns in another order than planned are refused with 66, because an input may take them in that order", async () => {
    const output = { columns: ["id", "y"], parquet: { path: "out" } };
    const columns = { x: "v", y: "v + 1" };
    const { spec, out, rewrite } = await job(scratch.path, { input: { columns }, output, commit_rows: 10 });
    await leaveUnfinished(spec, out, (span) => span < 2);
    await rewrite({ input: { columns: { y: columns.y, x: columns.x } }, output, commit_rows: 10 });

    expect(await refusalOf(scoreHere(spec))).toMatch(/^66 PLAN_CHANGED\n.*input\.columns is \{"y":/);
  });
});

describe("expressions that do not fit are refused with 64 and their place in the spec", () => {
  test.each([
    ["a condition that is none", { where: "v" }],
    ["a condition that is NULL of no type", { where: "NULL" }],
    ["a type that cannot be carried", { columns: { x: "v", mm: "m" } }],
    ["a wide integer", { columns: { x: "v", h: "id::HUGEINT" } }],
    ["a column that is not used", { columns: { x: "v", idle: "v" } }],
    ["a column that sees another", { columns: { x: "y", y: "v" } }],
    ["a column that is not there", { where: "vv > 0" }],
    ["an aggregate", { where: "v > avg(v)" }],
  ])("%s", async (_what, input) => {
    const columns = [
      "id",
      ...Object.keys("columns" in input ? input.columns : {}).filter((name) => name.length === 2 || name === "h"),
    ];
    const modelSpec = "columns" in input ? {} : { inputs: { x: ["v"] } };
    const { spec } = await job(scratch.path, { input, modelSpec, output: { columns, parquet: { path: "out" } } });

    expect((await refusalOf(scoreHere(spec))).replaceAll(scratch.path, "<folder>")).toMatchSnapshot();
  });
});

describe("on the command line", () => {
  const input = { columns: { x: "v * 2\n  + 1" }, where: "t = ${who}" };
  const params = { who: "it's 1" };

  test("plan and validate show expressions as they will be run", async () => {
    const { spec } = await job(scratch.path, { input, params });

    expect(await shownCli(["plan", spec], scratch.path)).toMatchInlineSnapshot(`
      "exit 0
      --- stdout
      run      small-<12 digits>
      input    100 rows in 1 shard, 2.3 KiB
                 in/a.parquet  100 rows, 2.3 KiB
      spans    1 of up to 262,144 rows
      model    model.onnx, sha256 <12 digits>…
      input    x float32 [N,1] <- x
      where    t = 'it''s 1'
      column   x <- v * 2 + 1
      output   id int64 <- column id
      output   score float32 <- tensor score
      target   <folder>/out
      untried  hard links and quotas of the disk
      "
    `);
    expect(await shownCli(["validate", spec], scratch.path)).toMatchInlineSnapshot(`
      "exit 0
      --- stdout
      <folder>/job.yaml is valid
      input    x float32 [N,1] <- x
      where    t = 'it''s 1'
      column   x <- v * 2 + 1
      output   id int64 <- column id
      output   score float32 <- tensor score
      target   <folder>/out
      untried  hard links and quotas of the disk
      "
    `);
  });

  test("a param's value stays a value, and makes a run of its own", async () => {
    const output = { columns: ["id"], parquet: { path: "out-${n}" } };
    const { spec } = await job(scratch.path, { input, params: { ...params, n: "0" }, output });
    const scored = async (n: number, who: string): Promise<number> => {
      await expectEnd(runSpec(spec, { args: ["--param", `n=${n}`, "--param", `who=${who}`] }), 0);
      return (await outputRows(join(scratch.path, `out-${n}`))).length;
    };

    expect(await scored(1, "it's 2")).toBe(33);
    expect(await scored(2, "x' OR 'a' = 'a")).toBe(0);
    await expectEnd(runSpec(spec, { args: ["--param", "n=1", "--param", "who=it's 1"] }), 64);
  });

  test("validate refuses a reference inside quotes", async () => {
    const { spec } = await job(scratch.path, { input: { where: "t = '${who}'" }, params });

    expect(await shownCli(["validate", spec], scratch.path)).toMatchInlineSnapshot(`
      "exit 64
      --- stderr
      error: reading <folder>/job.yaml:6:14: input.where: found \${who} inside quotes; write it without quotes, because its value is inserted as a quoted text
      "
    `);
  });
});

interface Sealed {
  readonly sha256: string;
}

test("a plan whose expression was changed does not bring it to run", async () => {
  const { spec, out } = await job(scratch.path, { input: { columns: { x: "v" }, where: "id < 50" }, commit_rows: 10 });
  await leaveUnfinished(spec, out, () => false);
  const folder = join(out, "_infer-batch");
  const name = (await readdir(folder, { recursive: true })).find((one) => one.endsWith("plan.json")) ?? "";
  const text = await readFile(join(folder, name), "utf8");
  const { sha256: _seal, ...plan } = JSON.parse(text.replaceAll('"id < 50"', '"(SELECT true)"')) as Plan & Sealed;
  await writeFile(join(folder, name), sealedText(plan));
  const own = await readFile(spec, "utf8");
  await writeFile(spec, own.replace("id < 50", "(SELECT true)"));

  expect(await refusalOf(scoreHere(spec))).toContain("checking the expression (SELECT true): it has a subquery");
});
