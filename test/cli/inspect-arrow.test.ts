import { copyFile } from "node:fs/promises";
import { join } from "node:path";
import { describe, expect, test } from "vitest";
import { projectFolder } from "../support/cli.js";
import { inspected } from "../support/inspected.js";
import { scratch } from "../support/job.js";
import { shownCli } from "../support/shown.js";

const here = "/nowhere";

test("inspect recognizes an Arrow file by its content", async () => {
  const path = join(scratch.path, "a.bin");
  await copyFile(join(projectFolder, "fixtures/arrow/older.arrow"), path);

  expect(await inspected(path)).toMatchObject({ kind: "shard", format_version: 4, rows: 60, row_groups: 4 });
});

function nullsOf({ columns }: Record<string, unknown>): [string, number | null][] {
  return (columns as { name: string; nulls: number | null }[]).map(({ name, nulls }) => [name, nulls]);
}

describe("inspect on an Arrow shard", () => {
  test.each(["deltas.arrow", "replaced.arrows"])(
    "inspect shows %s as a table and as one line of JSON",
    async (name) => {
      expect(await shownCli(["inspect", `fixtures/arrow/${name}`], here)).toMatchSnapshot();
      expect(await shownCli(["inspect", `fixtures/arrow/${name}`, "--json"], here)).toMatchSnapshot();
    },
  );

  test("inspect shows the same rows, types and NULLs for an Arrow shard and a Parquet shard with the same values", async () => {
    const arrow = await inspected("fixtures/arrow/zstd.arrow");
    const parquet = await inspected("fixtures/arrow/types.parquet");

    expect(arrow).toMatchObject({ rows: 60, row_groups: 4, row_group_rows_min: 9, row_group_rows_max: 17 });
    const known = new Map(nullsOf(parquet));
    // Parquet's statistics count no list's; what its dictionary has as NULL, Arrow does not count.
    expect(nullsOf(arrow).filter(([name, count]) => ![count, null].includes(known.get(name) ?? null))).toEqual([
      ["coded", 9],
    ]);
  });
});
