import { spawnSync } from "node:child_process";
import { truncateSync, writeFileSync } from "node:fs";
import { join } from "node:path";
import { describe, expect, test } from "vitest";
import { projectFolder, runCli, runHere } from "../support/cli.js";
import { fixtures, scratch, writeSpec } from "../support/job.js";

const wine = fixtures[2] as (typeof fixtures)[number];
const program = join(projectFolder, "bin/infer-batch.js");
const tooLong =
  /it has more than 262144 characters\n {2}hint: a job spec is a page of YAML; is this the right file\?\n$/;

describe("the size of a spec file", () => {
  test.each(["run", "plan", "validate", "status", "rejects", "rollback", "doctor"])(
    "%s refuses an endless spec after its first megabyte",
    async (command) => {
      // Reading more would need a gigabyte; 200 MB of heap hold what one megabyte becomes.
      const { code, stderr } = await runCli([command, "/dev/zero"], { node: ["--max-old-space-size=200"] });
      expect([code, stderr]).toEqual([64, expect.stringMatching(tooLong)]);
    },
  );

  test("pipe refuses an endless spec after its first megabyte", async () => {
    const shell = `"$0" "$1" pipe /dev/zero < "$1" 2>&1 | cat`;
    const { stdout } = spawnSync("sh", ["-c", shell, process.execPath, program], { encoding: "utf8" });
    expect(stdout).toMatch(tooLong);
  });

  test("a spec file of 3 GB is refused", async () => {
    const spec = join(scratch.path, "job.yaml");
    writeFileSync(spec, "");
    truncateSync(spec, 3e9);
    const { code, stderr } = await runHere(["run", spec]);
    expect([code, stderr]).toEqual([64, expect.stringMatching(tooLong)]);
  });
});

test.each([
  ["PAR1\u0015\u0004\u0000: [", "a Parquet file"],
  ["ARROW1\u0000\u0000", "an Arrow file"],
  ["\b\u0007\u0012\u0007pytorch", "an ONNX model"],
])("a model or a file of rows in place of a spec is named for what it is: %j", async (text, what) => {
  const file = join(scratch.path, "part-0");
  writeFileSync(file, text.padEnd(400_000, "x"));
  expect(await runHere(["run", file])).toMatchObject({
    code: 64,
    stderr: expect.stringContaining(
      `error: reading ${file}: it is ${what}, not a job spec\n  hint: the first argument`,
    ),
  });
});

test.each([
  ["job.yml", "job.yaml"],
  ["job", "job.yaml"],
  ["jbo.yaml", "job.yaml"],
  ["weekly.yaml", undefined],
])("%s, which is not there beside job.yaml: did you mean %s?", async (given, meant) => {
  writeFileSync(join(scratch.path, "job.yaml"), "");
  const { code, stderr } = await runHere(["run", join(scratch.path, given)]);
  expect(code).toBe(64);
  expect(/did you mean `(.*)`/.exec(stderr)?.[1]).toBe(meant);
});

test("a spec can come through a FIFO, piece by piece", async () => {
  const spec = await writeSpec(scratch.path, wine, { output: { parquet: { path: join(scratch.path, "out") } } });
  const shell = `{ head -c 40 "$2"; sleep 0.3; tail -c +41 "$2"; } | "$0" "$1" status /dev/stdin`;
  const { status, stdout } = spawnSync("sh", ["-c", shell, process.execPath, program, spec], { encoding: "utf8" });
  expect([status, stdout]).toEqual([0, expect.stringContaining("not planned yet")]);
});

test("a spec of 256 Ki characters of three bytes each is read completely", async () => {
  const spec = join(scratch.path, "job.yaml");
  const start = "version: 1 # ";
  writeFileSync(spec, `${start}${"語".repeat(256 * 1024 - start.length)}`);
  expect((await runHere(["run", spec])).stderr).toContain(": name: missing; expected a text");
});
