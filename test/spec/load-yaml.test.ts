import { describe, expect, test } from "vitest";
import { load, minimalSpec, specRefusal } from "../support/spec.js";

describe("text that is not the YAML of a spec", () => {
  test("an empty file says what belongs in it", () => {
    expect(specRefusal("")).toMatchInlineSnapshot(`
      "64 SPEC_INVALID
      reading job.yaml:1:1: expected a mapping with version, name, input, model and output"
    `);
  });

  test("a file of comments only is as good as empty", () => {
    expect(specRefusal("# nothing yet\n")).toContain("expected a mapping with version, name, input, model and output");
  });

  test("a list is no spec", () => {
    expect(specRefusal("- version: 1\n")).toMatchInlineSnapshot(`
      "64 SPEC_INVALID
      reading job.yaml:1:1: expected a mapping with version, name, input, model and output"
    `);
  });

  test("a sentence is no spec", () => {
    expect(specRefusal("not a spec at all")).toMatchInlineSnapshot(`
      "64 SPEC_INVALID
      reading job.yaml:1:1: expected a mapping with version, name, input, model and output"
    `);
  });

  test("two documents in a file are refused", () => {
    expect(specRefusal(`${minimalSpec}---\n${minimalSpec}`)).toMatchInlineSnapshot(`
      "64 SPEC_INVALID
      reading job.yaml:10:1: a second document starts here
      hint: the file must be one YAML document"
    `);
  });

  test("a key that comes twice is named", () => {
    expect(specRefusal(`${minimalSpec}name: other\n`)).toMatch(/:10:1: .*\bname\b/);
  });

  test("the error for a key that comes twice says to remove one", () => {
    expect(specRefusal(`${minimalSpec}name: other\n`)).toMatchInlineSnapshot(`
      "64 SPEC_INVALID
      reading job.yaml:10:1: name: this key is here twice
      hint: remove one of them"
    `);
  });

  test("a bracket that is never closed is refused", () => {
    expect(specRefusal(`${minimalSpec}engine: { threads: 1\n`)).toMatchInlineSnapshot(`
      "64 SPEC_INVALID
      reading job.yaml:11:1: Flow map in block collection must be sufficiently indented and end with a }
      hint: the file must be one YAML document"
    `);
  });

  test("a tab for indentation is refused", () => {
    expect(specRefusal(minimalSpec.replace("  path: model", "\tpath: model"))).toMatchInlineSnapshot(`
      "64 SPEC_INVALID
      reading job.yaml:6:1: Tabs are not allowed as indentation
      hint: the file must be one YAML document"
    `);
  });

  test("an unquoted value with a colon in it is refused", () => {
    expect(specRefusal(minimalSpec.replace("model.onnx", "a: b.onnx"))).toMatchInlineSnapshot(`
      "64 SPEC_INVALID
      reading job.yaml:6:9: Nested mappings are not allowed in compact mappings
      hint: the file must be one YAML document"
    `);
  });
});

describe("YAML that makes a plain value something else", () => {
  test("an anchor", () => {
    expect(specRefusal(minimalSpec.replace("model.onnx", "&m model.onnx"))).toMatchInlineSnapshot(`
      "64 SPEC_INVALID
      reading job.yaml:6:12: YAML anchors and aliases are not allowed; write the value out"
    `);
  });

  test("an alias", () => {
    const said = specRefusal(`${minimalSpec.replace("model.onnx", "&m model.onnx")}commit_rows: *m\n`);
    expect(said).toContain("job.yaml:10:14: YAML anchors and aliases are not allowed; write the value out");
  });

  test("an alias without an anchor", () => {
    expect(specRefusal(minimalSpec.replace("model.onnx", "*m"))).toMatch(/^64 SPEC_INVALID\nreading job\.yaml:6:9: /);
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

  test("a merge key", () => {
    expect(specRefusal(`${minimalSpec}<<: { commit_rows: 5 }\n`)).toMatch(
      /^64 SPEC_INVALID\nreading job\.yaml:10:1: <<: unknown key/,
    );
  });

  test("a tag of one's own", () => {
    expect(specRefusal(minimalSpec.replace("model.onnx", "!env MODEL"))).toMatchInlineSnapshot(`
      "64 SPEC_INVALID
      reading job.yaml:6:14: YAML tags are not allowed; found !env"
    `);
  });

  test("a tag of YAML 1.1", () => {
    expect(specRefusal(minimalSpec.replace("model.onnx", "!!binary aGk="))).toMatch(
      /^64 SPEC_INVALID\nreading job\.yaml:6:/,
    );
  });

  test.each(["!env MODEL", "!!binary aGk=", "!!str x"])("%s is called a tag, which is not allowed", (value) => {
    expect(specRefusal(minimalSpec.replace("model.onnx", value))).toContain("YAML tags are not allowed");
  });
});

describe("a bomb", () => {
  const depth = 100_000;

  test("a bomb of brackets is refused for its depth", () => {
    expect(specRefusal(`${minimalSpec}x: ${"[".repeat(depth)}`)).toMatch(/^64 SPEC_INVALID\nreading job\.yaml.*nested/);
  });

  test("a bomb of closed brackets is refused", () => {
    expect(specRefusal(`${minimalSpec}x: ${"[".repeat(depth)}${"]".repeat(depth)}`)).toMatch(
      /^64 SPEC_INVALID\nreading job\.yaml/,
    );
  });

  test("a bomb of maps is refused", () => {
    const deep = 40_000;
    expect(specRefusal(`${minimalSpec}x: ${"{a: ".repeat(deep)}1${"}".repeat(deep)}`)).toMatch(
      /^64 SPEC_INVALID\nreading job\.yaml/,
    );
  });

  test("a bomb of block sequences is refused", () => {
    expect(specRefusal(`${minimalSpec}x:\n  ${"- ".repeat(depth)}1\n`)).toMatch(/^64 SPEC_INVALID\nreading job\.yaml/);
  });

  test.each([17, 40, 500, 2000])("a YAML bomb that the parser survives, %i deep, is refused for its depth", (deep) => {
    expect(specRefusal(`${minimalSpec}x: ${"[".repeat(deep)}${"]".repeat(deep)}`)).toMatch(
      /^64 SPEC_INVALID\nreading job\.yaml/,
    );
  });

  test("the error for a file that is nested a little too deep differs from that for a bomb", () => {
    expect(specRefusal(`${minimalSpec}x: ${"{a: ".repeat(60)}1${"}".repeat(60)}`)).toMatchInlineSnapshot(`
      "64 SPEC_INVALID
      reading job.yaml:10:61: nested more than 16 deep"
    `);
  });

  test("a YAML file that is too long is refused unread", () => {
    expect(specRefusal(`${minimalSpec}# ${"x".repeat(256 * 1024)}\n`)).toMatchInlineSnapshot(`
      "64 SPEC_INVALID
      reading job.yaml: it has more than 262144 characters
      hint: a job spec is a page of YAML; is this the right file?"
    `);
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
