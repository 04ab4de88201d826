import { rename, writeFile } from "node:fs/promises";
import { join } from "node:path";
import { describe, expect, test, vi } from "vitest";
import { type Output, safeOutput } from "#src/cli/io.js";
import { createLog } from "#src/cli/logger.js";
import { printable, printableLines } from "#src/base/texts.js";
import { html } from "#src/report/page/html.js";
import { type CliResult, runCli, runHere } from "../support/cli.js";
import { scratch, type SpecOverrides, writeSpec } from "../support/job.js";
import { writeModel } from "../support/onnx.js";
import { writeRows } from "../support/parquet.js";

/** Resets the terminal, turns text around, sets a title in C1, ends a line in three ways. */
const evil = "\u001Bc\u202E\u009D0;x\u009C\u2066\u061C\u200F\u2028\u2029\u007F\r";
const obeyed = /(?!\n)[\p{Cc}\p{Bidi_Control}\p{Zl}\p{Zp}]/u;

describe("printable", () => {
  test.each([
    ["\u001B[31m", "\\x1b[31m"],
    ["\r\t", "\\x0d\\x09"],
    ["\u007F\u0085\u009B", "\\u007f\\u0085\\u009b"],
    ["\u202A\u202B\u202C\u202D\u202E", "\\u202a\\u202b\\u202c\\u202d\\u202e"],
    ["\u2066\u2067\u2068\u2069", "\\u2066\\u2067\\u2068\\u2069"],
    ["\u200E\u200F\u061C", "\\u200e\\u200f\\u061c"],
    ["\u2028\u2029", "\\u2028\\u2029"],
    ["a\uD800b\uDC00", "a\\ud800b\\udc00"],
  ])("printable shows the control characters of %j as codes", (text, shown) => {
    expect([printable(text), printableLines(text)]).toEqual([shown, shown]);
  });

  test("printable shows newlines as codes, and printableLines keeps them", () => {
    expect([printable("a\nb"), printableLines("a\nb\n")]).toEqual(["a\\x0ab", "a\nb\n"]);
  });

  test.each(["müßig", "語", "שלום", "👩‍🚀", "नमस्ते", "می‌خواهم"])("printable keeps %s", (text) => {
    expect([printable(text), printableLines(text)]).toEqual([text, text]);
  });

  test("printableLines keeps the meaning of JSON", () => {
    const value = { [evil]: `${evil}\uD800\n` };
    const shown = printableLines(JSON.stringify(value));
    expect([JSON.parse(shown), obeyed.test(shown)]).toEqual([value, false]);
  });
});

/** A job whose shard and columns are called what a terminal would obey. */
async function evilJob(folder: string, overrides: SpecOverrides = {}): Promise<string> {
  const column = `f${evil}`.replaceAll(/[\u2028\u2029]/gu, ""); // DuckDB's own quoting is not what is tested
  await writeRows(
    join(folder, "a.parquet"),
    `SELECT range AS id, range::FLOAT AS x, range::FLOAT AS "${column}" FROM range(10)`,
  );
  await rename(join(folder, "a.parquet"), join(folder, `a${evil}\n.parquet`));
  await writeModel(join(folder, "model.onnx"), {
    inputs: [{ name: "x", dtype: "float32", shape: ["N", 1] }],
    outputs: [{ name: `y${evil}`, dtype: "float32", shape: ["N", 1] }],
    nodes: [{ op: "Log", from: ["x"], to: `y${evil}` }],
  });
  const evilModel = { name: "evil", table: "", model: "", rows: 0, outputs: { score: `y${evil}` } };
  return await writeSpec(folder, evilModel, {
    input: { path: "*.parquet" },
    model: { path: "model.onnx" },
    on_bad_row: "reject",
    max_rejects: "100%",
    ...overrides,
  });
}

function expectSafe({ code, stdout, stderr }: CliResult, ends: number): void {
  expect([code, obeyed.exec(stdout)?.[0], obeyed.exec(stderr)?.[0]], stderr).toEqual([ends, undefined, undefined]);
}

describe("terminal safety of commands", () => {
  test.each([["plan"], ["validate"], ["run"], ["status"], ["doctor"]])(
    "%s writes no control character from names of shards, columns and tensors",
    async (command, ...options) => {
      const spec = await evilJob(scratch.path);
      expectSafe(await runCli([command, spec, ...options]), 0);
    },
  );

  test("rejects writes no control character from rejected rows", async () => {
    const spec = await evilJob(scratch.path);
    expectSafe(await runHere(["run", spec]), 0);
    const said = await runHere(["rejects", spec]);
    expectSafe(said, 0);
    expect(said.stdout).toContain("\\u202e");
  });

  test("plan shows each shard in one line of its own", async () => {
    const { stdout } = await runHere(["plan", await evilJob(scratch.path)]);
    expect(stdout).toContain(
      "a\\x1bc\\u202e\\u009d0;x\\u009c\\u2066\\u061c\\u200f\\u2028\\u2029\\u007f\\x0d\\x0a.parquet  10 rows",
    );
  });

  test.each(["plan", "run", "status"])("%s --json is one line of JSON", async (command) => {
    const spec = await evilJob(scratch.path);
    const said = await runHere([command, spec, "--json"]);
    expectSafe(said, 0);
    expect([said.stdout.split("\n").length, JSON.parse(said.stdout)]).toEqual([2, expect.any(Object)]);
  });

  test.each([[], ["--json"]])("inspect %j writes no control character", async (...options) => {
    await evilJob(scratch.path);
    for (const name of [`a${evil}\n.parquet`, "model.onnx"]) {
      const said = await runHere(["inspect", join(scratch.path, name), ...options]);
      expectSafe(said, 0);
      expect(said.stdout).toContain("\\u202e");
    }
  });

  test("a binding error writes no control character, as text and as JSON", async () => {
    const spec = await evilJob(scratch.path, { model: { path: "model.onnx", inputs: { x: [`gone${evil}`] } } });
    const pretty = await runHere(["run", spec]);
    expectSafe(pretty, 64);
    expect(pretty.stderr.split("\n").length).toBeGreaterThan(4);
    const json = await runHere(["run", spec, "--log-format", "json"]);
    expectSafe(json, 64);
    expect(JSON.parse(json.stderr.trim().split("\n").at(-1) ?? "")).toMatchObject({
      code: "CONTRACT",
      msg: expect.stringContaining(evil),
    });
  });

  test.each([
    [["run", `${evil}.yaml`]],
    [["run", "job.yaml", `--${evil}`]],
    [[evil]],
    [["inspect", evil]],
    [["run", "jobs/daily.yaml", "--param", evil]],
  ])("a usage error writes no control character from arguments %j", async (args) => {
    expectSafe(await runHere(args), 64);
  });

  test("a spec error writes no control character from a key", async () => {
    const spec = join(scratch.path, "job.yaml");
    await writeFile(spec, `version: 1\n"na${JSON.stringify(evil).slice(1, -1)}me": x\n`);
    expectSafe(await runHere(["plan", spec]), 64);
  });
});

function logged(format: "pretty" | "json"): string {
  let text = "";
  const raw = { isTTY: true, write: (more: string) => (text += more) } as unknown as Output;
  vi.stubEnv("NO_COLOR", "");
  createLog(safeOutput(raw), { logLevel: "info", logFormat: format }).warn(`found ${evil}\nand more`);
  return text;
}

describe("log lines", () => {
  test("log lines keep their colours and newlines, and no other control character", () => {
    const [first = "", second = ""] = logged("pretty").split("\n");
    expect(first).toContain("\u001B[33mWARN\u001B[39m");
    expect([first.includes("found \\x1bc\\u202e"), second]).toEqual([true, "and more\u001B[39m"]);
    expect(obeyed.test(logged("pretty").replaceAll(/\p{Cc}\[\d+m/gu, ""))).toBe(false);
  });

  test("log lines in JSON are one line each, and complete", () => {
    const text = logged("json");
    expect([JSON.parse(text), obeyed.test(text)]).toMatchObject([{ msg: `found ${evil}\nand more` }, false]);
  });
});

test("an HTML page shows control characters in names as codes", () => {
  expect(html`<td>${`<b>${evil}`}</td>`.markup).toBe(
    "<td>&lt;b&gt;\\x1bc\\u202e\\u009d0;x\\u009c\\u2066\\u061c\\u200f\\u2028\\u2029\\u007f\\x0d</td>",
  );
});
