import { BinaryWriter, WireType } from "@bufbuild/protobuf/wire";
import type { TextTensors } from "../../columns/tensor.js";
import { elementTypeOf, fieldsIn, messagesIn, textIn, writeMessage, writeText } from "./graph.js";
import type { OnnxProto } from "./proto.js";

// Field numbers of onnx.proto3: ModelProto.graph; GraphProto.node, initializer, input, output, value_info;
// NodeProto.input, output, op_type; TensorProto.name; ValueInfoProto.name, type; TypeProto.tensor_type;
// TypeProto.Tensor.elem_type, shape; TensorShapeProto.dim; TensorShapeProto.Dimension.dim_param.
const modelGraph = 7;
const graphFields = { node: 1, initializer: 5, input: 11, output: 12, valueInfo: 13 } as const;
const nodeFields = { input: 1, output: 2, opType: 4 } as const;
const tensorName = 8;
const valueFields = { name: 1, type: 2 } as const;
const tensorType = 1;
const tensorFields = { elemType: 1, shape: 2 } as const;
const shapeDimension = 1;
const dimensionName = 2;
/** TensorProto.DataType. */
const types = { int64: 7, string: 8 } as const;

/** The first opset with the operator Unique. */
const uniqueSinceOpset = 11n;
/** Larger models are not changed: each session would keep a copy of their bytes. */
const maxModelBytes = 2 ** 24;

/**
 * Finds the text inputs and outputs that `replaceTexts` can replace.
 * @param bytes a serialized ModelProto, which was parsed to `proto`
 */
export function findTextTensors(bytes: Uint8Array, { opsetImports, externalData }: OnnxProto): TextTensors {
  const versions = opsetImports.filter(({ domain }) => domain === "" || domain === "ai.onnx");
  if (versions.length === 0 || externalData.length > 0 || bytes.length > maxModelBytes) {
    return noTexts;
  }
  try {
    const { inputs, outputs } = textsOf(bytes);
    const hasUnique = versions.every(({ version }) => version >= uniqueSinceOpset);
    return { inputs, outputs: hasUnique ? outputs : [] };
  } catch {
    return noTexts; // ONNX Runtime reports what is wrong with the model, if anything is
  }
}

function textsOf(bytes: Uint8Array): TextTensors {
  const inputs = new Set<string>();
  const outputs = new Set<string>();
  const constants: Uint8Array[] = [];
  for (const graph of messagesIn(bytes, modelGraph)) {
    for (const { field, content } of fieldsIn(graph)) {
      if (content !== undefined && field === graphFields.initializer) {
        constants.push(content);
      } else if (content !== undefined && field === graphFields.input && elementTypeOf(content) === types.string) {
        inputs.add(textIn(content, valueFields.name));
      } else if (content !== undefined && field === graphFields.output && elementTypeOf(content) === types.string) {
        outputs.add(textIn(content, valueFields.name));
      }
    }
  }
  for (const constant of inputs.size === 0 ? [] : constants) {
    inputs.delete(textIn(constant, tensorName)); // an input with a default value is optional
  }
  return { inputs: [...inputs], outputs: [...outputs] };
}

/**
 * Adds nodes to a model so that these text tensors are passed as numbers: passing a text between JavaScript and ONNX
 * Runtime takes longer than most models take for a row. An input becomes its distinct values and the indices of its
 * elements, from which a Gather node makes the texts. For an output, a Unique node adds its distinct values and indices,
 * and a Shape node its shape. The model's own nodes stay as they are.
 * @throws when the texts are not those of `bytes`
 */
export function replaceTexts(bytes: Uint8Array, { inputs, outputs }: TextTensors): Uint8Array<ArrayBuffer> {
  const before = new BinaryWriter();
  for (const name of inputs) {
    writeMessage(before, graphFields.node, nodeOf("Gather", [inputValues(name), inputIndices(name)], [name]));
    writeMessage(before, graphFields.input, vectorOf(inputValues(name), types.string));
  }
  const after = new BinaryWriter();
  for (const name of outputs) {
    writeMessage(after, graphFields.node, nodeOf("Unique", [name], [outputValues(name), "", outputIndices(name)]));
    writeMessage(after, graphFields.node, nodeOf("Shape", [name], [outputShape(name)]));
    writeMessage(after, graphFields.output, vectorOf(outputValues(name), types.string));
    writeMessage(after, graphFields.output, vectorOf(outputIndices(name), types.int64));
    writeMessage(after, graphFields.output, vectorOf(outputShape(name), types.int64));
  }
  const model = new BinaryWriter();
  // Protobuf merges several `graph` fields into one. Nodes must come in the order in which they run.
  writeMessage(model, modelGraph, before.finish());
  for (const { field, content, raw } of fieldsIn(bytes)) {
    if (field === modelGraph && content !== undefined) {
      writeMessage(model, modelGraph, withIndexInputs(content, new Set(inputs)));
    } else {
      model.raw(raw);
    }
  }
  writeMessage(model, modelGraph, after.finish());
  return model.finish();
}

/** Makes the inputs with these names int64 tensors of indices, with the same shape. */
function withIndexInputs(graph: Uint8Array, names: ReadonlySet<string>): Uint8Array {
  const writer = new BinaryWriter();
  for (const { field, content, raw } of fieldsIn(graph)) {
    const isValue = field === graphFields.input || field === graphFields.valueInfo;
    const name = isValue && content !== undefined ? textIn(content, valueFields.name) : undefined;
    if (content === undefined || name === undefined || !names.has(name)) {
      writer.raw(raw);
    } else if (field === graphFields.input) {
      // Of a field that occurs twice protobuf takes the last value, also within a nested message.
      const element = new BinaryWriter().tag(tensorFields.elemType, WireType.Varint).int32(types.int64).finish();
      const type = writeMessage(new BinaryWriter(), tensorType, element).finish();
      const valueInfo = writeText(new BinaryWriter(), valueFields.name, inputIndices(name));
      writeMessage(
        writer,
        graphFields.input,
        Buffer.concat([content, writeMessage(valueInfo, valueFields.type, type).finish()]),
      );
    }
    // The value_info of a replaced input is dropped: it would now describe the Gather node's output.
  }
  return writer.finish();
}

function nodeOf(operator: string, from: readonly string[], to: readonly string[]): Uint8Array {
  const node = new BinaryWriter();
  for (const name of from) {
    writeText(node, nodeFields.input, name);
  }
  for (const name of to) {
    writeText(node, nodeFields.output, name);
  }
  return writeText(node, nodeFields.opType, operator).finish();
}

/** A ValueInfoProto of one dimension of any length. */
function vectorOf(name: string, type: number): Uint8Array {
  const dimension = writeText(new BinaryWriter(), dimensionName, `length of ${name}`).finish();
  const shape = writeMessage(new BinaryWriter(), shapeDimension, dimension).finish();
  const tensor = new BinaryWriter().tag(tensorFields.elemType, WireType.Varint).int32(type);
  const valueInfo = writeMessage(
    new BinaryWriter(),
    tensorType,
    writeMessage(tensor, tensorFields.shape, shape).finish(),
  ).finish();
  return writeMessage(writeText(new BinaryWriter(), valueFields.name, name), valueFields.type, valueInfo).finish();
}

/** The value of a model without text tensors. */
export const noTexts: TextTensors = { inputs: [], outputs: [] };

// A text tensor that is passed as numbers (texts.ts) is replaced by its distinct values and, for each of its elements, an
// index into them. A tensor may be both an input and an output.

/** The name of an input's distinct values: string [distinct]. */
export const inputValues = (name: string): string => `infer-batch/entries for ${name}`;
/** The name of an input's indices: int64, in the input's shape. */
export const inputIndices = (name: string): string => `infer-batch/places for ${name}`;
/** The name of an output's distinct values: string [distinct]. */
export const outputValues = (name: string): string => `infer-batch/entries of ${name}`;
/** The name of an output's indices: int64 [elements]. */
export const outputIndices = (name: string): string => `infer-batch/places of ${name}`;
/** The name of an output's shape: int64 [dimensions]. */
export const outputShape = (name: string): string => `infer-batch/shape of ${name}`;
