import { join } from "node:path";
import { expect, test } from "vitest";
import { expectEnd, projectFolder, runHere } from "../support/cli.js";
import { scratch } from "../support/job.js";
import { lastJson, nightlyJob } from "../support/nights.js";
import { writeRows } from "../support/parquet.js";

test("status of a run whose golden rows differ, of which nothing is stored, names the command that says why", async () => {
  const nights = await nightlyJob(scratch.path, { checks: { golden: { path: "golden.parquet" } } });
  const table = join(projectFolder, "fixtures/data/diabetes/*.parquet");
  const select = `SELECT *, 1e6::FLOAT AS score FROM read_parquet('${table}') WHERE id < 40`;
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
