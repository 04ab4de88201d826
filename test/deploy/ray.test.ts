import { spawn } from "node:child_process";
import { once } from "node:events";
import { chmod, copyFile, mkdir, readdir, readFile, writeFile } from "node:fs/promises";
import { delimiter, join } from "node:path";
import { text } from "node:stream/consumers";
import { expect, test } from "vitest";
import { projectFolder, runCli } from "../support/cli.js";
import { differences } from "../support/golden.js";
import { scratch } from "../support/job.js";
import { outputRows } from "../support/output.js";
import { query, type Row, writeRows } from "../support/parquet.js";
import { pythonToolsOfTorture } from "../support/python-tools.js";

const ray = pythonToolsOfTorture("ray-data", ["ray[data]==2.60.0"]);
const shards = join(projectFolder, "fixtures/data/cancer");

const byId = (one: Row, other: Row): number => ((one["id"] as bigint) < (other["id"] as bigint) ? -1 : 1);

/** Runs the example with an `infer-batch` that is away at first. */
async function score(job: string, input: string, output: string): Promise<{ code: unknown; said: string }> {
  const bin = join(scratch.path, "bin");
  await mkdir(bin, { recursive: true });
  await writeFile(
    join(bin, "infer-batch"),
    `#!/bin/sh
mkdir "${bin}/away" 2> "${bin}/null" && exit 75
exec "${projectFolder}/bin/infer-batch.js" "$@"
`,
  );
  await chmod(join(bin, "infer-batch"), 0o755);
  const child = spawn(join(ray.bin, "python"), [join(projectFolder, "examples/ray/score.py"), job, input, output], {
    cwd: scratch.path,
    env: {
      ...process.env,
      PATH: [bin, process.env["PATH"]].join(delimiter),
      RAY_ADDRESS: "local",
      RAY_AUTH_MODE: "disabled",
      RAY_USAGE_STATS_ENABLED: "0",
    },
    stdio: ["ignore", "pipe", "pipe"],
  });
  const [stdout, stderr, [code]] = await Promise.all([text(child.stdout), text(child.stderr), once(child, "close")]);
  return { code, said: stdout + stderr };
}

test.skipIf(ray.missing !== undefined)(
  `Ray predicts what run predicts, retries a batch after 75, and fails with what infer-batch says${ray.skipped}`,
  async () => {
    const [input, job] = [join(scratch.path, "in"), join(scratch.path, "job.yaml")];
    await mkdir(input);
    for (const name of await readdir(shards)) {
      await copyFile(join(shards, name), join(input, name));
    }
    await writeRows(join(input, "part-empty.parquet"), `SELECT * FROM '${shards}/part-00000.parquet' LIMIT 0`);
    const spec = await readFile(join(projectFolder, "examples/spark/job.yaml"), "utf8");
    await writeFile(job, spec.replaceAll("../../", `${projectFolder}/`));

    const scored = await score(job, input, join(scratch.path, "ray"));
    const ran = await runCli(["run", job, "--param", "out=ran", "--no-progress"]);

    expect(scored.code, scored.said.slice(-3000)).toBe(0);
    expect(await readdir(join(scratch.path, "bin")), "the first pipe ended with 75").toContain("away");
    expect(ran.code, ran.stderr).toBe(0);
    const rows = await query(`SELECT * FROM '${scratch.path}/ray/*.parquet'`);
    const expected = await outputRows(join(scratch.path, "ran"));
    expect(expected).toHaveLength(569);
    expect(differences(rows.toSorted(byId), expected.toSorted(byId))).toEqual([]);

    await writeRows(
      join(input, "part-null.parquet"),
      `SELECT * REPLACE (NULL AS mean_radius) FROM '${shards}/part-00000.parquet' LIMIT 1`,
    );
    const failed = await score(job, input, join(scratch.path, "failed"));
    expect(failed.code, failed.said.slice(-3000)).not.toBe(0);
    expect(failed.said).toMatch(/infer-batch pipe ended with 65: error: scoring stdin: row \d+/);
  },
  600_000,
);
