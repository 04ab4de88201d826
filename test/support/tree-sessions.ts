import * as onnxruntime from "onnxruntime-node";
import type { NamedTensor } from "#src/columnar/tensor.js";
import { type OnnxSession, openSession } from "#src/engine/onnx/session.js";
import { makeRows } from "#src/engine/trees/made-rows.js";
import { readEnsemble } from "#src/engine/trees/read-ensemble.js";
import { readGraph } from "#src/onnx/graph.js";
import { randomOf } from "./random.js";

/** A session of a model, with one thread. */
export async function openWhole(model: Uint8Array): Promise<OnnxSession> {
  const settings = { texts: { inputs: [], outputs: [] }, providers: ["cpu"], deviceId: 0, device: "cpu" } as const;
  return await openSession(onnxruntime, { ...settings, intraOpThreads: 1 }, model);
}

/** Rows for the model's only input, [N, 8]: thresholds of its trees and their neighbours, rare values, and others. */
export function rowsFor(model: Uint8Array, session: OnnxSession, count: number, seed = 1): NamedTensor {
  const [input] = session.signature.inputs;
  const width = input?.shape[1] ?? 8;
  const isDouble = input?.dtype === "float64";
  const draw = randomOf(seed);
  const made = (readGraph(model)?.nodes ?? [])
    .filter(({ operator }) => operator.startsWith("TreeEnsemble"))
    .slice(0, 1)
    .map((node) => makeRows(readEnsemble(node), { width, isDouble, most: 512 }));
  const [known = new Float32Array(width)] = made;
  const data = isDouble ? new Float64Array(count * width) : new Float32Array(count * width);
  for (let index = 0; index < data.length; index += 1) {
    const row = Math.floor(draw() * (known.length / width));
    data[index] = draw() < 0.5 ? (known[row * width + (index % width)] ?? 0) : draw() * 12 - 6;
  }
  return { name: input?.name ?? "", dtype: isDouble ? "float64" : "float32", dims: [count, width], data };
}
