import { execFileSync } from "node:child_process";
import { mkdir } from "node:fs/promises";
import { join } from "node:path";
import { expect, test } from "vitest";
import { projectFolder, runCommand } from "../support/cli.js";
import { scratch } from "../support/job.js";
import { bin, missing, skipped } from "../support/lake-writers.js";
import { writeLakeJob } from "../support/lakes.js";

function allTypes(...args: readonly string[]): string {
  const script = join(projectFolder, "test/support/lakes/all_types.py");
  return execFileSync(join(bin, "python"), [script, ...args], { encoding: "utf8" });
}

/** In a zone that is not that of the instants. */
const more = { timezone: "America/New_York" };

test.skipIf(missing !== undefined)(
  `columns of all types, wider and older ones among them, and partitions by their values, come as the table has them${skipped}`,
  async () => {
    const tables = allTypes("make", scratch.path).trim().split("\n");
    expect(tables).toHaveLength(4);
    const compared: string[] = [];
    for (const [index, told] of tables.entries()) {
      const { kind, table, columns } = JSON.parse(told) as { kind: string; table: string; columns: string[] };
      const folder = join(scratch.path, `job-${index}`);
      await mkdir(folder);
      const input = columns.includes("pzero") ? { where: "1 / pzero < 0 OR pzero = 1" } : {}; // all rows, if -0 is not 0
      const spec = await writeLakeJob(folder, { table, columns, more, input });

      const ran = await runCommand(["run", spec, "--json"]);

      expect(ran.code, `${table}: ${ran.stderr}${ran.stdout}`).toBe(0);
      compared.push(kind, table, join(folder, "out"));
    }
    expect(allTypes("compare", ...compared)).toMatch(/^(?:equal \d+\n){4}$/);
  },
  120_000,
);
