import { cp, rm, writeFile } from "node:fs/promises";
import { join } from "node:path";
import { expect, test } from "vitest";
import { expectEnd, runHere } from "../support/cli.js";
import { scratch } from "../support/job.js";
import { sparkAnswers, sparkTables, writeLakeJob } from "../support/lakes.js";
import { lastJson } from "../support/nights.js";
import { query } from "../support/parquet.js";

const table = join(sparkTables, "mapped");
const columns = ["id", "dt"];
const rows = sparkAnswers().get("mapped")?.rows ?? [];

test("rows that a table has removed do not count for input.min_rows", async () => {
  const spec = async (least: number): Promise<string> =>
    await writeLakeJob(scratch.path, { table, columns, input: { min_rows: least } });
  const refused = await expectEnd(runHere(["run", await spec(rows.length + 1)]), 75);
  expect(refused.stderr).toContain(`has ${rows.length} rows in`);
  await expectEnd(runHere(["run", await spec(rows.length)]), 0);
});

test.each([
  { name: "mapped", where: "dt = '2026-11-02'", removed: 40 - rows.filter(({ dt }) => dt === "2026-11-02").length },
  { name: "ns/v2", where: "id >= 0", removed: 92 - (sparkAnswers().get("v2")?.rows.length ?? 0) },
])("plan counts the removed rows of the files that it reads: $name", async ({ name, where, removed }) => {
  const spec = await writeLakeJob(scratch.path, { table: join(sparkTables, name), columns, input: { where } });
  const { stdout } = await expectEnd(runHere(["plan", spec]), 0);
  expect(removed).toBeGreaterThan(0);
  expect(stdout).toContain(`; ${removed} rows of the files below are removed`);
});

test("a challenger reads the version that the run has planned, whatever is the newest by then", async () => {
  const changing = join(scratch.path, "table");
  await cp(table, changing, { recursive: true });
  const more = { commit_rows: 20, challenger: { path: "model.onnx", inputs: { x: ["id"] } } };
  const spec = await writeLakeJob(scratch.path, { table: changing, columns, more });
  await expectEnd(runHere(["run", spec, "--worker", "0/2"]), 0);
  const challenger = join(scratch.path, "out/_challenger");
  await rm(challenger, { recursive: true }); // as if it had not begun
  await writeFile(
    join(changing, "_delta_log/00000000000000000010.json"),
    `${JSON.stringify({ protocol: { minReaderVersion: 3, minWriterVersion: 7, readerFeatures: ["variantType"] } })}\n`,
  );

  const finished = await expectEnd(runHere(["run", spec, "--worker", "1/2", "--json"]), 0);

  expect(lastJson(finished)).toMatchObject({ challenger: { rows_compared: rows.length } });
  const scored = await query(`SELECT count(*)::INTEGER AS rows FROM read_parquet('${challenger}/part-*.compared')`);
  expect(scored).toEqual([{ rows: rows.length }]);
});
