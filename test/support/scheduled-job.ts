import { chmod, cp, mkdir, readFile, writeFile } from "node:fs/promises";
import { delimiter, join } from "node:path";
import { projectFolder } from "./cli.js";
import { type SpecOverrides, writeSpec } from "./job.js";
import { writeRows } from "./parquet.js";
import { fixtureNamed } from "./world.js";

/** A job that schedulers start for the days 2026-01-01 to 2026-01-04. */
export interface ScheduledJob {
  /** With the spec as the recipes of deploy/ take it, and `infer-batch` on the path. */
  readonly env: NodeJS.ProcessEnv;
  /** What the attempts so far have ended with. */
  readonly codes: () => Promise<number[]>;
}

/**
 * Features of the first day become ready when an attempt has found that they are not; those of the second are damaged,
 * those of the fourth so few that the checks hold the run.
 * @param hook the URL that is told of a held run
 */
export async function scheduledJob(folder: string, hook: string, report: SpecOverrides = {}): Promise<ScheduledJob> {
  const wine = join(projectFolder, "fixtures/data/wine");
  const day = (number: number, ...names: string[]): string => join(folder, `features/dt=2026-01-0${number}`, ...names);
  for (const number of [1, 2, 3]) {
    await cp(wine, day(number), { recursive: true });
  }
  await writeFile(day(2, "part-99999.parquet"), "no Parquet");
  await mkdir(day(4));
  await writeRows(day(4, "part-00000.parquet"), `SELECT * FROM '${wine}/part-00000.parquet' LIMIT 20`);
  for (const number of [2, 3, 4]) {
    await writeFile(day(number, "_SUCCESS"), "");
  }
  const spec = await writeSpec(folder, fixtureNamed("wine-forest"), {
    params: { ds: "${today}" },
    input: { path: "features/dt=${ds}/*.parquet", ready: "features/dt=${ds}/_SUCCESS" },
    output: { parquet: { path: "out/dt=${ds}" } },
    commit_rows: 20,
    checks: {},
    report: { on_held: hook, method: "post", ...report },
  });

  const bin = join(folder, "bin");
  const codes = join(folder, "codes");
  await mkdir(bin);
  await writeFile(
    join(bin, "infer-batch"),
    `#!/bin/sh
"${projectFolder}/bin/infer-batch.js" "$@"
code=$?
echo $code >> "${codes}"
[ $code != 75 ] || touch "${day(1, "_SUCCESS")}"
exit $code
`,
  );
  await chmod(join(bin, "infer-batch"), 0o755);
  return {
    env: { ...process.env, PATH: [bin, process.env["PATH"]].join(delimiter), INFER_BATCH_SPEC: spec },
    codes: async () => (await readFile(codes, "utf8")).trim().split("\n").map(Number),
  };
}
