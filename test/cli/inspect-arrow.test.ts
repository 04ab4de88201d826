import { copyFile } from "node:fs/promises";
import { join } from "node:path";
import { expect, test } from "vitest";
import { projectFolder, runHere } from "../support/cli.js";
import { scratchFolder } from "../support/job.js";

test.each(["older.arrow", "older.arrows"])(
  "inspect recognizes %s, from before Arrow 0.15, by its content",
  async (name) => {
    await using folder = await scratchFolder();
    const path = join(folder.path, "a.bin");
    await copyFile(join(projectFolder, "fixtures/arrow", name), path);

    const { code, stdout } = await runHere(["inspect", path, "--json"]);

    expect(code).toBe(0);
    expect(JSON.parse(stdout)).toMatchObject({ kind: "shard", format_version: 4, rows: 60, row_groups: 4 });
  },
);
