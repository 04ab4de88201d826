import * as onnxruntime from "onnxruntime-node";
import { afterAll, expect, test } from "vitest";
import type { NamedTensor, Tensor } from "#src/columns/tensor.js";
import { openSession } from "#src/models/onnx/session.js";
import { neighbourOf } from "#src/models/trees/scorer.js";
import { boundOf, differenceOf } from "#src/models/trees/compare-scores.js";
import { compileTrees } from "#src/models/trees/compiled.js";
import { readEnsemble, Unsupported } from "#src/models/trees/ensemble.js";
import { openTreeModel } from "#src/models/trees/tree-model.js";
import { readGraph } from "#src/models/file/graph.js";
import { type RandomTrees, randomTrees } from "../../support/random-trees.js";
import { randomOf } from "../../support/random.js";
import { writeTreeModel } from "../../support/tree-models.js";
import { openWhole, rowValues } from "../../support/tree-sessions.js";

const cases = Number(process.env["INFER_BATCH_CASES"] ?? 200);
const firstSeed = Number(process.env["INFER_BATCH_SEED"] ?? 1);
const settings = {
  texts: { inputs: [], outputs: [] },
  providers: ["cpu"],
  deviceId: 0,
  device: "cpu",
  intraOpThreads: 1,
} as const;

function rowsOf({ model, features, thresholds }: RandomTrees, seed: number, count: number): NamedTensor {
  const draw = randomOf(seed);
  const isDouble = model.element === 11;
  const rare = [Number.NaN, Number.POSITIVE_INFINITY, Number.NEGATIVE_INFINITY, 0, -0];
  const data = isDouble ? new Float64Array(count * features) : new Float32Array(count * features);
  for (let index = 0; index < data.length; index += 1) {
    const threshold = thresholds[Math.floor(draw() * thresholds.length)] ?? 0;
    const near = draw() < 0.5 ? threshold : neighbourOf(threshold, draw() < 0.5 ? 1 : -1, isDouble);
    const value = draw() < 0.1 ? (rare[Math.floor(draw() * rare.length)] ?? 0) : draw() * 20 - 10;
    data[index] = draw() < 0.6 ? near : value;
  }
  return { name: "x", dtype: isDouble ? "float64" : "float32", dims: [count, features], data };
}

let unsupported = 0;

test.each(Array.from({ length: cases }, (_, index) => firstSeed + index))(
  "a random ensemble gives what ONNX Runtime gives, seed %i",
  async (seed) => {
    const random = randomTrees(seed);
    const bytes = writeTreeModel(random.model);
    let session: Awaited<ReturnType<typeof openSession>>;
    try {
      session = await openSession(onnxruntime, settings, bytes);
    } catch {
      unsupported += 1;
      return; // ONNX Runtime refuses it
    }
    const node = readGraph(bytes).nodes[0];
    if (node === undefined) {
      throw new Error("no node");
    }
    try {
      const ensemble = readEnsemble(node);
      using trees = compileTrees(ensemble, random.model.element === 11);
      for (const count of [1, 65, 700]) {
        const rows = rowsOf(random, seed, count);
        const expected = await session.run({ inputs: [rows], outputs: random.model.outputs });
        const found = trees.run(rows);
        const tensors = ensemble.classes === undefined ? [found.values] : [found.labels(), found.values];
        const bounds =
          ensemble.classes === undefined ? [boundOf(ensemble.transform)] : [0, boundOf(ensemble.transform)];
        for (const [index, tensor] of tensors.entries()) {
          const other = expected[index];
          expect(other && differenceOf(tensor, other, bounds[index] ?? 0), random.about).toBeUndefined();
        }
      }
    } catch (error) {
      if (!(error instanceof Unsupported)) {
        throw error;
      }
      unsupported += 1;
    } finally {
      await session.close();
    }
  },
);

const classifiers = Array.from({ length: cases }, (_, index) => firstSeed + index).filter((seed) => {
  const { model } = randomTrees(seed);
  return model.operator === "TreeEnsembleClassifier" && model.element === 1;
});

test.each(classifiers)("a random classifier of whole numbers gives what ONNX Runtime gives, seed %i", async (seed) => {
  const random = randomTrees(seed);
  const draw = randomOf(seed);
  for (const [element, type, most] of [
    [6, "int32", 2 ** 30],
    [7, "int64", 2 ** 62],
  ] as const) {
    const model = writeTreeModel({ ...random.model, element });
    const wanted = random.model.outputs;
    const whole = await openWhole(model);
    const trees = await openTreeModel({ model, wanted, openPart: openWhole }).catch((error: unknown) => {
      if (error instanceof Unsupported) {
        return undefined; // counted above
      }
      throw error;
    });
    if (trees === undefined) {
      return;
    }
    const numbers = Array.from({ length: 300 * random.features }, () => {
      const threshold = random.thresholds[Math.floor(draw() * random.thresholds.length)] ?? 0;
      const near = Math.floor(threshold) + Math.floor(draw() * 3) - 1;
      return draw() < 0.7 ? near : Math.floor((draw() - 0.5) * 2 * most ** draw());
    });
    const rows = { name: "x", dtype: type, dims: [300, random.features], data: rowValues(numbers, type) };

    const expected = await whole.run({ inputs: [rows], outputs: wanted });
    const found = await trees.run({ inputs: [rows], outputs: wanted });

    const differences = found.map((tensor, index) => differenceOf(tensor, expected[index] as Tensor, trees.bound));
    expect(differences, random.about).toEqual([undefined, undefined]);
    await trees.close();
    await whole.close();
  }
});

afterAll(() => {
  expect(unsupported).toBeLessThan(cases / 4);
});
