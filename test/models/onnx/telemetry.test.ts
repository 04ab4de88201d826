import { mkdir, readdir } from "node:fs/promises";
import { join } from "node:path";
import { expect, test } from "vitest";
import { runCli } from "../../support/cli.js";
import { scratch, writeSpec } from "../../support/job.js";
import { fixtureNamed } from "../../support/world.js";

/**
 * onnxruntime's collector opens a log in the temporary folder and a store in the home folder as soon as it starts,
 * whether or not it can reach its vendor. It stays silent where a variable of a CI system is set, so that the command
 * gets an environment without any of this process's.
 */
test.each([
  { command: "run", args: (spec: string) => ["run", spec, "--no-progress"] },
  { command: "inspect", args: () => ["inspect", "fixtures/models/wine-forest.onnx"] },
])("$command starts no telemetry: it leaves nothing in the temporary folder and the home folder", async ({ args }) => {
  const spec = await writeSpec(scratch.path, fixtureNamed("wine-forest"));
  const [temporary, home] = [join(scratch.path, "tmp"), join(scratch.path, "home")];
  await mkdir(temporary);
  await mkdir(home);
  const nothing = Object.fromEntries(Object.keys(process.env).map((name) => [name, undefined]));

  const { code, stderr } = await runCli(args(spec), {
    env: {
      ...nothing,
      PATH: process.env["PATH"],
      TMPDIR: temporary,
      HOME: home,
      XDG_CACHE_HOME: join(scratch.path, "cache"),
    },
  });

  expect(code, stderr).toBe(0);
  expect(await readdir(temporary, { recursive: true })).toEqual([]);
  expect(await readdir(home, { recursive: true })).toEqual([]);
});
