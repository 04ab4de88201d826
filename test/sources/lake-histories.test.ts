import { execFileSync } from "node:child_process";
import { join } from "node:path";
import { expect, test } from "vitest";
import { diskSource } from "#src/sources/disk.js";
import { readLake } from "#src/sources/lake/source.js";
import { projectFolder, runCommand } from "../support/cli.js";
import { scratch, scratchFolder } from "../support/job.js";
import { diskReader, expectScored, type LakeAnswer, rowsOfSnapshot, rowText, writeLakeJob } from "../support/lakes.js";
import { pythonTools } from "../support/python-tools.js";
import { torture } from "../support/torture.js";

const { bin, missing, skipped } = pythonTools("lakes", [
  "pyiceberg[sql-sqlite,pyarrow]==0.12.0",
  "deltalake==1.6.6",
  "pyarrow==26.0.1",
]);
/** Columns with that one first which has no NULL: a rename may have given it another name. */
function keyFirst(names: readonly string[]): string[] {
  const isKey = (name: string): boolean => /^id(_|$)/.test(name);
  return [...names.filter(isKey), ...names.filter((name) => !isKey(name))];
}

const source = diskSource({ folder: "/", output: undefined });

test.skipIf(missing !== undefined)(
  `tables with random histories by deltalake and pyiceberg have their rows at each of three versions${skipped}`,
  async () => {
    const script = join(projectFolder, "test/support/lakes/histories.py");
    const args = [script, join(scratch.path, "tables"), "0", torture ? "200" : "8"];
    const told = execFileSync(join(bin, "python"), args, { encoding: "utf8", maxBuffer: 2 ** 28 });
    const answers = told
      .trim()
      .split("\n")
      .map((line) => JSON.parse(line) as LakeAnswer & { readonly table: string });
    expect(answers.length).toBeGreaterThan(8);
    for (const { table, at, rows } of answers) {
      const { snapshot } = await readLake({ source, reader: diskReader(), table }, String(at));
      const names = snapshot.columns.map(({ name }) => name);
      const expected = rows.map((row) => rowText(names.map((name) => row[name]))).toSorted();
      expect(await rowsOfSnapshot(snapshot), `${table} at ${String(at)}`).toEqual(expected);
      expect(rows.length === 0 ? names : Object.keys(rows[0] ?? {})).toEqual(names);
      if (rows.length > 0) {
        await using folder = await scratchFolder();
        const spec = await writeLakeJob(folder.path, { table, at: String(at), columns: keyFirst(names) });
        const ran = await runCommand(["run", spec, "--json"]);
        expect(ran.code, `${ran.stderr}${ran.stdout}`).toBe(0);
        await expectScored(folder.path, rows, keyFirst(names));
      }
    }
  },
  torture ? 1_200_000 : 240_000,
);
