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

  test("the spec's own folder as input is refused without advice to read the root folder", async () => {
    expect(await shownRun({ input: { path: "." } })).not.toContain("write /*.parquet");
  });
});

interface Refusal {
  readonly what: string;
  /** Made before the command runs; a text is a file, null a folder. */
  readonly files?: Readonly<Record<string, string | null>>;
  readonly overrides?: SpecOverrides;
  readonly code: number;
  readonly says: string;
  readonly hint: string;
}

const later = "run the same command again when the input is there, or correct input.path";
const relative = "paths are relative to the spec's folder; input.wait makes a run wait for input that comes later";
const notParquet =
  "shards are Parquet, or Arrow under names that end in .arrow; write the shard again, or take it out of input.path";
const inputOf = (path: string): SpecOverrides => ({ input: { path } });
const at = (place: string): string => `reading <folder>/job.yaml:${place}`;

test.each<Refusal>([
  {
    what: "a missing model",
    overrides: { model: { path: "model.onnx" } },
    code: 64,
    says: at("8:13: model.path: loading model <folder>/model.onnx: there is no such file"),
    hint: "model.path is relative to the spec's folder",
  },
  {
    what: "a file that is not a model",
    overrides: { model: { path: "job.yaml" } },
    code: 64,
    says: at("8:13: model.path: loading model <folder>/job.yaml: it is not an ONNX file"),
    hint: "is this the right file, and was it copied whole?",
  },
  {
    what: "a model with another sha256 than model.sha256",
    overrides: { model: { sha256: "0".repeat(64) } },
    code: 64,
    says: at(
      "8:13: model.path: loading model <project>/fixtures/models/wine-forest.onnx: its sha256 is <sha256>, but model.sha256 is <sha256>",
    ),
    hint: "deploy the pinned model, or change the pin",
  },
  {
    what: "a missing input file",
    overrides: inputOf("features.parquet"),
    code: 64,
    says: at("5:13: input.path: there is no features.parquet"),
    hint: relative,
  },
  {
    what: "a missing folder of a pattern, which may be a later day's,",
    overrides: inputOf("in/*.parquet"),
    code: 75,
    says: "planning wine-forest: there is no folder <folder>/in (in/*.parquet)",
    hint: later,
  },
  {
    what: "a pattern whose parent folder is missing too",
    overrides: inputOf("in/dt=1/*.parquet"),
    code: 64,
    says: at("5:13: input.path: there is no folder <folder>/in (in/dt=1/*.parquet)"),
    hint: relative,
  },
  {
    what: "a pattern that matches no file",
    files: { in: null },
    overrides: inputOf("in/*.parquet"),
    code: 75,
    says: "planning wine-forest: no file matches in/*.parquet",
    hint: later,
  },
  {
    what: "an empty folder as input",
    files: { in: null },
    overrides: inputOf("in"),
    code: 75,
    says: "planning wine-forest: no file matches in",
    hint: later,
  },
  {
    what: "a missing folder as input, whose parent is there",
    files: { in: null },
    overrides: inputOf("in/dt=2026-01-31"),
    code: 75,
    says: "planning wine-forest: there is no folder <folder>/in/dt=2026-01-31 (in/dt=2026-01-31)",
    hint: later,
  },
  {
    what: "a missing folder as input, whose name ends in a slash",
    files: { in: null },
    overrides: inputOf("in/dt=1/"),
    code: 75,
    says: "planning wine-forest: there is no folder <folder>/in/dt=1 (in/dt=1/)",
    hint: later,
  },
  {
    what: "a folder as input that has other files",
    files: { in: null, "in/notes.txt": "later" },
    overrides: inputOf("in"),
    code: 65,
    says: 'reading the footer of <folder>/in/notes.txt: it is not Parquet: it begins with "late", not "PAR1"',
    hint: notParquet,
  },
  {
    what: "an input that is not ready",
    overrides: { input: { ready: "_SUCCESS" } },
    code: 75,
    says: "waiting for input: _SUCCESS (input.ready) is not there yet",
    hint: "run the same command again later; exit code 75 tells a scheduler to retry",
  },
  {
    what: "an input with fewer rows than min_rows",
    overrides: { input: { min_rows: 100_000 } },
    code: 75,
    says: "planning wine-forest: <project>/fixtures/data/wine/*.parquet has 178 rows in 5 files, input.min_rows is 100000",
    hint: later,
  },
  {
    what: "a shard that is not Parquet",
    overrides: inputOf("job.yaml"),
    code: 65,
    says: 'reading the footer of <folder>/job.yaml: it is not Parquet: it begins with "{\\n  ", not "PAR1"',
    hint: notParquet,
  },
  {
    what: "an output folder with foreign files",
    files: { out: null, "out/theirs.parquet": "x" },
    code: 64,
    says: "checking <folder>/out: theirs.parquet is there, which no run wrote",
    hint: "output.parquet.path must be a folder of its own",
  },
])("$what is refused, and the message says what to do", async ({ files = {}, overrides, code, says, hint }) => {
  for (const [name, text] of Object.entries(files)) {
    const path = join(scratch.path, name);
    await (text === null ? mkdir(path) : writeFile(path, text));
  }
  const spec = await writeSpec(scratch.path, wine, overrides);
  const said = await shownCli(["run", spec], scratch.path);
  expect(said).toBe(`exit ${code}\n--- stderr\nerror: ${says}\n  hint: ${hint}\n`);
});

const readable = "the first argument is the job spec, a YAML file this user can read";

test.each([
  ["that is missing", undefined, ": there is no such file or folder (ENOENT)", readable],
  ["that is a folder", null, ": it is a folder (EISDIR)", readable],
  [
    "that is not YAML",
    "version: 1\nname: [daily\ninput: x\n",
    ":3:1: Flow sequence in block collection must be sufficiently indented and end with a ]",
    "the file must be one YAML document",
  ],
])("a spec %s is refused, and the message says what to do", async (_what, text, says, hint) => {
  const path = join(scratch.path, "job.yaml");
  await (text === undefined ? undefined : text === null ? mkdir(path) : writeFile(path, text));
  const said = await shownCli(["run", path], scratch.path);
  expect(said).toBe(`exit 64\n--- stderr\nerror: reading <folder>/job.yaml${says}\n  hint: ${hint}\n`);
});
