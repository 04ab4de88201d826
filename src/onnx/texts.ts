import { BinaryReader, BinaryWriter, WireType } from "@bufbuild/protobuf/wire";
import type { OnnxProto } from "./proto.js";
import type { TextTensors } from "../columnar/tensor.js";
import { inputEntries, inputPlaces, noTexts, outputEntries, outputPlaces, outputShape } from "./text-names.js";

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

/** The operator Unique is there since. */
const uniqueSince = 11n;
/** Larger models go as they are: each session would keep a copy of its bytes. */
const mostBytes = 2 ** 24;

/**
 * The inputs and outputs of texts that `passNumbers` can replace.
 * @param bytes a serialized ModelProto, of which `proto` was read
 */
export function findTexts(bytes: Uint8Array, { opsetImports, externalData }: OnnxProto): TextTensors {
  const versions = opsetImports.filter(({ domain }) => domain === "" || domain === "ai.onnx");
  if (versions.length === 0 || externalData.length > 0 || bytes.length > mostBytes) {
    return noTexts;
  }
  try {
    const { inputs, outputs } = textsOf(bytes);
    const hasUnique = versions.every(({ version }) => version >= uniqueSince);
    return { inputs, outputs: hasUnique ? outputs : [] };
  } catch {
    return noTexts; // what is wrong with it ONNX Runtime says, or nothing
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
      } else if (content !== undefined && field === graphFields.input && isText(content)) {
        inputs.add(textIn(content, valueFields.name));
      } else if (content !== undefined && field === graphFields.output && isText(content)) {
        outputs.add(textIn(content, valueFields.name));
      }
    }
  }
  for (const constant of inputs.size === 0 ? [] : constants) {
    inputs.delete(textIn(constant, tensorName)); // an input that is a constant, too, may be left out
  }
  return { inputs: [...inputs], outputs: [...outputs] };
}

/**
 * The model with numbers in place of these texts. To pass a text between JavaScript and ONNX Runtime takes longer than
 * most models take for a row; so an input becomes its distinct texts and their places, which a node Gather makes texts
 * of, and beside an output come its distinct texts and their places, by a node Unique, and its shape. The model itself
 * stays as it is.
 * @throws where `bytes` are not those that `texts` were found in
 */
export function passNumbers(bytes: Uint8Array, { inputs, outputs }: TextTensors): Uint8Array<ArrayBuffer> {
  const before = new BinaryWriter();
  for (const name of inputs) {
    put(before, graphFields.node, nodeOf("Gather", [inputEntries(name), inputPlaces(name)], [name]));
    put(before, graphFields.input, vectorOf(inputEntries(name), types.string));
  }
  const after = new BinaryWriter();
  for (const name of outputs) {
    put(after, graphFields.node, nodeOf("Unique", [name], [outputEntries(name), "", outputPlaces(name)]));
    put(after, graphFields.node, nodeOf("Shape", [name], [outputShape(name)]));
    put(after, graphFields.output, vectorOf(outputEntries(name), types.string));
    put(after, graphFields.output, vectorOf(outputPlaces(name), types.int64));
    put(after, graphFields.output, vectorOf(outputShape(name), types.int64));
  }
  const model = new BinaryWriter();
  // Graphs that come one after the other are one to protobuf. Nodes have to come in the order in which they run.
  put(model, modelGraph, before.finish());
  for (const { field, content, raw } of fieldsIn(bytes)) {
    if (field === modelGraph && content !== undefined) {
      put(model, modelGraph, withPlaces(content, new Set(inputs)));
    } else {
      model.raw(raw);
    }
  }
  put(model, modelGraph, after.finish());
  return model.finish();
}

/** A graph whose inputs of these names are the places of their texts, in the same shape. */
function withPlaces(graph: Uint8Array, names: ReadonlySet<string>): Uint8Array {
  const writer = new BinaryWriter();
  for (const { field, content, raw } of fieldsIn(graph)) {
    const isValue = field === graphFields.input || field === graphFields.valueInfo;
    const name = isValue && content !== undefined ? textIn(content, valueFields.name) : undefined;
    if (content === undefined || name === undefined || !names.has(name)) {
      writer.raw(raw);
    } else if (field === graphFields.input) {
      // The last of what is said twice counts, for each field of a message within it, too.
      const element = new BinaryWriter().tag(tensorFields.elemType, WireType.Varint).int32(types.int64).finish();
      const type = put(new BinaryWriter(), tensorType, element).finish();
      const said = putText(new BinaryWriter(), valueFields.name, inputPlaces(name));
      put(writer, graphFields.input, Buffer.concat([content, put(said, valueFields.type, type).finish()]));
    }
    // Else it is left out: of an input, value_info is not heeded, but would be of the node that it becomes.
  }
  return writer.finish();
}

function nodeOf(operator: string, from: readonly string[], to: readonly string[]): Uint8Array {
  const node = new BinaryWriter();
  for (const name of from) {
    putText(node, nodeFields.input, name);
  }
  for (const name of to) {
    putText(node, nodeFields.output, name);
  }
  return putText(node, nodeFields.opType, operator).finish();
}

/** A tensor of one dimension, of any length. */
function vectorOf(name: string, type: number): Uint8Array {
  const dimension = putText(new BinaryWriter(), dimensionName, `length of ${name}`).finish();
  const shape = put(new BinaryWriter(), shapeDimension, dimension).finish();
  const tensor = new BinaryWriter().tag(tensorFields.elemType, WireType.Varint).int32(type);
  const said = put(new BinaryWriter(), tensorType, put(tensor, tensorFields.shape, shape).finish()).finish();
  return put(putText(new BinaryWriter(), valueFields.name, name), valueFields.type, said).finish();
}

function put(writer: BinaryWriter, field: number, content: Uint8Array): BinaryWriter {
  return writer.tag(field, WireType.LengthDelimited).bytes(content);
}

function putText(writer: BinaryWriter, field: number, text: string): BinaryWriter {
  return writer.tag(field, WireType.LengthDelimited).string(text);
}

interface Field {
  readonly field: number;
  /** With its tag. */
  readonly raw: Uint8Array;
  /** Of a message, a text, bytes. */
  readonly content: Uint8Array | undefined;
}

function* fieldsIn(message: Uint8Array): Generator<Field, void, undefined> {
  const reader = new BinaryReader(message);
  while (reader.pos < reader.len) {
    const start = reader.pos;
    const [field, wire] = reader.tag();
    let content: Uint8Array | undefined;
    if (wire === WireType.LengthDelimited) {
      content = reader.bytes();
    } else {
      reader.skip(wire, field);
    }
    yield { field, raw: message.subarray(start, reader.pos), content };
  }
}

function* messagesIn(message: Uint8Array, wanted: number): Generator<Uint8Array, void, undefined> {
  for (const { field, content } of fieldsIn(message)) {
    if (field === wanted && content !== undefined) {
      yield content;
    }
  }
}

/** @throws TypeError where it is not UTF-8 */
function textIn(message: Uint8Array, wanted: number): string {
  let last: Uint8Array = new Uint8Array();
  for (const content of messagesIn(message, wanted)) {
    last = content;
  }
  return new TextDecoder("utf-8", { fatal: true, ignoreBOM: true }).decode(last);
}

/** Whether a ValueInfoProto is a tensor of texts. */
function isText(value: Uint8Array): boolean {
  let element = 0;
  for (const type of messagesIn(value, valueFields.type)) {
    for (const tensor of messagesIn(type, tensorType)) {
      for (const { field, raw, content } of fieldsIn(tensor)) {
        element = field === tensorFields.elemType && content === undefined ? numberIn(raw) : element;
      }
    }
  }
  return element === types.string;
}

function numberIn(field: Uint8Array): number {
  const reader = new BinaryReader(field);
  reader.tag();
  return reader.int32();
}
