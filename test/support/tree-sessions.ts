import * as onnxruntime from "onnxruntime-node";
import type { NamedTensor } from "#src/columns/tensor.js";
import { type OnnxSession, openSession } from "#src/models/onnx/session.js";
import type { RowType, RowValues } from "#src/models/trees/compiled.js";
import { readEnsemble } from "#src/models/trees/ensemble.js";
import { makeTestRows } from "#src/models/trees/tree-model.js";
import { readGraph } from "#src/models/file/graph.js";
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
  const type = (input?.dtype ?? "float32") as RowType;
  const draw = randomOf(seed);
  const made = readGraph(model)
    .nodes.filter(({ operator }) => operator.startsWith("TreeEnsemble"))
    .slice(0, 1)
    .map((node) => makeTestRows(readEnsemble(node), { width, type, most: 512 }));
  const [known = new Float32Array(width)] = made;
  const numbers = Array.from({ length: count * width }, (_, index) => {
    const row = Math.floor(draw() * (known.length / width));
    return draw() < 0.5 ? Number(known[row * width + (index % width)] ?? 0) : draw() * 12 - 6;
  });
  return { name: input?.name ?? "", dtype: type, dims: [count, width], data: rowValues(numbers, type) };
}

/** Those of whole numbers without fractions. */
export function rowValues(numbers: readonly number[], type: RowType): RowValues {
  switch (type) {
    case "float32":
      return Float32Array.from(numbers);
    case "float64":
      return Float64Array.from(numbers);
    case "int32":
      return Int32Array.from(numbers);
    case "int64":
      return BigInt64Array.from(numbers, (number) => BigInt(Math.trunc(number)));
    default:
      throw new Error(`no rows of ${String(type)}`);
  }
}
