import { readdir, rename, truncate, writeFile } from "node:fs/promises";
import { join } from "node:path";
import { expect, test } from "vitest";
import { runHere } from "../support/cli.js";
import { fixtures, type Fixture, scratch, writeSpec } from "../support/job.js";
import { shownCli } from "../support/shown.js";

const wine = fixtures.find(({ name }) => name === "wine-forest") as Fixture;

test("status of several specs is a table with a line for each, and ends with the first error", async () => {
  const inFolder = (name: string): string => join(scratch.path, name);
  const specs = ["complete.yaml", "damaged.yaml", "late.yaml", "wrong.yaml"];
  for (const name of specs.slice(0, 3)) {
    const spec = await writeSpec(scratch.path, wine, {
      commit_rows: 50,
      name: name.replace(".yaml", ""),
      output: { columns: ["id"], parquet: { path: name.replace(".yaml", "-out") } },
    });
    await rename(spec, inFolder(name));
  }
  await writeFile(inFolder("wrong.yaml"), "version: 1\n");
  await runHere(["run", inFolder("complete.yaml"), "--quiet"]);
  await runHere(["run", inFolder("damaged.yaml"), "--quiet"]);
  const names = await readdir(inFolder("damaged-out"));
  const part = names.find((name) => name.endsWith(".parquet"));
  await truncate(inFolder(`damaged-out/${part}`), 100);

  const paths = specs.map(inFolder);
  const table = async (...options: string[]): Promise<string> =>
    (await shownCli(["status", ...options, ...paths], scratch.path))
      .replaceAll(/ {2,}/g, "  ")
      .replaceAll(/says \d+ bytes/g, "says <size> bytes");
  expect(await table()).toMatchSnapshot();
  expect(await table("--failed")).toMatchSnapshot();
  expect(await table("--held")).toContain("stdout\n4 jobs: 1 published, 1 damaged, 1 not planned, 1 error\n");
  for (const [columns, heads, leftOut] of [
    [72, /^ {2}spec +run +status +rows committed\n/, "planned\n"],
    [48, /^ {2}spec +status\n/, "run, rows\ncommitted, planned\n"],
  ] as const) {
    const narrow = await runHere(["status", ...specs], { columns, cwd: scratch.path });
    const lines = narrow.stdout.trim().split("\n").slice(0, -1); // the last counts the jobs
    expect(lines.filter((line) => line.length > columns)).toEqual([]);
    expect(narrow.stdout).toMatch(heads);
    expect(narrow.stdout).toContain(`no room in ${columns} characters for: ${leftOut}`);
  }
  const { stdout } = await runHere(["status", "--json", ...paths]);
  const lines = stdout.trim().split("\n");
  expect(lines.map((line) => JSON.parse(line) as unknown)).toMatchObject([
    { spec: paths[0], status: "published", rows_planned: 178, rows_committed: 178 },
    { spec: paths[1], status: "damaged", rows_committed: null },
    { spec: paths[2], status: "not_planned", rows_committed: 0 },
    { spec: paths[3], status: "error" },
  ]);
});
