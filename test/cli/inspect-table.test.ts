import { join } from "node:path";
import { expect, test } from "vitest";
import { runHere } from "../support/cli.js";
import { sparkTables } from "../support/lakes.js";
import { lastJson } from "../support/nights.js";

const inspect = async (...args: string[]): ReturnType<typeof runHere> => await runHere(["inspect", ...args]);

test("inspect shows version, rows and columns of a Delta table", async () => {
  const { code, stdout } = await inspect(join(sparkTables, "mapped"));
  expect(code).toBe(0);
  expect(stdout).toMatch(
    /^table {4}.*\nformat {3}Delta\nversion {2}9\nrows {5}107\nremoved {2}18 rows of the files below\nfiles {4}4 files/,
  );
  expect(stdout).toMatch(/\ncolumns:\n {2}id {2}int64\n {2}y {3}float32\n {2}dt {2}utf8\n {2}z {3}float64\n$/);
});

test("inspect --at shows an Iceberg table as it was", async () => {
  const found = await inspect(join(sparkTables, "ns/v2"), "--at", "old", "--json");
  expect(lastJson(found)).toMatchObject({ kind: "table", format: "iceberg", rows: 68, rows_removed: 12, files: 8 });
});

test("inspect refuses a folder that is no table", async () => {
  expect(await inspect(sparkTables)).toMatchObject({
    code: 64,
    stderr: expect.stringContaining("no Delta or Iceberg table") as string,
  });
});
