// The model that is too large to be a fixture: made once, the same bytes each time, kept in bench/data/.
import { mkdir, rename, stat, writeFile } from "node:fs/promises";
import { join } from "node:path";
import { BinaryWriter, WireType } from "@bufbuild/protobuf/wire";
import { dataFolder } from "./data.mjs";
import { float, integer, message, rowsOf, text } from "./onnx-writer.mjs";
import { randomFrom } from "./random.mjs";

const sizes = [32, 1024, 1024, 1];
export const bigModel = join(dataFolder, "models", `mlp-${sizes.join("-")}.onnx`);

/** MLP 32-1024-1024-1, random weights: `input` float32 [N, 32] -> `score` float32 [N, 1] in (0, 1). */
export async function prepareBigModel() {
  if (await exists(bigModel)) {
    return;
  }
  await mkdir(join(dataFolder, "models"), { recursive: true });
  await writeFile(`${bigModel}.tmp`, denseNet());
  await rename(`${bigModel}.tmp`, bigModel);
}

async function exists(file) {
  try {
    await stat(file);
    return true;
  } catch (error) {
    if (error.code === "ENOENT") {
      return false;
    }
    throw error;
  }
}

/** Gemm and Relu in turn, Sigmoid last; field by field (onnx.proto3). */
function denseNet() {
  const random = normalFrom(31);
  const layers = sizes.slice(1).map((width, index) => ({ index, from: sizes[index], to: width }));
  const writer = new BinaryWriter();
  integer(writer, 1, 8); // ir_version
  message(writer, 7, (graph) => {
    for (const { index } of layers) {
      const isLast = index === layers.length - 1;
      node(graph, "Gemm", [index === 0 ? "input" : `a${index - 1}`, `W${index}`, `b${index}`], `g${index}`);
      node(graph, isLast ? "Sigmoid" : "Relu", [`g${index}`], isLast ? "score" : `a${index}`);
    }
    text(graph, 2, "mlp-big");
    for (const { index, from, to } of layers) {
      tensor(graph, `W${index}`, [from, to], () => (random() * 0.5) / Math.sqrt(from));
      tensor(graph, `b${index}`, [to], () => random() * 0.1);
    }
    rowsOf(graph, 11, "input", sizes[0]);
    rowsOf(graph, 12, "score", sizes.at(-1));
  });
  message(writer, 8, (opset) => integer(opset, 2, 17));
  return writer.finish();
}

function node(graph, operator, inputs, output) {
  message(graph, 1, (fields) => {
    inputs.forEach((name) => text(fields, 1, name));
    text(fields, 2, output);
    text(fields, 4, operator);
  });
}

function tensor(graph, name, shape, draw) {
  const values = Float32Array.from({ length: shape.reduce((product, size) => product * size) }, draw);
  message(graph, 5, (fields) => {
    shape.forEach((size) => integer(fields, 1, size));
    integer(fields, 2, float);
    text(fields, 8, name);
    fields.tag(9, WireType.LengthDelimited).bytes(new Uint8Array(values.buffer));
  });
}

/** Normally distributed numbers, always the same for a seed: Box-Muller. */
function normalFrom(seed) {
  const uniform = randomFrom(seed);
  return () => Math.sqrt(-2 * Math.log(1 - uniform())) * Math.cos(2 * Math.PI * uniform());
}
