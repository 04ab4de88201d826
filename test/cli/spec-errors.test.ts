import { mkdir, writeFile } from "node:fs/promises";
import { join } from "node:path";
import { describe, expect, test } from "vitest";
import { runHere } from "../support/cli.js";
import { fixtures, type Fixture, scratch, scratchFolder, type SpecOverrides, writeSpec } from "../support/job.js";
import { shownCli } from "../support/shown.js";

const wine = fixtures.find(({ name }) => name === "wine-forest") as Fixture;

async function shownRun(overrides: SpecOverrides, args: readonly string[] = ["run"]): Promise<string> {
  await using folder = await scratchFolder();
  const [command = "run", ...rest] = args;
  return await shownCli([command, await writeSpec(folder.path, wine, overrides), ...rest], folder.path);
}

describe("a spec that cannot be read", () => {
  test("a missing spec is refused", async () => {
    expect(await shownCli(["run", "no/such/job.yaml"], "/nowhere")).toMatchInlineSnapshot(`
      "exit 64
      --- stderr
      error: reading no/such/job.yaml: there is no such file or folder (ENOENT)
        hint: the first argument is the job spec, a YAML file this user can read
      "
    `);
  });

  test("a folder in place of a spec is refused", async () => {
    await using folder = await scratchFolder();
    await mkdir(join(folder.path, "job.yaml"));
    expect(await shownCli(["run", join(folder.path, "job.yaml")], folder.path)).toMatchInlineSnapshot(`
      "exit 64
      --- stderr
      error: reading <folder>/job.yaml: it is a folder (EISDIR)
        hint: the first argument is the job spec, a YAML file this user can read
      "
    `);
  });

  test("a spec that is not YAML is refused", async () => {
    await using folder = await scratchFolder();
    const path = join(folder.path, "job.yaml");
    await writeFile(path, "version: 1\nname: [daily\ninput: x\n");
    expect(await shownCli(["run", path], folder.path)).toMatchInlineSnapshot(`
      "exit 64
      --- stderr
      error: reading <folder>/job.yaml:3:1: Flow sequence in block collection must be sufficiently indented and end with a ]
        hint: the file must be one YAML document
      "
    `);
  });

  test.each(["run", "plan", "validate", "status"])("%s refuses a spec with the same message", async (command) => {
    expect(await shownRun({ nam: "x" }, [command])).toMatch(
      /^exit 64\n--- stderr\nerror: reading <folder>\/job\.yaml:\d+:3: nam: unknown key; did you mean `name`\?\n$/,
    );
  });

  test("a spec with several errors is refused with all of them", async () => {
    expect(
      await shownRun({ comit_rows: 5, on_bad_row: "skip", engine: { batch_size: "many" } }),
    ).toMatchInlineSnapshot(`
      "exit 64
      --- stderr
      error: reading <folder>/job.yaml: 3 problems
        <folder>/job.yaml:18:19: engine.batch_size: found "many", expected auto or a number from 1 to 1048576
        <folder>/job.yaml:28:3: comit_rows: unknown key; did you mean \`commit_rows\`?
        <folder>/job.yaml:29:17: on_bad_row: found "skip", expected fail or reject
      "
    `);
  });

  test("an error in a spec is one line of JSON with --log-format json", async () => {
    const spec = await writeSpec(scratch.path, wine, { engine: { device_id: 128 } });
    const { code, stdout, stderr } = await runHere(["run", spec, "--log-format", "json", "--json"]);
    expect([code, JSON.parse(stdout)]).toMatchObject([64, { status: "failed", code: "SPEC_INVALID" }]);
    const lines = stderr.trimEnd().split("\n");
    expect(lines).toHaveLength(1);
    expect(JSON.parse(lines[0] ?? "")).toEqual({
      level: "error",
      time: expect.stringMatching(/^\d{4}-\d\d-\d\dT/),
      code: "SPEC_INVALID",
      exit_code: 64,
      msg: expect.stringMatching(/^reading .*engine\.device_id: found 128, expected a number from 0 to 127/),
    });
  });
});

describe("a spec that does not fit its model, input or output", () => {
  test("a misspelt name in model.outputs is refused", async () => {
    const said = await shownRun({ model: { outputs: { score: "probabilites[1]" } } });
    expect(said).toContain("did you mean `probabilities`?");
    expect(said).toMatchSnapshot();
  });

  test("a misspelt name in output.columns is refused", async () => {
    expect(await shownRun({ output: { columns: ["Id"] } }, ["validate"])).toMatchSnapshot();
  });

  test("a model with ZipMap is refused", async () => {
    const model = {
      path: join(import.meta.dirname, "../../fixtures/models/wine-zipmap.onnx"),
      outputs: { p: "output_probability" },
    };
    const said = await shownRun({ model }, ["plan"]);
    expect(said).toContain("zipmap': False");
    expect(said).toMatchSnapshot();
  });

  test("a missing model is refused", async () => {
    expect(await shownRun({ model: { path: "model.onnx" } })).toMatchInlineSnapshot(`
      "exit 64
      --- stderr
      error: reading <folder>/job.yaml:8:13: model.path: loading model <folder>/model.onnx: there is no such file
        hint: model.path is relative to the spec's folder
      "
    `);
  });

  test("a file that is not a model is refused", async () => {
    expect(await shownRun({ model: { path: "job.yaml" } })).toMatchInlineSnapshot(`
      "exit 64
      --- stderr
      error: reading <folder>/job.yaml:8:13: model.path: loading model <folder>/job.yaml: it is not an ONNX file
        hint: is this the right file, and was it copied whole?
      "
    `);
  });

  test("a model with another sha256 than model.sha256 is refused", async () => {
    expect(await shownRun({ model: { sha256: "0".repeat(64) } })).toMatchInlineSnapshot(`
      "exit 64
      --- stderr
      error: reading <folder>/job.yaml:8:13: model.path: loading model <project>/fixtures/models/wine-forest.onnx: its sha256 is <sha256>, but model.sha256 is <sha256>
        hint: deploy the pinned model, or change the pin
      "
    `);
  });

  test("a missing input file is refused", async () => {
    expect(await shownRun({ input: { path: "features.parquet" } })).toMatchInlineSnapshot(`
      "exit 64
      --- stderr
      error: reading <folder>/job.yaml:5:13: input.path: there is no features.parquet
        hint: paths are relative to the spec's folder; input.wait makes a run wait for input that comes later
      "
    `);
  });

  test("a missing folder of a pattern, which may be a later day's, exits as not ready", async () => {
    expect(await shownRun({ input: { path: "in/*.parquet" } })).toMatchInlineSnapshot(`
      "exit 75
      --- stderr
      error: planning wine-forest: there is no folder <folder>/in (in/*.parquet)
        hint: run the same command again when the input is there, or correct input.path
      "
    `);
  });

  test("a pattern whose parent folder is missing too is refused", async () => {
    expect(await shownRun({ input: { path: "in/dt=1/*.parquet" } })).toMatchInlineSnapshot(`
      "exit 64
      --- stderr
      error: reading <folder>/job.yaml:5:13: input.path: there is no folder <folder>/in (in/dt=1/*.parquet)
        hint: paths are relative to the spec's folder; input.wait makes a run wait for input that comes later
      "
    `);
  });

  test("a pattern that matches no file is refused", async () => {
    await mkdir(join(scratch.path, "in"));
    const spec = await writeSpec(scratch.path, wine, { input: { path: "in/*.parquet" } });
    expect(await shownCli(["run", spec], scratch.path)).toMatchInlineSnapshot(`
      "exit 75
      --- stderr
      error: planning wine-forest: no file matches in/*.parquet
        hint: run the same command again when the input is there, or correct input.path
      "
    `);
  });

  test("a folder as input that is empty, or whose parent is there, is not ready", async () => {
    await using folder = await scratchFolder();
    await mkdir(join(folder.path, "in"));
    const found = [];
    for (const path of ["in", "in/dt=2026-01-31", "in/dt=1/"]) {
      const spec = await writeSpec(folder.path, wine, { input: { path } });
      found.push(await shownCli(["run", spec], folder.path));
    }
    expect(found.join("\n")).toMatchInlineSnapshot(`
      "exit 75
      --- stderr
      error: planning wine-forest: no file matches in
        hint: run the same command again when the input is there, or correct input.path

      exit 75
      --- stderr
      error: planning wine-forest: there is no folder <folder>/in/dt=2026-01-31 (in/dt=2026-01-31)
        hint: run the same command again when the input is there, or correct input.path

      exit 75
      --- stderr
      error: planning wine-forest: there is no folder <folder>/in/dt=1 (in/dt=1/)
        hint: run the same command again when the input is there, or correct input.path
      "
    `);
  });

  test("a folder as input that has other files is refused as they are", async () => {
    await using folder = await scratchFolder();
    await mkdir(join(folder.path, "in"));
    await writeFile(join(folder.path, "in/notes.txt"), "later");
    const spec = await writeSpec(folder.path, wine, { input: { path: "in" } });
    expect(await shownCli(["run", spec], folder.path)).toMatchInlineSnapshot(`
      "exit 65
      --- stderr
      error: reading the footer of <folder>/in/notes.txt: it is not Parquet: it begins with "late", not "PAR1"
        hint: shards are Parquet, or Arrow under names that end in .arrow; write the shard again, or take it out of input.path
      "
    `);
  });

  test("the spec's own folder as input is refused without advice to read the root folder", async () => {
    expect(await shownRun({ input: { path: "." } })).not.toContain("write /*.parquet");
  });

  test("an input that is not ready exits with 75", async () => {
    expect(await shownRun({ input: { ready: "_SUCCESS" } })).toMatchInlineSnapshot(`
      "exit 75
      --- stderr
      error: waiting for input: _SUCCESS (input.ready) is not there yet
        hint: run the same command again later; exit code 75 tells a scheduler to retry
      "
    `);
  });

  test("an input with fewer rows than min_rows exits with 75", async () => {
    expect(await shownRun({ input: { min_rows: 100_000 } })).toMatchInlineSnapshot(`
      "exit 75
      --- stderr
      error: planning wine-forest: <project>/fixtures/data/wine/*.parquet has 178 rows in 5 files, input.min_rows is 100000
        hint: run the same command again when the input is there, or correct input.path
      "
    `);
  });

  test("a shard that is not Parquet is refused", async () => {
    const said = await shownRun({ input: { path: "job.yaml" } });
    expect(said).toMatch(/^exit 65\n/);
    expect(said).toMatchInlineSnapshot(`
      "exit 65
      --- stderr
      error: reading the footer of <folder>/job.yaml: it is not Parquet: it begins with "{\\n  ", not "PAR1"
        hint: shards are Parquet, or Arrow under names that end in .arrow; write the shard again, or take it out of input.path
      "
    `);
  });

  test("an output folder with foreign files is refused", async () => {
    await using folder = await scratchFolder();
    await mkdir(join(folder.path, "out"));
    await writeFile(join(folder.path, "out/theirs.parquet"), "x");
    expect(await shownCli(["run", await writeSpec(folder.path, wine)], folder.path)).toMatchInlineSnapshot(`
      "exit 64
      --- stderr
      error: checking <folder>/out: theirs.parquet is there, which no run wrote
        hint: output.parquet.path must be a folder of its own
      "
    `);
  });
});
