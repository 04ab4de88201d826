import { BinaryReader, BinaryWriter, WireType } from "@bufbuild/protobuf/wire";

// Field numbers of onnx.proto3.
export const modelFields = { graph: 7, functions: 25 } as const;
export const graphFields = {
  node: 1,
  name: 2,
  initializer: 5,
  sparse: 15,
  input: 11,
  output: 12,
  valueInfo: 13,
} as const;
export const nodeFields = { input: 1, output: 2, opType: 4, attribute: 5, domain: 7 } as const;
const attributeFields = { name: 1, i: 3, s: 4, t: 5, graph: 6, floats: 7, ints: 8, strings: 9, graphs: 11 } as const;
/** ValueInfoProto; its type is a TypeProto, whose field 1 is that of a tensor, whose field 1 is the type of elements. */
export const valueFields = { name: 1, type: 2 } as const;
const tensorFields = { dataType: 2, floats: 4, name: 8, raw: 9, doubles: 10, docString: 12 } as const;
/** TensorProto.DataType. */
const [floatType, doubleType] = [1, 11];

/** A node of a graph. */
export interface OnnxNode {
  readonly operator: string;
  /** "" for ONNX's own. */
  readonly domain: string;
  /** Names of tensors; "" where an optional one is left out. */
  readonly inputs: readonly string[];
  readonly outputs: readonly string[];
  /** Serialized AttributeProtos by name. */
  readonly attributes: ReadonlyMap<string, Uint8Array>;
  /** The serialized NodeProto. */
  readonly bytes: Uint8Array;
}

interface Named {
  readonly name: string;
  readonly bytes: Uint8Array;
}

/** The graph of a model whose nodes hold no graphs of their own. */
export interface OnnxGraph {
  /** Nodes in an order in which they can run. */
  readonly nodes: readonly OnnxNode[];
  readonly inputs: readonly Named[];
  readonly outputs: readonly Named[];
  readonly constants: readonly Named[];
  /** The fields of the model other than its graph: versions, opsets. */
  readonly rest: readonly Uint8Array[];
}

/** The graph of a serialized ModelProto. @throws RangeError for functions, subgraphs and sparse constants */
export function readGraph(model: Uint8Array): OnnxGraph {
  const graph = { nodes: [] as OnnxNode[], inputs: [] as Named[], outputs: [] as Named[], constants: [] as Named[] };
  const rest: Uint8Array[] = [];
  for (const { field, content, raw } of fieldsIn(model)) {
    if (field === modelFields.functions) {
      throw new RangeError("it has functions");
    }
    if (field !== modelFields.graph || content === undefined) {
      rest.push(raw);
      continue;
    }
    for (const { field: part, content: bytes = new Uint8Array() } of fieldsIn(content)) {
      if (part === graphFields.sparse) {
        throw new RangeError("it has sparse constants");
      } else if (part === graphFields.node) {
        graph.nodes.push(readNode(bytes));
      } else if (part === graphFields.input) {
        graph.inputs.push({ name: textIn(bytes, valueFields.name), bytes });
      } else if (part === graphFields.output) {
        graph.outputs.push({ name: textIn(bytes, valueFields.name), bytes });
      } else if (part === graphFields.initializer) {
        graph.constants.push({ name: textIn(bytes, tensorFields.name), bytes });
      }
    }
  }
  return { ...graph, rest };
}

function readNode(bytes: Uint8Array): OnnxNode {
  const decoder = new TextDecoder("utf-8", { fatal: true, ignoreBOM: true });
  const inputs: string[] = [];
  const outputs: string[] = [];
  const attributes = new Map<string, Uint8Array>();
  let [operator, domain] = ["", ""];
  for (const { field, content = new Uint8Array() } of fieldsIn(bytes)) {
    if (field === nodeFields.attribute) {
      attributes.set(nameIn(content), content);
    } else if (field === nodeFields.input) {
      inputs.push(decoder.decode(content));
    } else if (field === nodeFields.output) {
      outputs.push(decoder.decode(content));
    } else if (field === nodeFields.opType) {
      operator = decoder.decode(content);
    } else if (field === nodeFields.domain) {
      domain = decoder.decode(content);
    }
  }
  return { operator, domain: domain === "ai.onnx" ? "" : domain, inputs, outputs, attributes, bytes };
}

/** Reads the tags alone, as lists of numbers are long. @throws RangeError for a graph, which may use any tensor around it */
function nameIn(attribute: Uint8Array): string {
  const reader = new BinaryReader(attribute);
  let name = "";
  while (reader.pos < reader.len) {
    const [field, wire] = reader.tag();
    if (field === attributeFields.graph || field === attributeFields.graphs) {
      throw new RangeError("it has subgraphs");
    }
    if (field === attributeFields.name) {
      name = reader.string();
    } else if (wire === WireType.Varint) {
      skipVarint(reader, attribute);
    } else {
      reader.skip(wire, field);
    }
  }
  return name;
}

/** The library's own way takes several times as long. */
function skipVarint(reader: BinaryReader, bytes: Uint8Array): void {
  while ((bytes[reader.pos] ?? 0) > 127) {
    reader.pos += 1;
  }
  reader.pos += 1;
}

/** The TensorProto.DataType of a ValueInfoProto; 0: it is no tensor, or not said. */
export function elementTypeOf(value: Uint8Array): number {
  let element = 0;
  for (const type of messagesIn(value, valueFields.type)) {
    for (const tensor of messagesIn(type, 1)) {
      const reader = new BinaryReader(tensor);
      while (reader.pos < reader.len) {
        const [field, wire] = reader.tag();
        if (field === 1 && wire === WireType.Varint) {
          element = reader.int32();
        } else {
          reader.skip(wire, field);
        }
      }
    }
  }
  return element;
}

/** A ValueInfoProto of a tensor; without `element`, ONNX Runtime finds out its type. */
export function valueOf(name: string, element?: number): Named {
  const value = writeText(new BinaryWriter(), valueFields.name, name);
  if (element !== undefined) {
    const tensor = new BinaryWriter().tag(1, WireType.Varint).int32(element).finish();
    writeMessage(value, valueFields.type, writeMessage(new BinaryWriter(), 1, tensor).finish());
  }
  return { name, bytes: value.finish() };
}

/** A model of some of a graph's nodes, with the constants that these use. */
export function writeModelOf(graph: OnnxGraph, part: Pick<OnnxGraph, "nodes" | "inputs" | "outputs">): Uint8Array {
  const used = new Set([
    ...part.nodes.flatMap(({ inputs }) => inputs),
    ...part.outputs.map(({ name }) => name), // an output may be a constant
  ]);
  const written = new BinaryWriter();
  for (const node of part.nodes) {
    writeMessage(written, graphFields.node, node.bytes);
  }
  writeText(written, graphFields.name, "part");
  for (const { name, bytes } of graph.constants) {
    if (used.has(name)) {
      writeMessage(written, graphFields.initializer, bytes);
    }
  }
  for (const { bytes } of part.inputs) {
    writeMessage(written, graphFields.input, bytes);
  }
  for (const { bytes } of part.outputs) {
    writeMessage(written, graphFields.output, bytes);
  }
  const model = new BinaryWriter();
  for (const field of graph.rest) {
    model.raw(field);
  }
  return writeMessage(model, modelFields.graph, written.finish()).finish();
}

export function writeMessage(writer: BinaryWriter, field: number, content: Uint8Array): BinaryWriter {
  return writer.tag(field, WireType.LengthDelimited).bytes(content);
}

export function writeText(writer: BinaryWriter, field: number, text: string): BinaryWriter {
  return writer.tag(field, WireType.LengthDelimited).string(text);
}

interface Field {
  readonly field: number;
  /** The field with its tag. */
  readonly raw: Uint8Array;
  /** The content of a message, a text or bytes. */
  readonly content: Uint8Array | undefined;
}

/** The fields of a message in the order of the message, repeated ones too. */
export function* fieldsIn(message: Uint8Array): Generator<Field, void, undefined> {
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

/** A text field; "" where it is not set. @throws TypeError where it is not UTF-8 */
export function textIn(message: Uint8Array, wanted: number): string {
  let last: Uint8Array = new Uint8Array();
  for (const content of messagesIn(message, wanted)) {
    last = content;
  }
  return new TextDecoder("utf-8", { fatal: true, ignoreBOM: true }).decode(last);
}

/** The attributes of a node, by name: serialized AttributeProtos. */
export type Attributes = ReadonlyMap<string, Uint8Array>;

/** A list of integers; empty where it is not set. @throws RangeError for one that no number holds exactly */
export function integersIn(attributes: Attributes, name: string): Float64Array {
  return Float64Array.from(numbersIn(attributes, name, attributeFields.ints, integerOf));
}

/** The same, of any size. */
export function longsIn(attributes: Attributes, name: string): bigint[] {
  return numbersIn(attributes, name, attributeFields.ints, (reader) => BigInt(reader.int64()));
}

/** A list of floats; empty where it is not set. */
export function floatsIn(attributes: Attributes, name: string): Float64Array {
  return Float64Array.from(numbersIn(attributes, name, attributeFields.floats, (reader) => reader.float()));
}

function numbersIn<T>(attributes: Attributes, name: string, field: number, read: (reader: BinaryReader) => T): T[] {
  const values: T[] = [];
  visit(attributes, name, field, (reader, wire) => {
    readPacked(reader, wire, () => values.push(read(reader)));
  });
  return values;
}

function readPacked(reader: BinaryReader, wire: WireType, read: () => void): void {
  if (wire !== WireType.LengthDelimited) {
    read();
    return;
  }
  for (const end = reader.uint32() + reader.pos; reader.pos < end; ) {
    read();
  }
}

/** A list of texts; empty where it is not set. */
export function textsIn(attributes: Attributes, name: string): string[] {
  const known = new Map<number, string>(); // few differ, by length: decoding each takes long
  const values: string[] = [];
  const decoder = new TextDecoder("utf-8", { fatal: true, ignoreBOM: true });
  visit(attributes, name, attributeFields.strings, (reader) => {
    const bytes = reader.bytes();
    const before = known.get(bytes.length);
    const text = before !== undefined && isAscii(bytes, before) ? before : decoder.decode(bytes);
    known.set(bytes.length, text);
    values.push(text);
  });
  return values;
}

function isAscii(bytes: Uint8Array, text: string): boolean {
  for (let at = 0; at < bytes.length; at += 1) {
    if (bytes[at] !== text.charCodeAt(at) || (bytes[at] ?? 0) > 127) {
      return false;
    }
  }
  return text.length === bytes.length;
}

/** A text; undefined where it is not set. */
export function attributeText(attributes: Attributes, name: string): string | undefined {
  return valueIn(attributes, name, attributeFields.s, (reader) =>
    new TextDecoder("utf-8", { fatal: true, ignoreBOM: true }).decode(reader.bytes()),
  );
}

/** An integer; undefined where it is not set. */
export function integerIn(attributes: Attributes, name: string): number | undefined {
  return valueIn(attributes, name, attributeFields.i, integerOf);
}

interface NumericTensor {
  readonly dataType: number;
  readonly values: Float64Array;
}

/** The numbers of a tensor of floats or doubles of one dimension; undefined: not set. */
export function tensorIn(attributes: Attributes, name: string): NumericTensor | undefined {
  return valueIn(attributes, name, attributeFields.t, (reader) => tensorOf(reader.bytes()));
}

function valueIn<T>(
  attributes: Attributes,
  name: string,
  field: number,
  read: (reader: BinaryReader) => T,
): T | undefined {
  let value: T | undefined;
  visit(attributes, name, field, (reader) => {
    value = read(reader);
  });
  return value;
}

/** The numbers of a serialized TensorProto. @throws RangeError for types, or places of its bytes, that are not known */
export function tensorOf(message: Uint8Array): NumericTensor {
  const reader = new BinaryReader(message);
  const numbers: number[] = [];
  let raw: Uint8Array | undefined;
  let dataType = 0;
  while (reader.pos < reader.len) {
    const [field, wire] = reader.tag();
    if (field === tensorFields.dataType) {
      dataType = reader.int32();
    } else if (field === tensorFields.floats) {
      readPacked(reader, wire, () => numbers.push(reader.float()));
    } else if (field === tensorFields.doubles) {
      readPacked(reader, wire, () => numbers.push(reader.double()));
    } else if (field === tensorFields.raw) {
      raw = reader.bytes();
    } else if (field > tensorFields.dataType && field !== tensorFields.name && field !== tensorFields.docString) {
      throw new RangeError(`a tensor with field ${field}`); // other types, or bytes in other files
    } else {
      reader.skip(wire, field);
    }
  }
  if (dataType !== floatType && dataType !== doubleType) {
    throw new RangeError(`a tensor of data type ${dataType}`);
  }
  return { dataType, values: raw === undefined ? Float64Array.from(numbers) : rawNumbers(raw, dataType) };
}

function rawNumbers(raw: Uint8Array, dataType: number): Float64Array {
  const view = new DataView(raw.buffer, raw.byteOffset, raw.byteLength);
  const isFloat = dataType === floatType;
  return Float64Array.from({ length: Math.floor(raw.length / (isFloat ? 4 : 8)) }, (_, index) =>
    isFloat ? view.getFloat32(index * 4, true) : view.getFloat64(index * 8, true),
  );
}

function visit(
  attributes: Attributes,
  name: string,
  wanted: number,
  take: (reader: BinaryReader, wire: WireType) => void,
): void {
  const reader = new BinaryReader(attributes.get(name) ?? new Uint8Array());
  while (reader.pos < reader.len) {
    const [field, wire] = reader.tag();
    if (field === wanted) {
      take(reader, wire);
    } else {
      reader.skip(wire, field);
    }
  }
}

/** Small ones without a BigInt, which takes long. */
function integerOf(reader: BinaryReader): number {
  const before = reader.pos;
  const low = reader.uint32();
  if (reader.pos - before <= 4) {
    return low;
  }
  reader.pos = before;
  const value = Number(reader.int64());
  if (!Number.isSafeInteger(value)) {
    throw new RangeError("an integer beyond those that are exact");
  }
  return value;
}
