import { copyFile, readdir, readFile, writeFile } from "node:fs/promises";
import { join } from "node:path";
import { expect, test } from "vitest";
import { scratch } from "../support/job.js";
import { lastJson, nightlyJob } from "../support/nights.js";
import { expectEnd } from "../support/cli.js";

test("a run is compared with the profile in the file of checks.baseline, which holds it from the first run on, with any number of rows", async () => {
  const nights = await nightlyJob(scratch.path);
  const first = await nights.night("run", "2026-11-20", "--json");
  const runId = String(lastJson(first)["run_id"]);
  await copyFile(
    join(nights.folder("2026-11-20"), "_infer-batch", runId, "profile.json"),
    join(scratch.path, "training.json"),
  );
  const checks = { baseline: "training.json", factor: 0.5 };

  await nights.rewrite({ name: "other", checks, output: { parquet: { path: "other/dt=${ds}" } } });
  const same = await nights.night("run", "2026-11-21", "--json");
  await nights.rewrite({
    name: "other",
    checks,
    output: { parquet: { path: "other/dt=${ds}" } },
    input: { where: "bmi > -0.052" },
  });
  const moved = await nights.night("run", "2026-11-22", "--json");
  const plan = await nights.night("plan", "2026-11-22");
  const status = await nights.night("status", "2026-11-22");

  expect(same.code, same.stderr).toBe(0);
  expect(moved.code, moved.stderr).toBe(67);
  expect(moved.stderr).toMatch(
    /bmi: median \S+, usually \S+; its values are far from the nearest night \(training\.json\)/,
  );
  expect(moved.stderr).not.toContain("the usual number");
  expect(moved.stderr).not.toContain("runs to compare with");
  expect(status.stdout).toMatch(/failed: bmi: median /);
  expect(plan.stdout).toContain("checks   rejects, 1 output, 10 features; a failed check holds the run");
  const verdicts = await Promise.all(
    ["2026-11-21", "2026-11-22"].map(async (date) => {
      const folder = join(scratch.path, "other", `dt=${date}`, "_infer-batch");
      const run = (await readdir(folder)).find((name) => name.startsWith("other-")) ?? "";
      return await readFile(join(folder, run, "verdict.json"), "utf8");
    }),
  );
  expect(verdicts.join("")).not.toContain("last run");
  for (const { stdout, stderr } of [same, moved, plan, status]) {
    expect(stdout + stderr).not.toMatch(/last run|earlier run/);
  }
});

test("a file of checks.baseline that is no profile or is missing ends planning with 64; one that changed ends an unfinished run with 66", async () => {
  const nights = await nightlyJob(scratch.path, { checks: { baseline: "training.json" } });
  await expectEnd(nights.night("run", "2026-11-20"), 64, "checks.baseline: ");
  const path = join(scratch.path, "training.json");
  const facts = {
    format: "infer-batch-profile",
    version: 1,
    run_id: "r",
    date: "2026-11-19",
    model_sha256: "",
    model: { uri: "model.onnx" },
    rows: 1,
    rejected: 0,
    carried: [],
  };
  const damaged = { ...facts, outputs: [["score", { kind: "numbers", type: "float32", rows: 1, nulls: 0 }]] };
  for (const text of ["{}", JSON.stringify(damaged)]) {
    await writeFile(path, text);
    await expectEnd(nights.night("run", "2026-11-20"), 64, "training.json is not the profile of a run");
  }

  const profile = {
    format: "infer-batch-profile",
    version: 1,
    run_id: "training",
    date: "",
    model_sha256: "",
    model: { uri: "model.onnx" },
    rows: 1,
    carried: [],
  };
  const text = JSON.stringify({ ...profile, rejected: 0, outputs: [] });
  await writeFile(path, text);
  await expectEnd(nights.night("run", "2026-11-20", "--worker", "0/2"), 0);
  await writeFile(path, `${text}\n`);
  await expectEnd(nights.night("run", "2026-11-20"), 66, "comparing training.json with the plan");
});
