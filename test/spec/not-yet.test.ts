import { describe, expect, test } from "vitest";
import { load, minimalSpec, specRefusal } from "../support/spec.js";

/** Line by line: what of version 1 this release does not serve, and how it says so. */
const unsupported: readonly (readonly [string, string])[] = [
  ["engine.providers: cuda", `${minimalSpec}engine: { providers: [cuda, cpu] }\n`],
  ["engine.providers: tensorrt", `${minimalSpec}engine: { providers: [tensorrt] }\n`],
  ["engine.device_id", `${minimalSpec}engine: { device_id: 0 }\n`],
];

describe("what version 1 names and this release does not serve", () => {
  test.each(unsupported)("%s is refused by name", (name, text) => {
    const said = specRefusal(text);
    expect(said).toMatch(/^64 SPEC_UNSUPPORTED\nreading job\.yaml:\d+:\d+: /);
    const [key = "", value] = name.split(": ");
    expect(said).toMatch(new RegExp(`^reading job\\.yaml:\\d+:\\d+: ${key}(\\[\\d\\])?: `, "m"));
    expect(said).toContain(value === undefined ? "" : `\`${value}\``);
    expect(said).toContain("not supported yet");
  });

  test("in one go", () => {
    expect(`\n${[...new Set(unsupported.map(([, text]) => specRefusal(text)))].join("\n\n")}\n`).toMatchSnapshot();
  });

  test("is found behind a param", () => {
    const text = `${minimalSpec}engine: { providers: ["\${provider}"] }\nparams: { provider: cuda }\n`;
    expect(specRefusal(text)).toMatchInlineSnapshot(`
      "64 SPEC_UNSUPPORTED
      reading job.yaml:10:23: engine.providers[0]: \`cuda\` is not supported yet
      hint: docs/job-spec.md lists what this release serves"
    `);
  });

  test("is told together", () => {
    const text = `${minimalSpec}engine: { providers: [tensorrt], device_id: 1 }\n`;
    expect(specRefusal(text)).toMatchInlineSnapshot(`
      "64 SPEC_UNSUPPORTED
      reading 2 problems
        job.yaml:10:23: engine.providers[0]: \`tensorrt\` is not supported yet
        job.yaml:10:45: engine.device_id: not supported yet (GPU providers)
      hint: docs/job-spec.md lists what this release serves"
    `);
  });
});

describe("what is served", () => {
  test("may be asked for: what an earlier release refused", () => {
    const text = `${minimalSpec}on_bad_row: reject\nmax_rejects: 0.1%\n`
      .replace(
        "input:",
        "input:\n  verify: full\n  partitions: { dt: date }\n  columns: { a: ln(b) }\n  where: a is not null",
      )
      .replace("model:", "model:\n  cast: lossy\n  missing: nan");
    expect(load(text)).toMatchObject({
      on_bad_row: "reject",
      input: { verify: "full", partitions: { dt: "date" }, columns: { a: "ln(b)" }, where: "a is not null" },
      model: { cast: "lossy", missing: "nan" },
    });
  });

  test("may be spelt out, though it is the default", () => {
    const text = `${minimalSpec}on_bad_row: fail\nengine: { providers: [cpu] }\n`
      .replace("output:", "output:\n  lineage: false")
      .replace("input:", "input:\n  format: parquet\n  verify: pinned")
      .replace("model:", "model:\n  cast: exact\n  missing: bad_row");
    expect(load(text)).toEqual({ ...load(minimalSpec), input: { ...load(minimalSpec).input, format: "parquet" } });
  });
});
