import { describe, expect, test } from "vitest";
import { load, minimalSpec, specRefusal } from "../../support/spec.js";

const withParam = (value: string, path: string): [string, object] => [
  `${minimalSpec.replace("in/*.parquet", JSON.stringify(path))}params: { p: "" }\n`,
  { params: { p: value } },
];

describe("a value with .. inside a path", () => {
  test.each(["..", "../x", "x/../../y", "/..", "..\\x", "x\\.."])("%j is refused", (value) => {
    expect(specRefusal(...withParam(value, "in/${p}/*.parquet"))).toBe(
      "64 SPEC_INVALID\nreading job.yaml:4:9: input.path: the value of ${p} contains .., which would lead out of the folder that the path names",
    );
  });

  test.each(["", "...", "a..b", "..a", "a..", "x/.y", "2026-01-31..2026-02-01"])("%j is not", (value) => {
    expect(load(...withParam(value, "in/${p}.parquet")).input.path).toEqual([`in/${value}.parquet`]);
  });

  test("a value with .. may be the beginning of a path", () => {
    expect(load(...withParam("../lake", "${p}/*.parquet")).input.path).toEqual(["../lake/*.parquet"]);
  });

  test("a value with .. is found in a param that another param is made from", () => {
    const text = minimalSpec.replace("path: out", 'path: "out/${q}"');
    expect(specRefusal(`${text}params: { p: "\${UP}", q: "a/\${p}" }\n`, { env: { UP: "../../.." } })).toContain(
      "params.q: the value of ${p} contains ..",
    );
  });

  test("a value with .. from the environment is not shown, because it may be a secret", () => {
    const text = minimalSpec.replace("path: out", 'path: "out/${UP}"');
    expect(specRefusal(text, { env: { UP: "/s3cr3t/.." } })).not.toContain("s3cr3t");
  });
});

test("params that double each other are refused before they fill memory", () => {
  const params = Array.from({ length: 60 }, (_, index) => `  p${index + 1}: "\${p${index}}\${p${index}}"`);
  const start = process.memoryUsage().rss;

  const said = specRefusal(`${minimalSpec}params:\n  p0: x\n${params.join("\n")}\n`);

  expect(said).toContain("params.p14: it has more than 16384 characters when it is filled in");
  expect(process.memoryUsage().rss - start).toBeLessThan(100 * 1024 * 1024);
});

test("params that repeat one long value many times are refused", () => {
  const text = minimalSpec.replace("path: out", `path: "${"${BIG}".repeat(2000)}"`);
  expect(specRefusal(text, { env: { BIG: "x".repeat(16_000) } })).toContain(
    "output.parquet.path: it has more than 16384 characters",
  );
});

test.each(["input.path", "input.ready", "model.path", "output.parquet.path"])("a NUL in %s is refused", (key) => {
  const name = { "input.path": "in/*.parquet", "model.path": "model.onnx", "output.parquet.path": "out" }[key];
  const text =
    name === undefined
      ? minimalSpec.replace("input:", 'input:\n  ready: "a\\0b"')
      : minimalSpec.replace(`path: ${name}`, 'path: "a\\0b"');
  expect(specRefusal(text)).toMatch(
    new RegExp(
      `^64 SPEC_INVALID\\nreading job\\.yaml:\\d+:\\d+: ${key}: found "a\\\\u0000b", expected a text without NUL`,
    ),
  );
});

const env = { SECRET: "s3cr3t of more than sixty characters, so that it would be cut off when it is quoted" };
test.each([
  ["name: daily", 'name: "${SECRET}"', 'found "${SECRET}", expected lower-case letters'],
  ["version: 1", 'version: "${SECRET}"', 'found "${SECRET}", expected 1'],
  ["path: model.onnx", 'path: m\n  sha256: "x${SECRET}"', 'found "x${SECRET}", expected 64 lower-case hex digits'],
  ["output:", 'timezone: "${SECRET}"\noutput:', 'found "${SECRET}", expected an IANA time zone'],
  ["output:", 'engine: { batch_size: "${SECRET}" }\noutput:', 'found "${SECRET}", expected auto or a number'],
  ["output:", 'max_rejects: "${SECRET}"\noutput:', 'found "${SECRET}", expected a count, or a percentage'],
  ["path: model.onnx", 'path: m\n  outputs: { a: "[${SECRET}" }', "expected a tensor's name or name[index]"],
  ["output:", 'output:\n  columns: ["${SECRET}"]', "expected a column"],
  [
    "output:",
    'output:\n  postgres: { url: "${SECRET}", table: t }',
    "found something else, made from ${SECRET}, expected postgres://",
  ],
  [
    "output:",
    'output:\n  postgres: { url: "x://u:${SECRET}@h/d", table: t }',
    "found something else, made from ${SECRET}, expected",
  ],
  ["output:", 'output:\n  postgres: { table: "x://u:${SECRET}@h/d" }', 'found "x://***@h/d", expected table'],
  ["input:", 'input:\n  format: "${SECRET}"', 'found "${SECRET}", expected parquet'],
])("a message never contains a value from the environment where %j became %j", (from, to, says) => {
  const said = specRefusal(
    minimalSpec.replace(from, () => to),
    { env },
  );
  expect(said).toContain(says);
  expect(said).not.toContain("s3cr3t");
});
