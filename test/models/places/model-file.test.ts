import { appendFile, link, mkdir, readFile, stat, symlink, truncate, utimes, writeFile } from "node:fs/promises";
import { createHash } from "node:crypto";
import { join } from "node:path";
import { describe, expect, test } from "vitest";
import { openModelFile } from "#src/models/places/model-file.js";
import { identity, refusalOf } from "../../support/faulty.js";
import { scratch } from "../../support/job.js";
import { writeModel } from "../../support/onnx.js";

const sha256 = (bytes: Uint8Array | string): string => createHash("sha256").update(bytes).digest("hex");

async function externalModel(folder: string, location: string): Promise<string> {
  const path = join(folder, "model.onnx");
  await writeModel(path, {
    ...identity,
    nodes: [{ op: "Add", from: ["x", "bias"], to: "score" }],
    constants: [{ name: "bias", length: 1, location }],
  });
  return path;
}

describe("a model's digest", () => {
  test("a model's digest is the file's digest when it has no external data", async () => {
    const path = join(scratch.path, "model.onnx");
    await writeModel(path, identity);

    const model = await openModelFile(path);

    const bytes = await readFile(path);
    expect([model.sha256, model.sizeBytes]).toEqual([sha256(bytes), bytes.length]);
  });

  test("a model's digest changes with its external data", async () => {
    const path = await externalModel(scratch.path, "weights/bias.bin");
    await mkdir(join(scratch.path, "weights"));
    await writeFile(join(scratch.path, "weights/bias.bin"), "1234");
    const one = await openModelFile(path);
    await writeFile(join(scratch.path, "weights/bias.bin"), "1235");
    const other = await openModelFile(path);

    const main = sha256(await readFile(path));
    expect(one.sha256).toBe(sha256(`${main}  model\n${sha256("1234")}  weights/bias.bin`));
    expect(other.sha256).not.toBe(one.sha256);
    expect(one.sizeBytes).toBe((await stat(path)).size + 4);
  });

  test("a model's digest becomes invalid when one of its files is written to, even with the same time stamp", async () => {
    const path = await externalModel(scratch.path, "bias.bin");
    const weights = join(scratch.path, "bias.bin");
    const time = new Date("2026-01-01T00:00:00Z");
    await writeFile(weights, "1234");
    await utimes(weights, time, time);
    const model = await openModelFile(path);
    await model.check();
    await writeFile(weights, "4321");
    await utimes(weights, time, time);

    expect(await refusalOf(model.check())).toMatch(
      /^66 MODEL_CHANGED\n.*bias\.bin was written to while it was being loaded/,
    );
  });
});

describe("external data", () => {
  test.each(["../secret.bin", "a/../../secret.bin", "/etc/passwd", "..", ""])(
    "external data at %j is refused, because it does not belong to the model",
    async (location) => {
      await mkdir(join(scratch.path, "models"));
      await writeFile(join(scratch.path, "secret.bin"), "1234");
      const path = await externalModel(join(scratch.path, "models"), location);

      expect(await refusalOf(openModelFile(path))).toMatch(/^64 MODEL_INVALID\n.* is outside the model's folder/);
    },
  );

  test.each([
    { how: "symbolic", make: (from: string, to: string) => symlink(from, to), says: "is not a plain file" },
    { how: "hard", make: (from: string, to: string) => link(from, to), says: "is a hard link" },
    { how: "no", make: (_: string, to: string) => mkdir(to), says: "is not a plain file" },
  ])("external data that is a $how link to something else is refused", async ({ make, says }) => {
    await writeFile(join(scratch.path, "secret"), "1234");
    const path = await externalModel(scratch.path, "bias.bin");
    await make(join(scratch.path, "secret"), join(scratch.path, "bias.bin"));

    expect(await refusalOf(openModelFile(path))).toContain(
      `64 MODEL_INVALID\nloading model ${path}: its external data \`bias.bin\` ${says}`,
    );
  });

  test("missing external data is refused with its name", async () => {
    const path = await externalModel(scratch.path, "bias.bin");

    expect(await refusalOf(openModelFile(path))).toContain(
      `64 FILE_MISSING\nloading model ${path}: its external data ${scratch.path}/bias.bin is not there`,
    );
  });
});

test("trees of a model count as such only without external data, which compiled trees could not read", async () => {
  const path = join(scratch.path, "model.onnx");
  const trees = { op: "TreeEnsembleRegressor", from: ["x"], to: "sum" };
  const add = { op: "Add", from: ["sum", "bias"], to: "score" };
  await writeFile(join(scratch.path, "bias.bin"), "1234");
  const found: boolean[] = [];
  for (const constants of [[], [{ name: "bias", length: 1, location: "bias.bin" }]]) {
    await writeModel(path, { ...identity, nodes: [trees, add], constants });
    found.push((await openModelFile(path)).traits.hasTrees);
  }
  expect(found).toEqual([true, false]);
});

describe("a file that is no model", () => {
  test.each([
    { what: "not there", make: async () => undefined, says: "there is no such file" },
    { what: "a folder", make: (path: string) => mkdir(path), says: "it is not a file" },
    {
      what: "a text",
      make: (path: string) => writeFile(path, "version https://git-lfs.github.com/spec/v1\n"),
      says: "it is not an ONNX file",
    },
    {
      what: "cut short",
      make: async (path: string) => {
        await writeModel(path, identity);
        await truncate(path, 20);
      },
      says: "it is not an ONNX file",
    },
    {
      what: "longer than it says",
      make: async (path: string) => {
        await writeModel(path, identity);
        await appendFile(path, Uint8Array.of(0x3a, 0x7f));
      },
      says: "it is not an ONNX file",
    },
  ])("($what) is refused with 64", async ({ make, says }) => {
    const path = join(scratch.path, "model.onnx");
    await make(path);

    expect(await refusalOf(openModelFile(path))).toMatch(
      new RegExp(`^64 (FILE_MISSING|MODEL_INVALID)\nloading model ${path}: ${says}`),
    );
  });
});
