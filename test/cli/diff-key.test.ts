import { cp } from "node:fs/promises";
import { join } from "node:path";
import { expect, test } from "vitest";
import { projectFolder, runHere } from "../support/cli.js";
import { scratch, type SpecOverrides } from "../support/job.js";
import { lastJson, type Nights, nightlyJob } from "../support/nights.js";

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
