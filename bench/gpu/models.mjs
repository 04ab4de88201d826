// The models that bench/gpu makes: an encoder, and one whose batches take a lot of memory.
import { BinaryWriter, WireType } from "@bufbuild/protobuf/wire";
import { float, integer, message, rowsOf, text } from "../onnx-writer.mjs";
import { randomFrom } from "../random.mjs";

/** Element type INT64 of onnx.proto3. */
const int64 = 7;
/** Kinds of attributes of onnx.proto3, with the fields that hold them. */
const kinds = { number: { kind: 2, field: 3 }, list: { kind: 7, field: 8 } };

/**
 * A transformer encoder with one head: `input` float32 [N, tokens] -> `score` float32 [N, 1], with random weights.
 * @param {{ tokens: number, width: number, layers: number }} size
 */
export function encoder({ tokens, width, layers }) {
  const random = randomFrom(57);
  const weights = [];
  const nodes = [];
  const weight = (name, shape, scale = 1 / Math.sqrt(shape.at(-2) ?? 1)) => {
    const values = Float32Array.from(
      { length: shape.reduce((all, one) => all * one, 1) },
      () => (random() - 0.5) * scale,
    );
    weights.push({ name, shape, values });
    return name;
  };
  const constant = (name, shape, value) => {
    weights.push({ name, shape, values: new Float32Array(shape.reduce((all, one) => all * one, 1)).fill(value) });
    return name;
  };
  const node = (op, from, to, attributes = {}) => {
    nodes.push({ op, from, to, attributes });
    return to;
  };
  const dense = (from, name, shape) => node("MatMul", [from, weight(`${name}.w`, shape)], name);
  const normalised = (from, name) =>
    node("LayerNormalization", [from, constant(`${name}.g`, [width], 1), constant(`${name}.b`, [width], 0)], name, {
      axis: -1,
    });
  weights.push({ name: "shape", shape: [3], values: BigInt64Array.from([0n, BigInt(tokens), 1n]) });
  constant("scale", [1], 1 / Math.sqrt(width));
  let x = dense(node("Reshape", ["input", "shape"], "tokens"), "embedded", [1, width]);
  for (let layer = 0; layer < layers; layer += 1) {
    const at = (name) => `${name}${layer}`;
    const [q, k, v] = ["q", "k", "v"].map((name) => dense(x, at(name), [width, width]));
    const turned = node("Transpose", [k], at("kt"), { perm: [0, 2, 1] });
    const scores = node("Mul", [node("MatMul", [q, turned], at("qk")), "scale"], at("scores"));
    const mixed = node("MatMul", [node("Softmax", [scores], at("softmax"), { axis: -1 }), v], at("mixed"));
    x = normalised(node("Add", [x, dense(mixed, at("out"), [width, width])], at("residual")), at("norm"));
    const wide = node("Relu", [dense(x, at("up"), [width, 4 * width])], at("relu"));
    x = normalised(node("Add", [x, dense(wide, at("down"), [4 * width, width])], at("forward")), at("end"));
  }
  dense(node("ReduceMean", [x], "mean", { axes: [1], keepdims: 0 }), "score", [width, 1]);
  return modelOf({ nodes, weights, inputs: [["input", tokens]], outputs: [["score", 1]] });
}

/**
 * `x` float32 [N, 1] -> `y` float32 [N, 1], over `tensors` tensors [N, width] that exist at the same time, so that a row
 * takes 4 * width * tensors bytes while each tensor has few enough numbers for a kernel. Each is the one before plus 1, the
 * first is x + 7, and y is their sum.
 * @param {{ width: number, tensors: number }} size
 */
export function hungry({ width, tensors }) {
  const weights = [];
  const nodes = [];
  const add = (from, to) => nodes.push({ op: "Add", from, to, attributes: {} });
  for (let tensor = 0; tensor < tensors; tensor += 1) {
    const values = Float32Array.from({ length: width }, (_, index) => (tensor === 0 ? index : 1));
    weights.push({ name: `w${tensor}`, shape: [1, width], values });
    add([tensor === 0 ? "x" : `wide${tensor - 1}`, `w${tensor}`], `wide${tensor}`);
  }
  let sum = `wide${tensors - 1}`;
  for (let tensor = tensors - 2; tensor >= 0; tensor -= 1) {
    add([sum, `wide${tensor}`], `sum${tensor}`); // the last one first, so that none can be let go before
    sum = `sum${tensor}`;
  }
  nodes.push({ op: "Slice", from: [sum, "from", "to", "axis"], to: "y", attributes: {} });
  for (const [name, value] of Object.entries({ from: 7n, to: 8n, axis: 1n })) {
    weights.push({ name, shape: [1], values: BigInt64Array.from([value]) });
  }
  return modelOf({ nodes, weights, inputs: [["x", 1]], outputs: [["y", 1]] });
}

/**
 * The line on which the predictions of `hungry` lie: y = slope * x + offset.
 * @param {{ tensors: number }} size
 */
export function hungryLine({ tensors }) {
  return { slope: tensors, offset: tensors * 7 + (tensors * (tensors - 1)) / 2 };
}

function modelOf({ nodes, weights, inputs, outputs }) {
  const writer = new BinaryWriter();
  integer(writer, 1, 8); // ir_version
  message(writer, 7, (graph) => {
    for (const { op, from, to, attributes } of nodes) {
      message(graph, 1, (fields) => {
        from.forEach((name) => text(fields, 1, name));
        text(fields, 2, to);
        text(fields, 4, op);
        Object.entries(attributes).forEach(([name, value]) => attribute(fields, name, value));
      });
    }
    text(graph, 2, "bench-gpu");
    for (const { name, shape, values } of weights) {
      message(graph, 5, (fields) => {
        shape.forEach((size) => integer(fields, 1, size));
        integer(fields, 2, values instanceof BigInt64Array ? int64 : float);
        text(fields, 8, name);
        fields.tag(9, WireType.LengthDelimited).bytes(new Uint8Array(values.buffer));
      });
    }
    inputs.forEach(([name, width]) => rowsOf(graph, 11, name, width));
    outputs.forEach(([name, width]) => rowsOf(graph, 12, name, width));
  });
  message(writer, 8, (opset) => integer(opset, 2, 17));
  return writer.finish();
}

function attribute(fields, name, value) {
  const { kind, field } = Array.isArray(value) ? kinds.list : kinds.number;
  message(fields, 5, (inner) => {
    text(inner, 1, name);
    [value].flat().forEach((number) => integer(inner, field, number));
    integer(inner, 20, kind);
  });
}
