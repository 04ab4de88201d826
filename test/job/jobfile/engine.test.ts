import { describe, expect, test } from "vitest";
import { load, minimalSpec } from "../../support/spec.js";

const engineOf = (text: string): unknown => load(`${minimalSpec}engine: ${text}\n`).engine;

describe("engine", () => {
  test.each([
    ["[cuda]", ["cuda"]],
    ["[cuda, cpu]", ["cuda", "cpu"]],
    ["[tensorrt, cuda, cpu]", ["tensorrt", "cuda", "cpu"]],
    ["[cuda, tensorrt]", ["cuda", "tensorrt"]],
  ])("engine takes the providers %s in this order", (text, providers) => {
    expect(engineOf(`{ providers: ${text} }`)).toMatchObject({ providers });
  });

  test.each([
    ["1", 1],
    ["worker", "worker"],
    ['"${gpu}"', 3],
  ])("engine takes the device %s", (text, device) => {
    const spec = load(`${minimalSpec}engine: { providers: [cuda], device_id: ${text} }\nparams: { gpu: 3 }\n`);
    expect(spec.engine.device_id).toBe(device);
  });

  test.each([
    ["auto", "auto"],
    ["64MiB", 64 * 1024 ** 2],
    ["512MiB", 512 * 1024 ** 2],
    ["1.5GiB", 1.5 * 1024 ** 3],
    ['"${size}"', 2 * 1024 ** 3],
  ])("engine takes the memory %s", (text, memory) => {
    const spec = load(`${minimalSpec}engine: { memory: ${text} }\nparams: { size: 2GiB }\n`);
    expect(spec.engine.memory).toBe(memory);
  });

  test.each(["2GB", "32MiB", "2048", "-1GiB", "[1GiB]"])("engine refuses the memory %s, with its place", (text) => {
    expect(() => load(`${minimalSpec}engine:\n  memory: ${text}\n`)).toThrow(
      /job.yaml:\d+:11: engine.memory: found .*, expected auto or a size from 64MiB, such as 512MiB or 2GiB/,
    );
  });

  test("engine accepts settings that an earlier release refused", () => {
    const text = `${minimalSpec}on_bad_row: fail\nengine: { providers: [cpu], device_id: 0 }\n`
      .replace("output:", "output:\n  lineage: false")
      .replace("input:", "input:\n  format: parquet\n  verify: pinned")
      .replace("model:", "model:\n  cast: exact\n  missing: bad_row");
    expect(load(text)).toEqual({ ...load(minimalSpec), input: { ...load(minimalSpec).input, format: "parquet" } });
  });
});
