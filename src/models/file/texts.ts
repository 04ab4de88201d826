import { BinaryWriter, WireType } from "@bufbuild/protobuf/wire";
import type { TextTensors } from "../../columns/tensor.js";
import {
  fieldsIn,
  graphFields,
  modelFields,
  nodeFields,
  textIn,
  valueFields,
  writeMessage,
  writeText,
} from "./graph.js";
import type { OnnxProto } from "./proto.js";

// Field numbers of onnx.proto3: TypeProto.tensor_type; TypeProto.Tensor.elem_type, shape; TensorShapeProto.dim;
// TensorShapeProto.Dimension.dim_param.
const tensorType = 1;
const tensorFields = { elemType: 1, shape: 2 } as const;
const shapeDimension = 1;
const dimensionName = 2;
/** TensorProto.DataType. */
const types = { int64: 7, string: 8 } as const;

const uniqueSinceOpset = 11n;
/** Larger models are not changed: each session would keep a copy of their bytes. */
const maxModelBytes = 2 ** 24;

/** Finds the text inputs and outputs that `replaceTexts` can replace. */
export function findTextTensors(
  { opsetImports, externalData, inputs, outputs, constants }: OnnxProto,
  modelBytes: number,
): TextTensors {
  const versions = opsetImports.filter(({ domain }) => domain === "" || domain === "ai.onnx");
  if (versions.length === 0 || externalData.length > 0 || modelBytes > maxModelBytes) {
    return noTexts;
  }
  const hasUnique = versions.every(({ version }) => version >= uniqueSinceOpset);
  return { inputs: textsOf(inputs).filter((name) => !constants.has(name)), outputs: hasUnique ? textsOf(outputs) : [] };
}

function textsOf(tensors: OnnxProto["inputs"]): string[] {
  return tensors.flatMap(({ name, type }) => (type === "tensor(string)" ? [name] : []));
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
  writeMessage(model, modelFields.graph, before.finish());
  for (const { field, content, raw } of fieldsIn(bytes)) {
    if (field === modelFields.graph && content !== undefined) {
      writeMessage(model, modelFields.graph, withIndexInputs(content, new Set(inputs)));
    } else {
      model.raw(raw);
    }
  }
  writeMessage(model, modelFields.graph, after.finish());
  return model.finish();
}

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
