import { readdir, readFile } from "node:fs/promises";
import { join } from "node:path";
import { describe, expect, test } from "vitest";
import { decodeTexts, encodeTexts, type NamedTensor } from "#src/batch/tensor.js";
import { openModelFile } from "#src/engine/onnx-file.js";
import { openOnnxEngine } from "#src/engine/onnx.js";
import { readOnnxProto } from "#src/engine/onnx-proto.js";
import { findTexts } from "#src/engine/onnx-texts.js";
import type { Engine, TextTensors } from "#src/engine/port.js";
import { placesOf } from "#src/engine/text-names.js";
import { projectFolder } from "../support/cli.js";
import { scratchFolder } from "../support/job.js";
import { type SmallModel, writeModel } from "../support/onnx.js";
import { randomOf } from "../support/random.js";

const fixtures = join(projectFolder, "fixtures/models");
const none: TextTensors = { inputs: [], outputs: [] };

/** Two texts and a number in, the texts side by side and the number out. */
const pairs: SmallModel = {
  inputs: [
    { name: "x", dtype: "float32", shape: ["N", 1] },
    { name: "left", dtype: "string", shape: ["N", 1] },
    { name: "right", dtype: "string", shape: ["N", 1] },
  ],
  outputs: [
    { name: "score", dtype: "float32", shape: ["N", 1] },
    { name: "both", dtype: "string", shape: ["N", 2] },
  ],
  nodes: [
    { op: "Identity", from: ["x"], to: "score" },
    { op: "Concat", from: ["left", "right"], to: "both", attributes: { axis: 1 } },
  ],
};

/** As texts are passed, unless others are named. */
async function engineOf(path: string, { texts, profileFolder }: { texts?: TextTensors; profileFolder?: string } = {}) {
  const model = await openModelFile(path);
  return await openOnnxEngine({
    model: { ...model, texts: texts ?? model.texts },
    providers: ["cpu"],
    sessions: 1,
    intraOpThreads: 1,
    profileFolder,
  });
}

const textTensor = (name: string, texts: readonly string[]): NamedTensor => ({
  name,
  dtype: "string",
  dims: [texts.length, 1],
  data: encodeTexts(texts),
});

async function scorePairs(engine: Engine, left: readonly string[], right: readonly string[]): Promise<unknown> {
  const x = Float32Array.from(left.keys());
  const response = await engine.run({
    inputs: [
      textTensor("right", right),
      { name: "x", dtype: "float32", dims: [x.length, 1], data: x },
      textTensor("left", left),
    ],
    outputs: ["both", "score"],
  });
  if (response.kind !== "done") {
    throw new Error(response.message);
  }
  const [both, score] = response.outputs;
  return {
    dims: both?.dims,
    both: both?.dtype === "string" ? decodeTexts(both.data) : both,
    score: score?.dtype === "float32" ? Array.from(score.data, Number) : score,
  };
}

describe("of a model's texts are found", () => {
  test.each([
    ["penguins-pipeline.onnx", { inputs: ["island", "sex"], outputs: ["label"] }],
    ["bench-mlp.onnx", none],
    ["external-data/model.onnx", none],
  ])("those of %s", async (name, expected) => {
    expect((await openModelFile(join(fixtures, name))).texts).toEqual(expected);
  });

  test("none where the operators are another domain's", async () => {
    const bytes = await readFile(join(fixtures, "penguins-pipeline.onnx"));
    const proto = readOnnxProto(bytes);
    const [own, ...others] = proto.opsetImports;
    expect(own?.domain).toBe("");
    expect(findTexts(bytes, { ...proto, opsetImports: others })).toEqual(none);
    const older = { ...proto, opsetImports: [{ domain: "ai.onnx", version: 10n }] };
    expect(findTexts(bytes, older)).toEqual({ inputs: ["island", "sex"], outputs: [] }); // without Unique
  });

  test("none where its tensors are in other files", async () => {
    const bytes = await readFile(join(fixtures, "penguins-pipeline.onnx"));
    expect(findTexts(bytes, { ...readOnnxProto(bytes), externalData: ["weights.bin"] })).toEqual(none);
  });
});

describe("texts that go through as numbers", () => {
  test("are the same as those that go through as they are", async () => {
    await using scratch = await scratchFolder();
    const path = join(scratch.path, "pairs.onnx");
    await writeModel(path, pairs);
    await using engine = await engineOf(path);
    await using plain = await engineOf(path, { texts: none });
    const random = randomOf(3);
    const kinds = ["", "a", "Biscoe", "é", "日本語", "\u{1f600}", "x".repeat(63), "y".repeat(200)];
    const some = (count: number): string[] =>
      Array.from({ length: count }, (_, index) =>
        random() < 0.2 ? `${index}` : (kinds[Math.floor(random() * kinds.length)] as string),
      );

    expect(engine.signature).toEqual(plain.signature);
    for (const rows of [1, 2, 50, 3000]) {
      const [left, right] = [some(rows), some(rows)];
      const scored = await scorePairs(engine, left, right);
      expect(scored).toEqual({
        dims: [rows, 2],
        both: left.flatMap((text, row) => [text, right[row]]),
        score: [...left.keys()],
      });
      expect(scored).toEqual(await scorePairs(plain, left, right));
    }
  });

  test("are looked up by the model", async () => {
    await using scratch = await scratchFolder();
    const path = join(scratch.path, "pairs.onnx");
    await writeModel(path, pairs);
    const engine = await engineOf(path, { profileFolder: scratch.path });
    await scorePairs(engine, ["a"], ["b"]);
    await engine[Symbol.asyncDispose]();

    const profile = (await readdir(scratch.path)).find((file) => file.startsWith("session-"));
    const ran = await readFile(join(scratch.path, profile ?? ""), "utf8");
    for (const operator of ["Gather", "Concat", "Unique", "Shape"]) {
      expect(ran).toContain(`"op_name" : "${operator}"`);
    }
  });

  test("may be those that come in", async () => {
    await using scratch = await scratchFolder();
    const path = join(scratch.path, "same.onnx");
    const text = { name: "text", dtype: "string", shape: ["N"] } as const;
    await writeModel(path, {
      inputs: [text],
      outputs: [{ ...text, name: "same" }],
      nodes: [{ op: "Identity", from: ["text"], to: "same" }],
    });
    await using engine = await engineOf(path);
    const inputs = [{ ...textTensor("text", ["b", "a", "b"]), dims: [3] }];

    const response = await engine.run({ inputs, outputs: ["same"] });

    expect(response).toMatchObject({ kind: "done", outputs: [{ dims: [3], data: encodeTexts(["b", "a", "b"]) }] });
  });

  test("go through as they are where the model has tensors of those names", async () => {
    await using scratch = await scratchFolder();
    const path = join(scratch.path, "names.onnx");
    const taken = { op: "Identity", from: ["x"], to: placesOf("left") };
    await writeModel(path, { ...pairs, nodes: [...pairs.nodes, taken] });
    await using engine = await engineOf(path);

    expect(await scorePairs(engine, ["a", "a"], ["b", "c"])).toMatchObject({ both: ["a", "b", "a", "c"] });
  });
});
