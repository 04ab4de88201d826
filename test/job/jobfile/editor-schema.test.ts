import { spawnSync } from "node:child_process";
import { readFileSync } from "node:fs";
import { join } from "node:path";
import { expect, test } from "vitest";
import { parse } from "yaml";
import { projectFolder } from "../../support/cli.js";
import { schemaErrors } from "../../support/json-schema.js";

const { status, stdout } = spawnSync("git", ["ls-files", "*.yaml"], { cwd: projectFolder, encoding: "utf8" });
const read = (path: string): string => readFileSync(join(projectFolder, path), "utf8");
const specs = stdout.split("\n").filter((path) => path !== "" && /^version: 1$/m.test(read(path)));

test.skipIf(status !== 0).each(specs)("the JSON Schema for editors accepts %s", (path) => {
  expect(schemaErrors(parse(read(path)))).toEqual([]);
});

const minimal = {
  version: 1,
  name: "daily-churn",
  input: { path: "features/*.parquet" },
  model: { path: "models/churn.onnx" },
  output: { parquet: { path: "out" } },
};
const table = { table: "a.b", mode: "append" };

test.each<[string, object]>([
  ["a URL from the environment", { output: { postgres: { url: "${DATABASE_URL}", ...table } } }],
  ["params in a list of paths", { input: { path: ["a/dt=${ds}/*.parquet", "b/${ds}.parquet"] } }],
  ["a digest from a param", { model: { path: "m.onnx", sha256: "${digest}" } }],
  ["a param in the name of a table", { output: { postgres: { ...table, table: "scores.daily_${region}" } } }],
  ["a param where one of a few words is due", { output: { postgres: { ...table, mode: "${mode}" } } }],
  ["a provider from a param", { engine: { providers: ["${provider}", "cpu"] } }],
  ["a number from a param", { commit_rows: "${rows}" }],
])("the JSON Schema for editors accepts %s", (_, part) => {
  expect(schemaErrors({ ...minimal, ...part })).toEqual([]);
});

test.each<[string, object, RegExp]>([
  ["a misspelt key", { cheks: {} }, /cheks/],
  ["a key from a param", { input: { path: "a", columns: { "${name}": "1" } } }, /\/input\/columns/],
  ["an unknown mode", { output: { postgres: { ...table, mode: "upsrt" } } }, /\/output\/postgres\/mode/],
  ["a digest that is too short", { model: { path: "m.onnx", sha256: "abc" } }, /\/model\/sha256/],
  ["a number for a path", { input: { path: 7 } }, /\/input\/path/],
])("the JSON Schema for editors refuses %s", (_, part, error) => {
  expect(schemaErrors({ ...minimal, ...part }).join("\n")).toMatch(error);
});
