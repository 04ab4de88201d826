import { resolve } from "node:path";
import { describe, expect, test } from "vitest";
import { filesDataset, inputDatasets, parentRun, tableDataset } from "#src/report/lineage.js";
import { load, minimalSpec } from "../../support/spec.js";

const absolute = (path: string): string => resolve("/jobs", path);

describe("names of datasets", () => {
  test.each([
    ["s3://lake/features/dt=2026-11-22/*.parquet", "s3://lake features"],
    ["s3://lake/features/region=*/part.parquet", "s3://lake features"],
    ["s3://lake/features/20261122/x.arrow", "s3://lake features"],
    ["s3://lake/2026-11-22/features/*.parquet", "s3://lake 2026-11-22/features"],
    ["s3://lake/*.parquet", "s3://lake /"],
    ["s3://lake/a/2026-11-22/features/*.parquet", "s3://lake a/2026-11-22/features"],
    ["in/2026-11-22/*.parquet", "file /jobs/in"],
    ["out/dt=2026-11-22", "file /jobs/out"],
    ["/data/out", "file /data/out"],
    ["table.parquet", "file /jobs/table.parquet"],
    ["in/2026-11-22.parquet", "file /jobs/in"],
  ])("the dataset of %s is %s", (path, expected) => {
    const { namespace, name } = filesDataset(path, absolute);
    expect(`${namespace} ${name}`).toBe(expected);
  });

  test("all patterns in a folder are one lineage dataset, and each file is one", () => {
    const text = minimalSpec.replace("path: in/*.parquet", "path: [in/*.parquet, in/*.arrow, s3://lake/c.parquet]");
    expect(inputDatasets(load(text), absolute).map(({ name }) => name)).toEqual(["/jobs/in", "c.parquet"]);
  });

  test("a table of a catalog is a dataset of the catalog", () => {
    const text = minimalSpec.replace("path: in/*.parquet", "table: db.t\n  catalog: { url: https://catalog/api }");
    expect(inputDatasets(load(text), absolute)).toEqual([{ namespace: "https://catalog/api", name: "db.t" }]);
  });

  test.each([
    ["postgres://me:secret@db.example:6432/sales", "scores.daily", {}, "postgres://db.example:6432 sales.scores.daily"],
    ["postgres://db/sales", "daily", {}, "postgres://db:5432 sales.public.daily"],
    ["", "daily", { PGHOST: "db", PGDATABASE: "sales" }, "postgres://db:5432 sales.public.daily"],
  ])("the dataset of a table at %s, %s, is named without credentials", (url, table, env, expected) => {
    const { namespace, name } = tableDataset(url, table, env) ?? { namespace: "", name: "" };
    expect(`${namespace} ${name}`).toBe(expected);
  });

  test("a table has no dataset name if its URL is invalid or has an unescaped password", () => {
    expect(tableDataset("host=db", "t", {})).toBeUndefined();
    expect(tableDataset("postgres://me:12/secret@db/sales", "t", {})).toBeUndefined();
  });
});

describe("the parent of an attempt", () => {
  const task = { AIRFLOW_CTX_DAG_ID: "nightly", AIRFLOW_CTX_TASK_ID: "score", AIRFLOW_CTX_TRY_NUMBER: "1" };
  const airflow = { ...task, AIRFLOW_CTX_LOGICAL_DATE: "2026-11-22T00:00:00+00:00" };

  // The ids are those that generate_static_uuid of openlineage-python 1.54.0 makes.
  test("the parent of an attempt is Airflow's task, with the id that its OpenLineage provider gives it", () => {
    expect(parentRun(airflow)).toEqual({
      run: { runId: "01a2008d-7400-7235-854a-93c53e0321c2" },
      job: { namespace: "default", name: "nightly.score" },
    });
    const other = {
      ...task,
      AIRFLOW_CTX_EXECUTION_DATE: "2026-11-22T01:30:00.123456+02:00", // Airflow 2
      AIRFLOW_CTX_TRY_NUMBER: "2",
      OPENLINEAGE_NAMESPACE: "prod",
    };
    expect(parentRun(other)?.run.runId).toBe("01a20071-fd3b-78d7-9958-5da5bf2dbb09");
    expect(parentRun({ ...airflow, AIRFLOW_CTX_MAP_INDEX: "3" })?.run.runId).toBe(
      "01a2008d-7400-708b-b103-165138f4bb86",
    );
  });

  test("the parent of an attempt is Airflow's task also in a run without a logical date", () => {
    const triggered = { ...task, AIRFLOW_CTX_DAG_RUN_ID: "asset_triggered__2026-11-22T06:00:01.654321+00:00_x7G_h2kQ" };
    expect(parentRun(triggered)?.run.runId).toBe("01a201d7-1176-7cfa-9f4a-1c0d3d34751c");
    expect(parentRun({ ...task, AIRFLOW_CTX_DAG_RUN_ID: "given-by-ana" })).toBeUndefined();
  });

  test("the parent of an attempt is that of OPENLINEAGE_PARENT_ID, if it is one", () => {
    const id = "01a2008d-7400-7235-854a-93c53e0321c2";
    expect(parentRun({ ...airflow, OPENLINEAGE_PARENT_ID: `my/prod/dag.task/${id}` })).toEqual({
      run: { runId: id },
      job: { namespace: "my/prod", name: "dag.task" },
    });
    expect(parentRun({ OPENLINEAGE_PARENT_ID: "prod/dag.task/1" })).toBeUndefined();
    expect(parentRun({ ...airflow, AIRFLOW_CTX_LOGICAL_DATE: "soon" })).toBeUndefined();
    expect(parentRun({})).toBeUndefined();
  });
});
