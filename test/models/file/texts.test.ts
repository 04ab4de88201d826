import { readdir, readFile, writeFile } from "node:fs/promises";
import { join } from "node:path";
import { describe, expect, test } from "vitest";
import { decodeTexts, encodeTexts, type NamedTensor, type TextTensors } from "#src/columns/tensor.js";
import { openModelFile } from "#src/models/places/model-file.js";
import { startScoringWorker as startWorker } from "#src/job/threads/worker-threads.js";
import { openOnnxEngine } from "#src/models/onnx/engine.js";
import { readOnnxProto } from "#src/models/file/proto.js";
import { findTextTensors, inputIndices } from "#src/models/file/texts.js";
import type { Engine } from "#src/models/engine.js";
import { projectFolder } from "../../support/cli.js";
import { scratch, scratchFolder } from "../../support/job.js";
import { type SmallModel, writeModel } from "../../support/onnx.js";
import { randomOf } from "../../support/random.js";

const fixtures = join(projectFolder, "fixtures/models");
const none: TextTensors = { inputs: [], outputs: [] };

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

async function engineOf(path: string, { texts, profileFolder }: { texts?: TextTensors; profileFolder?: string } = {}) {
  const model = await openModelFile(path);
  return await openOnnxEngine({
    model,
    texts: texts ?? model.texts,
    providers: ["cpu"],
    startWorker,
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

describe("findTextTensors", () => {
  test.each([
    ["penguins-pipeline.onnx", { inputs: ["island", "sex"], outputs: ["label"] }],
    ["bench-mlp.onnx", none],
    ["external-data/model.onnx", none],
  ])("findTextTensors finds the text inputs and outputs of %s", async (name, expected) => {
    expect((await openModelFile(join(fixtures, name))).texts).toEqual(expected);
  });

  test("findTextTensors finds nothing in a model of another operator domain", async () => {
    const bytes = await readFile(join(fixtures, "penguins-pipeline.onnx"));
    const proto = readOnnxProto(bytes);
    const [own, ...others] = proto.opsetImports;
    expect(own?.domain).toBe("");
    expect(findTextTensors({ ...proto, opsetImports: others }, bytes.length)).toEqual(none);
    const older = { ...proto, opsetImports: [{ domain: "ai.onnx", version: 10n }] };
    expect(findTextTensors(older, bytes.length)).toEqual({ inputs: ["island", "sex"], outputs: [] }); // without Unique
  });

  test("findTextTensors finds no optional input, and nothing in a model with external tensors or of many bytes", async () => {
    const bytes = await readFile(join(fixtures, "penguins-pipeline.onnx"));
    const proto = readOnnxProto(bytes);
    expect(findTextTensors({ ...proto, externalData: ["weights.bin"] }, bytes.length)).toEqual(none);
    expect(findTextTensors(proto, 2 ** 24 + 1)).toEqual(none);
    // An input that is a constant, too, is optional.
    expect(findTextTensors({ ...proto, constants: new Set(["island"]) }, bytes.length).inputs).toEqual(["sex"]);
  });
});

const textShape = (name: string, ...shape: (string | number)[]): SmallModel["inputs"][number] => ({
  name,
  dtype: "string",
  shape,
});

async function giveBack(shape: readonly (string | number)[], texts: readonly string[]): Promise<unknown> {
  await using folder = await scratchFolder();
  const path = join(folder.path, "same.onnx");
  // What is left by Compress has any length to ONNX Runtime, which then believes what the model says.
  const nodes = [{ op: "Compress", from: ["text", "kept"], to: "same", attributes: { axis: 0 } }];
  const kept = { name: "kept", dtype: "bool", shape: ["N"] } as const;
  await writeModel(path, {
    inputs: [textShape("text", "N", "M"), kept],
    outputs: [textShape("same", ...shape)],
    nodes,
  });
  await using engine = await engineOf(path);
  const all = {
    name: "kept",
    dtype: "bool",
    dims: [texts.length],
    data: new Uint8Array(texts.length).fill(1),
  } as const;
  const response = await engine.run({ inputs: [textTensor("text", texts), all], outputs: ["same"] });
  const [same] = response.kind === "done" ? response.outputs : [];
  return same?.dtype === "string" ? [same.dims, decodeTexts(same.data)] : response;
}

async function operatorsIn(folder: string): Promise<string[][]> {
  const profiles = (await readdir(folder)).filter((file) => file.startsWith("session-")).toSorted();
  const written = await Promise.all(profiles.map((file) => readFile(join(folder, file), "utf8")));
  return written.map((profile) =>
    Array.from(new Set(Array.from(profile.matchAll(/"op_name" : "(\w+)"/g), ([, name]) => name ?? ""))),
  );
}

describe("texts passed as numbers", () => {
  test("texts passed as numbers give the same predictions as texts passed as they are", async () => {
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

  test("texts passed as numbers are looked up by the model", async () => {
    const path = join(scratch.path, "pairs.onnx");
    await writeModel(path, pairs);
    const engine = await engineOf(path, { profileFolder: scratch.path });
    const repeated = Array.from({ length: 20_000 }, (_, row) => `${row % 9000}`);
    await scorePairs(engine, repeated, repeated);
    await scorePairs(engine, ["a"], ["b"]);
    await engine[Symbol.asyncDispose]();

    const [operators, ...others] = await operatorsIn(scratch.path);
    expect(operators?.toSorted()).toEqual(["Concat", "Gather", "Identity", "Shape", "Unique"]);
    expect(others).toEqual([]);
  });

  test("texts are passed as they are when most of them differ", async () => {
    const path = join(scratch.path, "pairs.onnx");
    await writeModel(path, pairs);
    const engine = await engineOf(path, { profileFolder: scratch.path });
    await writeFile(path, "another one by now");
    for (let round = 0; round < 4; round += 1) {
      const ids = Array.from({ length: 5000 }, (_, row) => `${round}-${row}`);
      const scored = await Promise.all([scorePairs(engine, ids, ids), scorePairs(engine, ids.slice(1), ids.slice(1))]);
      expect(scored).toMatchObject([{ dims: [5000, 2], both: ids.flatMap((id) => [id, id]) }, { dims: [4999, 2] }]);
    }
    await engine[Symbol.asyncDispose]();

    const operators = await operatorsIn(scratch.path);
    expect(operators).toHaveLength(2);
    expect(operators[1]?.toSorted()).toEqual(["Concat", "Identity"]);
  });

  test("texts passed as numbers may be a model's inputs, and of one dimension", async () => {
    const path = join(scratch.path, "same.onnx");
    const nodes = [{ op: "Identity", from: ["text"], to: "same" }];
    const outputs = [textShape("text", "N"), textShape("same", "N")];
    await writeModel(path, { inputs: [textShape("text", "N")], outputs, nodes });
    await using engine = await engineOf(path, { profileFolder: scratch.path });
    const inputs = [{ ...textTensor("text", ["b", "a", "b"]), dims: [3] }];

    const response = await engine.run({ inputs, outputs: ["same", "text"] });

    const same = { dims: [3], data: encodeTexts(["b", "a", "b"]) };
    expect(response).toMatchObject({ kind: "done", outputs: [same, same] });
    expect(await readdir(scratch.path)).toHaveLength(2); // none of a session that was refused
  });

  test.each([
    [1, 1],
    [7, 1],
    ["N", 1],
  ])("texts passed as numbers have the batch's rows when the model's shape is [%s,%i]", async (...shape) => {
    expect(await giveBack(shape, ["a", "b", "a"])).toEqual([
      [3, 1],
      ["a", "b", "a"],
    ]);
  });

  test("texts passed as numbers are refused in a shape that they do not have", async () => {
    expect(await giveBack([1, 2], ["a", "b", "a"])).toMatchObject({
      kind: "failed",
      message: "output same came with 3 texts in the shape [1,2]",
    });
  });

  test("texts passed as numbers keep the model's tensor names in its errors", async () => {
    const path = join(scratch.path, "two.onnx");
    const nodes = [{ op: "Identity", from: ["two"], to: "same" }];
    await writeModel(path, { inputs: [textShape("two", 2, 1)], outputs: [textShape("same", 2, 1)], nodes });
    await using engine = await engineOf(path);
    const response = await engine.run({ inputs: [textTensor("two", ["a", "b", "c"])], outputs: ["same"] });
    expect(response).toMatchObject({ kind: "failed", message: expect.stringContaining("for input: two ") as string });
  });

  test("texts are passed as they are when the model has tensors with the added names", async () => {
    const path = join(scratch.path, "names.onnx");
    const taken = { op: "Identity", from: ["x"], to: inputIndices("left") };
    await writeModel(path, { ...pairs, nodes: [...pairs.nodes, taken] });
    await using engine = await engineOf(path);

    expect(await scorePairs(engine, ["a", "a"], ["b", "c"])).toMatchObject({ both: ["a", "b", "a", "c"] });
  });
});
