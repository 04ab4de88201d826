import { readdir, readFile, rm } from "node:fs/promises";
import { join } from "node:path";
import { expect, test } from "vitest";
import type { Plan } from "#src/run/plan/plan.js";
import { expectEnd, runHere } from "../support/cli.js";
import { identity, smallJob } from "../support/faulty.js";
import { scratch } from "../support/job.js";
import { lastJson } from "../support/nights.js";
import { writeRows } from "../support/parquet.js";

const rows = 200_000;
const select = `SELECT range AS id, (range * 7919 % 10007 + 1)::FLOAT AS x FROM range(${rows})`;
/** One row in 24 of the planned ones would be sampled: 41 of those that are left, too few for a PSI. */
const kept = { where: "id % 200 = 0" };

interface Nights {
  readonly spec: string;
  rewrite(input: object): Promise<void>;
  args(date: string): string[];
  folder(date: string): string;
  control(date: string): Promise<string>;
}

async function filteredNights(folder: string): Promise<Nights> {
  const more = {
    params: { ds: "${today}" },
    checks: {},
    output: { columns: ["id"], parquet: { path: "out/dt=${ds}" } },
  };
  const { spec, out, rewrite } = await smallJob(folder, { model: identity, select });
  const write = (input: object): Promise<void> => rewrite({ ...more, input });
  await write(kept);
  return {
    spec,
    rewrite: write,
    args: (date) => [spec, "--param", `ds=${date}`],
    folder: (date) => join(out, `dt=${date}`),
    async control(date) {
      const folderOf = join(out, `dt=${date}`, "_infer-batch");
      const run = (await readdir(folderOf)).find((name) => name !== "run.json") ?? "";
      return join(folderOf, run);
    },
  };
}

test("a feature whose unit has changed is noticed in a run of few filtered rows of many", async () => {
  const nights = await filteredNights(scratch.path);
  await expectEnd(runHere(["run", ...nights.args("2026-11-20")]), 0);
  await nights.rewrite({ ...kept, columns: { x: "(x / 1000)::FLOAT" } });
  await expectEnd(runHere(["run", ...nights.args("2026-11-21")]), 0, /WARN: checks: x: median .*÷1000: thousands\?/);
});

test("the rows that a filter keeps are estimated in an input of many files", async () => {
  const nights = await filteredNights(scratch.path);
  const folder = join(scratch.path, "in");
  await rm(join(folder, "a.parquet"));
  const table = "SELECT range AS id, range::FLOAT AS x, range // 400 AS part FROM range(100000)";
  await writeRows(folder, table, "PARTITION_BY (part)");
  await nights.rewrite({ path: "in/*/*.parquet", where: "part::int % 2 = 0 and id % 4 <> 0" });
  const result = await expectEnd(runHere(["run", ...nights.args("2026-11-20"), "--json"]), 0);
  expect(lastJson(result)).toMatchObject({ rows_planned: 100_000, rows_filtered: 62_500 });
  const plan = JSON.parse(await readFile(join(await nights.control("2026-11-20"), "plan.json"), "utf8")) as Plan;
  // Of 100,000 rows, one in 12 would be sampled. 37,500 are left, of which one in 4 would do; 64 of 250 files tell that
  // it are 16,384 or more.
  expect(plan.checks?.sampleEvery).toBeGreaterThanOrEqual(2);
  expect(plan.checks?.sampleEvery).toBeLessThanOrEqual(4);
});
