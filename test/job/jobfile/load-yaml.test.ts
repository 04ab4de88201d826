import { describe, expect, test } from "vitest";
import { load, minimalSpec, refusalOf, specRefusal } from "../../support/spec.js";

const mapping = "job.yaml:1:1: expected a mapping with version, name, input, model and output";
const oneDocument = "\nhint: the file must be one YAML document";

test.each([
  ["an empty file", "", mapping],
  ["a file of comments only", "# nothing yet\n", mapping],
  ["a list", "- version: 1\n", mapping],
  ["a sentence", "not a spec at all", mapping],
  [
    "a file of two documents",
    `${minimalSpec}---\n${minimalSpec}`,
    `job.yaml:10:1: a second document starts here${oneDocument}`,
  ],
  [
    "a key that comes twice",
    `${minimalSpec}name: other\n`,
    "job.yaml:10:1: name: this key is here twice\nhint: remove one of them",
  ],
  [
    "a bracket that is never closed",
    `${minimalSpec}engine: { threads: 1\n`,
    `job.yaml:11:1: Flow map in block collection must be sufficiently indented and end with a }${oneDocument}`,
  ],
  [
    "a tab for indentation",
    minimalSpec.replace("  path: model", "\tpath: model"),
    `job.yaml:6:1: Tabs are not allowed as indentation${oneDocument}`,
  ],
  [
    "an unquoted value with a colon in it",
    minimalSpec.replace("model.onnx", "a: b.onnx"),
    `job.yaml:6:9: Nested mappings are not allowed in compact mappings${oneDocument}`,
  ],
])("%s is refused", (_what, text, problem) => {
  expect(specRefusal(text)).toBe(refusalOf(problem));
});

describe("YAML that makes a plain value something else", () => {
  const anchors = "YAML anchors and aliases are not allowed; write the value out";

  test.each([
    ["an anchor", minimalSpec.replace("model.onnx", "&m model.onnx"), `job.yaml:6:12: ${anchors}`],
    [
      "an alias",
      `${minimalSpec.replace("model.onnx", "&m model.onnx")}commit_rows: *m\n`,
      `job.yaml:10:14: ${anchors}`,
    ],
    ["an alias without an anchor", minimalSpec.replace("model.onnx", "*m"), "reading job.yaml:6:9: "],
    ["a merge key", `${minimalSpec}<<: { commit_rows: 5 }\n`, "reading job.yaml:10:1: <<: unknown key"],
    [
      "a tag of one's own",
      minimalSpec.replace("model.onnx", "!env MODEL"),
      "job.yaml:6:14: YAML tags are not allowed; found !env",
    ],
    ["a tag of YAML 1.1", minimalSpec.replace("model.onnx", "!!binary aGk="), "YAML tags are not allowed"],
    ["a tag that YAML knows", minimalSpec.replace("model.onnx", "!!str x"), "YAML tags are not allowed"],
  ])("%s is refused", (_what, text, problem) => {
    const said = specRefusal(text);
    expect(said).toMatch(/^64 SPEC_INVALID\n/);
    expect(said).toContain(problem);
  });

  test("aliases that would grow a small file into gigabytes", () => {
    const levels = Array.from(
      { length: 9 },
      (_, index) => `l${index + 1}: &l${index + 1} [${`*l${index}, `.repeat(9)}]`,
    );
    expect(specRefusal(`${minimalSpec}l0: &l0 [x]\n${levels.join("\n")}\n`)).toContain(
      "anchors and aliases are not allowed",
    );
  });
});

describe("a bomb", () => {
  const depth = 100_000;

  test("a bomb of brackets is refused for its depth", () => {
    expect(specRefusal(`${minimalSpec}x: ${"[".repeat(depth)}`)).toMatch(/^64 SPEC_INVALID\nreading job\.yaml.*nested/);
  });

  test.each([
    ["closed brackets", `x: ${"[".repeat(depth)}${"]".repeat(depth)}`],
    ["maps", `x: ${"{a: ".repeat(40_000)}1${"}".repeat(40_000)}`],
    ["block sequences", `x:\n  ${"- ".repeat(depth)}1\n`],
  ])("a bomb of %s is refused", (_what, text) => {
    expect(specRefusal(`${minimalSpec}${text}`)).toMatch(/^64 SPEC_INVALID\nreading job\.yaml/);
  });

  test.each([17, 40, 500, 2000])("a YAML bomb that the parser survives, %i deep, is refused for its depth", (deep) => {
    expect(specRefusal(`${minimalSpec}x: ${"[".repeat(deep)}${"]".repeat(deep)}`)).toMatch(
      /^64 SPEC_INVALID\nreading job\.yaml/,
    );
  });

  test("the error for a file that is nested a little too deep differs from that for a bomb", () => {
    const text = `${minimalSpec}x: ${"{a: ".repeat(60)}1${"}".repeat(60)}`;
    expect(specRefusal(text)).toBe(refusalOf("job.yaml:10:61: nested more than 16 deep"));
  });

  test("a YAML file that is too long is refused unread", () => {
    const problem =
      "job.yaml: it has more than 262144 characters\nhint: a job spec is a page of YAML; is this the right file?";
    expect(specRefusal(`${minimalSpec}# ${"x".repeat(256 * 1024)}\n`)).toBe(refusalOf(problem));
  });
});

describe("what editors leave behind", () => {
  test("a byte order mark is read over", () => {
    expect(load(`\ufeff${minimalSpec}`)).toEqual(load(minimalSpec));
  });

  test("CRLF line ends are read, and lines counted", () => {
    const text = minimalSpec.replaceAll("\n", "\r\n");
    expect(load(text)).toEqual(load(minimalSpec));
    expect(specRefusal(text.replace("  path: model", "  pth: model"))).toContain("job.yaml:6:3: model.pth");
  });

  test("a text just within the size limit is read", () => {
    const padding = 256 * 1024 - minimalSpec.length - 2;
    expect(load(`${minimalSpec}#${"x".repeat(padding)}\n`)).toEqual(load(minimalSpec));
  });
});
