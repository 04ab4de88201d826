import { spawnSync } from "node:child_process";
import { readFileSync } from "node:fs";
import { cp, mkdir } from "node:fs/promises";
import { join } from "node:path";
import { expect, test } from "vitest";
import { parse, stringify } from "yaml";
import { loadSpec } from "#src/job/jobfile/load.js";
import { projectFolder, runCli } from "../support/cli.js";
import { scratch } from "../support/job.js";
import { schemaErrors } from "../support/json-schema.js";

const { status, stdout } = spawnSync("git", ["ls-files", "*.md"], { cwd: projectFolder, encoding: "utf8" });
const pages = stdout.split("\n").filter((path) => /^(?:README\.md|(?:docs|deploy|examples)\/.*)$/.test(path));

/** The fenced blocks of a page that are of one language. */
function blocks(page: string, language: string): string[] {
  const text = readFileSync(join(projectFolder, page), "utf8");
  return [...text.matchAll(new RegExp(`^\`\`\`${language}\\n([^]*?)^\`\`\``, "gm"))].map(([, block = ""]) => block);
}

type Mapping = Record<string, unknown>;

const isMapping = (value: unknown): value is Mapping =>
  typeof value === "object" && value !== null && !Array.isArray(value);

function merged(base: Mapping, other: Mapping): Mapping {
  const both = Object.entries(other).map(([key, value]): [string, unknown] => {
    const inBase = base[key];
    return [key, isMapping(inBase) && isMapping(value) ? merged(inBase, value) : value];
  });
  return { ...base, ...Object.fromEntries(both) };
}

/** What a page leaves out of a spec. */
const rest = { version: 1, name: "example", params: { ds: "2026-01-31" }, input: { path: "features/*.parquet" } };
const modelFile = { path: "model.onnx" };
const target = { parquet: { path: "out/dt=${ds}" } };

/** Loads a spec, or part of one that is completed. Returns the spec's text. @throws JobError */
function load(block: string): string {
  const given = parse(block) as Mapping;
  const output = isMapping(given["output"]) ? given["output"] : {};
  const isTable = isMapping(given["input"]) && ["table", "kafka"].some((key) => key in Object(given["input"]));
  const isServed = isMapping(given["model"]) && "server" in given["model"];
  const isWhole = ["parquet", "delta", "iceberg", "postgres"].some((key) => key in output);
  const text =
    "version" in given
      ? block
      : stringify(
          merged(
            {
              ...rest,
              input: isTable ? {} : rest.input,
              model: isServed ? {} : modelFile,
              output: isWhole ? {} : target,
            },
            given,
          ),
        );
  const env = {
    DATABASE_URL: "postgres://user@host/database",
    HC_UUID: "0",
    OPENLINEAGE_URL: "http://marquez:5000",
    PING_URL: "https://hc-ping.com/0",
    SERVING_TOKEN: "token",
    API_KEY: "key",
    OPENLINEAGE_TOKEN: "token",
    CHAT_WEBHOOK: "https://chat.example.org/hook",
    OPENAI_API_KEY: "token",
    CATALOG_TOKEN: "token",
    KAFKA_PASSWORD: "password",
    REDIS_URL: "redis://cache.example.com",
  };
  loadSpec(text, { file: "job.yaml", params: {}, env, nowMs: 0 });
  return text;
}

const specs = pages.flatMap((page) => blocks(page, "yaml").map((block, index) => ({ page, block, index: index + 1 })));

test.skipIf(status !== 0).each(specs)(
  "example $index of $page is a spec that the program and the JSON Schema for editors accept",
  ({ block }) => {
    expect(schemaErrors(parse(load(block)))).toEqual([]);
  },
);

test("an example with a mistake is refused", () => {
  expect(specs.length).toBeGreaterThan(10);
  expect(() => {
    load("output: { postgres: { table: scores.daily, mode: append, key: [id] } }");
  }).toThrow("mode append does not use a key");
});

test("README.md has the two commands of a fresh clone, each on a line of its own", () => {
  const lines = blocks("README.md", "sh").flatMap((block) => block.split("\n"));
  expect(lines).toContain("npm ci && npx infer-batch run jobs/daily.yaml");
  expect(lines).toContain("npm ci && npm test");
});

/** Commands of a page about the example job, each with what it prints there. */
function sessions(page: string): { args: string[]; printed: string }[] {
  return blocks(page, "console").flatMap((block) =>
    block
      .split(/^\$ /m)
      .filter((text) => text.startsWith("npx infer-batch ") && text.includes("jobs/daily.yaml"))
      .map((text) => {
        const [line = "", ...printed] = text.split("\n");
        return { args: line.split(" ").slice(2), printed: printed.join("\n") };
      }),
  );
}

/** Without times of day and speeds. */
const still = (text: string): string =>
  text
    .replaceAll(/^\[(?:\d{4}-\d\d-\d\d )?\d\d:\d\d:\d\d\]/gm, "[time]")
    .replaceAll(/in \d+\.\d s \([\d.]+ ?[kM]? rows\/s\)/g, "in a while");

test("the sessions over the example job that pages show are what the commands print, one after the other", async () => {
  for (const folder of ["jobs", "fixtures/data/cancer", "fixtures/models"]) {
    await mkdir(join(scratch.path, folder), { recursive: true });
    await cp(join(projectFolder, folder), join(scratch.path, folder), { recursive: true });
  }
  const shown = ["docs/quickstart.md", "README.md", "docs/runbook.md"].flatMap(sessions);
  expect(shown.map(({ args }) => args[0])).toEqual(["plan", "run", "run", "status"]);
  for (const { args, printed } of shown) {
    const said = await runCli(args, { cwd: scratch.path });
    expect(still(`${said.stderr}${said.stdout}`)).toBe(still(printed));
  }
});
