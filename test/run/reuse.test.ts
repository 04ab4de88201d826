import { join } from "node:path";
import { describe, expect, test } from "vitest";
import { identity, smallJob } from "../support/faulty.js";
import { scratchFolder } from "../support/job.js";
import { lastJson } from "../support/nights.js";
import { outputRows } from "../support/output.js";
import { writeRows } from "../support/parquet.js";
import { runHere } from "../support/cli.js";

const nightly = {
  params: { ds: "${today}" },
  commit_rows: 100,
  reuse: { key: ["id"] },
  input: { path: "in/${ds}.parquet" },
  output: { columns: ["id"], parquet: { path: "out/dt=${ds}" } },
};

describe("rows that did not change", () => {
  test("rows that did not change take the prediction of the last night, and the others are scored", async () => {
    await using scratch = await scratchFolder();
    const { spec } = await smallJob(scratch.path, { model: identity, select: "SELECT 1", ...nightly });
    const night = async (ds: string, select: string): Promise<Record<string, unknown>> => {
      await writeRows(join(scratch.path, `in/${ds}.parquet`), select);
      const ran = await runHere(["run", spec, "--param", `ds=${ds}`, "--json"]);
      console.log(ran.stderr);
      expect(ran.code).toBe(0);
      return lastJson(ran);
    };
    await night("2026-01-01", "SELECT row AS id, row::FLOAT AS x FROM range(1000) t(row)");
    const second = await night("2026-01-02", "SELECT row AS id, (row + CASE WHEN row % 10 = 0 THEN 1 ELSE 0 END)::FLOAT AS x FROM range(5, 1005) t(row)");

    expect(second).toMatchObject({ rows_scored: 1000, rows_reused: 896 });
    const rows = await outputRows(join(scratch.path, "out/dt=2026-01-02"));
    expect(rows.map(({ score }) => score)).toEqual(rows.map(({ id }) => Number(id) + (Number(id) % 10 === 0 ? 1 : 0)));
  });
});
