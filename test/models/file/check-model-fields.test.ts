import { readdir, readFile } from "node:fs/promises";
import { join } from "node:path";
import { expect, test } from "vitest";
import { checkModelFields } from "#src/models/file/proto.js";
import { openModelFile } from "#src/models/places/model-file.js";
import { projectFolder } from "../../support/cli.js";
import { scratch } from "../../support/job.js";
import { writeModel } from "../../support/onnx.js";

const check = async (bytes: Uint8Array): Promise<number> => {
  let read = 0;
  await checkModelFields(bytes.length, (from, length) => {
    read += length;
    return Promise.resolve(bytes.subarray(from, from + length));
  });
  return read;
};

test("checkModelFields accepts each model of the fixtures, and reads less than a kilobyte", async () => {
  const folder = join(projectFolder, "fixtures/models");
  const names = (await readdir(folder)).filter((name) => name.endsWith(".onnx"));
  expect(names.length).toBeGreaterThan(7);
  for (const name of names) {
    const bytes = await readFile(join(folder, name));
    expect({ name, isSmall: (await check(bytes)) < 1024 }).toEqual({ name, isSmall: true });
    await expect(check(bytes.subarray(0, -1))).rejects.toThrow("a field runs past the end of the file");
  }
});

test("a model of more than 16 MiB is opened", async () => {
  const path = join(scratch.path, "large.onnx");
  const weights = Array.from({ length: 5 * 2 ** 20 }, () => 1);
  await writeModel(path, {
    inputs: [{ name: "x", dtype: "float32", shape: ["N", 1] }],
    outputs: [{ name: "y", dtype: "float32", shape: ["N", 1] }],
    nodes: [{ op: "Add", from: ["x", "weights"], to: "y" }],
    constants: [{ name: "weights", values: weights }],
  });
  expect((await openModelFile(path)).sizeBytes).toBeGreaterThan(20 * 2 ** 20);
});
