import { readFile } from "node:fs/promises";
import { join } from "node:path";
import { describe, expect, test, vi } from "vitest";
import { examplesOfAll } from "#src/cli/program.js";
import { projectFolder, runCli, runHere } from "../support/cli.js";
import { fixtures, scratch, writeSpec } from "../support/job.js";
import { shownCli } from "../support/shown.js";
import { safeOutput, writeNotice } from "#src/cli/io.js";

const here = "/nowhere";

const examples = await examplesOfAll();

describe("help", () => {
  test.each([
    ["--help"],
    ["run", "--help"],
    ["plan", "--help"],
    ["validate", "--help"],
    ["status", "--help"],
    ["pipe", "--help"],
    ["inspect", "--help"],
    ["schema", "--help"],
  ])("%s %s", async (...args) => {
    expect(await shownCli(args, here)).toMatchSnapshot();
  });

  test("the help has at most 350 words: examples first, then the commands by what a user wants", async () => {
    const { stdout } = await runHere(["--help"]);
    expect(stdout.split(/\s+/).length).toBeLessThanOrEqual(350);
    const groups = [...stdout.matchAll(/^(\w+(?: \w+)?):$/gm)].map(([, name]) => name);
    expect(groups).toEqual(["Examples", "Options", "Start", "Run", "Look", "Decide", "Clean", "Exit codes"]);
    for (const name of Object.keys(examples)) {
      expect(stdout).toMatch(new RegExp(`^  ${name} +[A-Z].*[^.]$`, "m"));
    }
  });

  test("help is the same however it is requested", async () => {
    expect(await runHere(["--help"])).toEqual(await runHere(["help"]));
  });

  test("a command line without a command prints help, and exits with 64", async () => {
    const { code, stdout, stderr } = await runHere([]);
    expect([code, stdout]).toEqual([64, ""]);
    expect(stderr).toContain("Usage: infer-batch");
  });

  test.each(Object.entries(examples).flatMap(([name, lines]) => lines.map((line) => [name, line] as const)))(
    "the example of %s has options that the command knows: %s",
    async (name, line) => {
      const [, given = ""] = /infer-batch ([^>|]*)/.exec(line) ?? [];
      // The command itself is not carried out: no file of these names exists.
      const { stderr } = await runHere([...given.trim().split(" "), "--unknown-option"]);
      expect(given).toMatch(new RegExp(`^${name} `));
      expect(stderr).toMatch(/unknown option '--unknown-option'/);
    },
  );

  test("help does not load the native libraries", async () => {
    const trap = "data:text/javascript,process.dlopen=()=>{throw new Error('native')}";
    expect((await runCli(["--help"], { node: [`--import=${trap}`] })).code).toBe(0);
    // The trap works: a command that needs them runs into it.
    expect((await runCli(["validate", "jobs/daily.yaml"], { node: [`--import=${trap}`] })).stderr).toContain("native");
  });
});

test("--version prints the version of the package and nothing else", async () => {
  const { version } = JSON.parse(await readFile(join(projectFolder, "package.json"), "utf8")) as { version: string };
  expect(await runCli(["--version"])).toEqual({ code: 0, signal: null, stdout: `${version}\n`, stderr: "" });
});

describe("what is not understood ends in 64, with nothing on stdout", () => {
  test.each([
    [["rnu", "job.yaml"]],
    [["frobnicate"]],
    [["run"]],
    [["run", "a.yaml", "b.yaml"]],
    [["run", "a.yaml", "--param", "ds", "2026-11-20"]],
    [["init", "--model", "a.onnx", "--input", "in/1.parquet", "in/2.parquet", "in/3.parquet"]],
    [["run", "job.yaml", "--jsno"]],
    [["run", "job.yaml", "--log-level", "loud"]],
    [["run", "job.yaml", "--param"]],
    [["run", "jobs/daily.yaml", "--param", "ds"]],
    [["run", "jobs/daily.yaml", "--param", "=x"]],
    [["run", "jobs/daily.yaml", "--param", "sd=x"]],
    [["plan", "job.yaml", "--quiet"]],
    [["inspect"]],
    [["inspect", "a.onnx", "b.onnx"]],
  ])("%j", async (args) => {
    const said = await shownCli(args, here);
    expect(said).toMatch(/^exit 64\n--- stderr\nerror: /);
    expect(said).toMatchSnapshot();
  });

  test.each(Object.entries(examples))(
    "a mistake in a line of %s shows how it is used, and an example",
    async (name, lines) => {
      const { stderr } = await runHere([name, "--no-such"]);
      const [first = `infer-batch ${name} job.yaml`] = lines;
      expect(stderr).toContain(`\n  usage: infer-batch ${name} [options]`);
      expect(stderr).toContain(`\n  such as: ${first}\n(infer-batch ${name} --help lists the options)\n`);
    },
  );
});

const withParams = async (folder: string): Promise<string> =>
  await writeSpec(folder, fixtures[2] as (typeof fixtures)[number], {
    params: { ds: "a", region: "b" },
    output: { parquet: { path: "out/${ds}/${region}" } },
  });

describe("--param", () => {
  test("--param may be repeated, after the spec", async () => {
    const spec = await withParams(scratch.path);
    const { code, stdout } = await runHere(["status", spec, "--param", "ds=x=y", "--param", "region=z"]);
    expect([code, stdout]).toEqual([0, expect.stringContaining(join(scratch.path, "out/x=y/z"))]);
  });

  test("--param may come before the spec", async () => {
    const spec = await withParams(scratch.path);
    const { code, stdout } = await runHere(["status", "--param", "ds=x", spec]);
    expect([code, stdout]).toEqual([0, expect.stringContaining(join(scratch.path, "out/x/b"))]);
  });

  test("--param __proto__=x is not ignored silently", async () => {
    const spec = await withParams(scratch.path);
    expect((await runHere(["status", spec, "--param", "__proto__=x"])).code).toBe(64);
  });
});

describe("schema", () => {
  test("schema prints the schema in jobs/infer-batch.schema.json", async () => {
    const { code, stdout, stderr } = await runHere(["schema"]);
    expect([code, stderr]).toEqual([0, ""]);
    // Kept fresh with: node bin/infer-batch.js schema > jobs/infer-batch.schema.json
    expect(stdout).toBe(await readFile(join(projectFolder, "jobs/infer-batch.schema.json"), "utf8"));
  });

  test("schema: the example job names jobs/infer-batch.schema.json", async () => {
    const job = await readFile(join(projectFolder, "jobs/daily.yaml"), "utf8");
    expect(job.split("\n")[0]).toBe("# yaml-language-server: $schema=./infer-batch.schema.json");
  });

  test("schema exits with 0 when its reader stops early", async () => {
    const { code, stderr } = await runCli(["schema"], {
      onStart: (child) => (child as { stdout?: { destroy(): void } }).stdout?.destroy(),
    });
    expect([code, stderr]).toEqual([0, ""]);
  });
});

/** What is written to a stream for a message with a control character. */
function written(isTTY: boolean): string {
  let text = "";
  const stream = { isTTY, fd: 2, write: (chunk: string) => (text += chunk) } as unknown as NodeJS.WriteStream & {
    fd: number;
  };
  writeNotice(safeOutput(stream), "error: reading a\u001b[31mb\n  hint: error: is no start of a line\n");
  return text;
}

const plain = "error: reading a\\x1b[31mb\n  hint: error: is no start of a line\n";

test("on a terminal `error:` and `hint:` have colours, and nothing that a message quotes does", () => {
  vi.stubEnv("NO_COLOR", "");
  const text = written(true);
  expect(text.replaceAll(/\p{Cc}\[\d+m/gu, "")).toBe(plain);
  expect(text.startsWith("\u001b[")).toBe(true);
  expect(text.match(/\p{Cc}\[36m/gu)).toHaveLength(1);
  expect(written(false)).toBe(plain);
  vi.stubEnv("NO_COLOR", "1");
  expect(written(true)).toBe(plain);
  vi.unstubAllEnvs();
});
