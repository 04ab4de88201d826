import { describe, expect, test } from "vitest";
import { load, minimalSpec, specRefusal } from "../../support/spec.js";

const withInput = (source: string): string =>
  minimalSpec.replace("  path: model", `  inputs: { ids: { ${source} } }\n  path: model`);

const wrong: readonly (readonly [string, string])[] = [
  ["a version to come", minimalSpec.replace("version: 1", "version: 2")],
  ["a version in quotes", minimalSpec.replace("version: 1", 'version: "1"')],
  ["a name with blanks", minimalSpec.replace("daily", "Daily Scores")],
  ["a name that is a number", minimalSpec.replace("daily", "2026")],
  ["an unknown time zone", `${minimalSpec}timezone: Berlin\n`],
  ["an empty path", minimalSpec.replace("in/*.parquet", '""')],
  ["an empty list of paths", minimalSpec.replace("in/*.parquet", "[]")],
  ["a list of paths with a number in it", minimalSpec.replace("in/*.parquet", "[a.parquet, 7]")],
  ["a mapping for a path", minimalSpec.replace("in/*.parquet", "{ a: b }")],
  ["a mapping for a text", minimalSpec.replace("model.onnx", "{ a: b }")],
  ["an empty model path", minimalSpec.replace("model.onnx", '""')],
  ["a text for a mapping", minimalSpec.replace("\n  path: in/*.parquet", " in/*.parquet")],
  ["an unknown format", minimalSpec.replace("  path: in", "  format: csv\n  path: in")],
  ["negative min_rows", minimalSpec.replace("  path: in", "  min_rows: -1\n  path: in")],
  ["a digest that is too short", minimalSpec.replace("  path: model", "  sha256: 0f3c\n  path: model")],
  ["a text for a list of columns", minimalSpec.replace("output:", "output:\n  columns: id")],
  ["a column name with a blank", minimalSpec.replace("output:", "output:\n  columns: [id, customer id]")],
  [
    "a column name with a digit first",
    minimalSpec.replace("  path: model", "  outputs: { 1st: score }\n  path: model"),
  ],
  ["no columns for an input", minimalSpec.replace("  path: model", "  inputs: { features: [] }\n  path: model")],
  [
    "one column for an input, not in a list",
    minimalSpec.replace("  path: model", "  inputs: { features: f0 }\n  path: model"),
  ],
  ["a column that nothing says how to pad", withInput("column: tokens")],
  ["padding of no column", withInput("pad: { to: 8 }")],
  ["an unknown key beside them", withInput("column: tokens, pad: { to: 8 }, max: 8")],
  ["an unknown key in pad", withInput("column: tokens, pad: { too: 8 }")],
  ["padding to no element", withInput("column: tokens, pad: { to: 0 }")],
  ["an unknown side", withInput("column: tokens, pad: { side: top }")],
  ["a word to pad with", withInput("column: tokens, pad: { value: x }")],
  ["a number for a flag", withInput("column: tokens, pad: { truncate: 1 }")],
  ["a mask that is padded", withInput("mask_of: ids, pad: { to: 8 }")],
  ["texts without a tokenizer", withInput("tokenize: body")],
  ["a tokenizer without texts", withInput("tokenizer: t.json, max: 8")],
  ["texts that are padded", withInput("tokenize: body, tokenizer: t.json, pad: { to: 8 }")],
  ["texts of one token", withInput("tokenize: body, tokenizer: t.json, max: 1")],
  ["a tokenizer at a URL", withInput("tokenize: body, tokenizer: https://example.com/t.json")],
  ["a tokenizer in a registry of models", withInput("tokenize: body, tokenizer: models:/t@latest")],
  ["a mask of two", withInput("mask_of: [ids, types]")],
  ["nothing for an input", withInput("")],
  ["an output that is a number", minimalSpec.replace("  path: model", "  outputs: { score: 1 }\n  path: model")],
  ["an unknown compression", `${minimalSpec}    compression: lz4\n`],
  ["an unknown provider", `${minimalSpec}engine: { providers: [gpu] }\n`],
  ["no provider", `${minimalSpec}engine: { providers: [] }\n`],
  ["a provider that is not in a list", `${minimalSpec}engine: { providers: cpu }\n`],
  ["a provider named twice", `${minimalSpec}engine: { providers: [cuda, cuda] }\n`],
  ["cpu before another provider", `${minimalSpec}engine: { providers: [cpu, cuda] }\n`],
  ["a device of no machine", `${minimalSpec}engine: { device_id: 128 }\n`],
  ["a device by its name", `${minimalSpec}engine: { device_id: gpu0 }\n`],
  ["batch_size 0", `${minimalSpec}engine: { batch_size: 0 }\n`],
  ["a batch_size with a fraction", `${minimalSpec}engine: { batch_size: 1.5 }\n`],
  ["a batch_size in words", `${minimalSpec}engine: { batch_size: many }\n`],
  ["commit_rows over the limit", `${minimalSpec}commit_rows: 100000001\n`],
  ["an unknown on_bad_row", `${minimalSpec}on_bad_row: skip\n`],
  ["lineage: yes", minimalSpec.replace("output:", "output:\n  lineage: yes")],
  ["a param name with a dash", `${minimalSpec}params: { my-day: x }\n`],
  ["params in a list", `${minimalSpec}params: [ds]\n`],
  ["a list for a param", `${minimalSpec}params: { ds: [a] }\n`],
];

describe("a value of the wrong kind", () => {
  test("a value of the wrong kind is reported with what was found and what is expected", () => {
    const said = wrong.map(([what, text]) => `# ${what}\n${specRefusal(text)}`);
    expect(`\n${said.join("\n\n")}\n`).toMatchSnapshot();
  });

  test("a long wrong value is shortened in the message", () => {
    const said = specRefusal(minimalSpec.replace("daily", "X".repeat(1000)));
    expect(said.length).toBeLessThan(250);
    expect(said).toContain("…");
  });
});

const challenged = (ofModel: string, ofChallenger: string): string =>
  `${minimalSpec.replace("model.onnx", `model.onnx\n${ofModel}`)}challenger: { path: b.onnx${ofChallenger} }\n`;

describe("a challenger", () => {
  test.each([
    ["", "", "bad_row", "exact"],
    ["  missing: nan\n  cast: lossy", "", "nan", "lossy"],
    ["  missing: nan\n  cast: lossy", ", missing: bad_row, cast: exact", "bad_row", "exact"],
    ["", ", missing: nan, cast: lossy", "nan", "lossy"],
  ])("takes the rows that the model takes, unless it says otherwise: %j and %j", (model, own, missing, cast) => {
    expect(load(challenged(model, own)).challenger).toMatchObject({ missing, cast });
  });
});
