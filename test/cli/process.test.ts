import { appendFile, mkdir } from "node:fs/promises";
import { join } from "node:path";
import { expect, test } from "vitest";
import { runCli, runHere } from "../support/cli.js";
import { type Fixture, fixtures, scratchFolder, type SpecOverrides, writeSpec } from "../support/job.js";
import { writeRows } from "../support/parquet.js";
import { showResult } from "../support/shown.js";

const wine = fixtures.find(({ name }) => name === "wine-forest") as Fixture;

/** The same command lines one after the other, in a folder of their own; `before`: what happens before each. */
async function story(run: typeof runHere, steps: readonly Step[]): Promise<string[]> {
  await using folder = await scratchFolder();
  const told: string[] = [];
  for (const { args, spec = {}, before } of steps) {
    await writeSpec(folder.path, wine, spec);
    await before?.(folder.path);
    const said = await run(args.map((arg) => (arg === "SPEC" ? join(folder.path, "job.yaml") : arg)));
    told.push(showResult(said, folder.path));
  }
  return told;
}

interface Step {
  readonly args: readonly string[];
  readonly spec?: SpecOverrides;
  readonly before?: (folder: string) => Promise<void>;
}

const ownShard = { input: { path: "in/*.parquet" } };

async function writeShard(folder: string, columns: string): Promise<void> {
  await mkdir(join(folder, "in"), { recursive: true });
  await writeRows(
    join(folder, "in/a.parquet"),
    `SELECT ${columns} FROM read_parquet('fixtures/data/wine/part-00000.parquet')`,
  );
}

/** Most tests carry commands out in their own process: that the built command says and ends the same is told here. */
test.each<{ what: string; exit: number; steps: readonly Step[] }>([
  { what: "help", exit: 0, steps: [{ args: ["--help"] }] },
  { what: "an option that there is not", exit: 64, steps: [{ args: ["run", "job.yaml", "--jsno"] }] },
  { what: "a spec that is wrong", exit: 64, steps: [{ args: ["run", "SPEC"], spec: { nam: "x" } }] },
  { what: "a model", exit: 0, steps: [{ args: ["inspect", "fixtures/models/wine-forest.onnx"] }] },
  { what: "what is no model", exit: 64, steps: [{ args: ["inspect", "package.json"] }] },
  { what: "a plan", exit: 0, steps: [{ args: ["plan", "SPEC"] }] },
  {
    what: "bad data, told to a log collector",
    exit: 65,
    steps: [
      {
        args: ["run", "SPEC", "--log-format", "json"],
        spec: ownShard,
        before: (folder) => writeShard(folder, "* REPLACE (CASE WHEN id = 3 THEN NULL ELSE alcohol END AS alcohol)"),
      },
    ],
  },
  {
    what: "a run, the same again, and a world that changed",
    exit: 66,
    steps: [
      {
        args: ["run", "SPEC", "--log-level", "debug"],
        spec: ownShard,
        before: (folder) => writeShard(folder, "*"),
      },
      { args: ["run", "SPEC", "--json"], spec: ownShard },
      {
        args: ["run", "SPEC"],
        spec: ownShard,
        before: (folder) => appendFile(join(folder, "in/a.parquet"), "more"),
      },
    ],
  },
  { what: "an input that is not there yet", exit: 75, steps: [{ args: ["run", "SPEC"], spec: ownShard }] },
])("the built command prints and exits exactly as runProgram does: $what, exit code $exit", async ({ steps, exit }) => {
  const apart = await story(runCli, steps);

  expect(apart).toEqual(await story(runHere, steps));
  expect(apart.at(-1)).toMatch(new RegExp(`^exit ${exit}\n--- std`));
});
