import { BinaryReader, BinaryWriter, WireType } from "@bufbuild/protobuf/wire";
import { fieldsIn, messagesIn, textIn, writeMessage, writeText } from "./fields.js";

// Field numbers of onnx.proto3: ModelProto.graph, functions; GraphProto.node, initializer, sparse_initializer, input,
// output; NodeProto.input, output, op_type, attribute, domain; AttributeProto.name, g, graphs; ValueInfoProto.name,
// type; TypeProto.tensor_type; TypeProto.Tensor.elem_type; TensorProto.name.
const modelFields = { graph: 7, functions: 25 } as const;
const graphFields = { node: 1, name: 2, initializer: 5, sparse: 15, input: 11, output: 12 } as const;
const nodeFields = { input: 1, output: 2, opType: 4, attribute: 5, domain: 7 } as const;
const attributeFields = { name: 1, graph: 6, graphs: 11 } as const;
const valueFields = { name: 1, type: 2 } as const;
const tensorName = 8;

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

/** A serialized message of the graph that has a name. */
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

/** The graph of a serialized ModelProto; undefined: it has functions, subgraphs or sparse constants. */
export function readGraph(model: Uint8Array): OnnxGraph | undefined {
  const graph = { nodes: [] as OnnxNode[], inputs: [] as Named[], outputs: [] as Named[], constants: [] as Named[] };
  const rest: Uint8Array[] = [];
  for (const { field, content, raw } of fieldsIn(model)) {
    if (field === modelFields.functions) {
      return undefined;
    }
    if (field !== modelFields.graph || content === undefined) {
      rest.push(raw);
    } else if (!readInto(graph, content)) {
      return undefined;
    }
  }
  return { ...graph, rest };
}

function readInto(
  graph: { nodes: OnnxNode[]; inputs: Named[]; outputs: Named[]; constants: Named[] },
  message: Uint8Array,
): boolean {
  for (const { field, content } of fieldsIn(message)) {
    if (content === undefined) {
      continue;
    }
    if (field === graphFields.sparse) {
      return false;
    }
    if (field === graphFields.node) {
      const node = readNode(content);
      if (node === undefined) {
        return false;
      }
      graph.nodes.push(node);
    } else if (field === graphFields.input) {
      graph.inputs.push({ name: textIn(content, valueFields.name), bytes: content });
    } else if (field === graphFields.output) {
      graph.outputs.push({ name: textIn(content, valueFields.name), bytes: content });
    } else if (field === graphFields.initializer) {
      graph.constants.push({ name: textIn(content, tensorName), bytes: content });
    }
  }
  return true;
}

/** undefined: an attribute is a graph, which may use any tensor of the graph around it. */
function readNode(bytes: Uint8Array): OnnxNode | undefined {
  const decoder = new TextDecoder("utf-8", { fatal: true, ignoreBOM: true });
  const inputs: string[] = [];
  const outputs: string[] = [];
  const attributes = new Map<string, Uint8Array>();
  let operator = "";
  let domain = "";
  for (const { field, content } of fieldsIn(bytes)) {
    if (content === undefined) {
      continue;
    }
    if (field === nodeFields.attribute) {
      const name = nameIn(content);
      if (name === undefined) {
        return undefined;
      }
      attributes.set(name, content);
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

/** The name of an attribute; undefined: it is a graph. Reads the tags alone, as lists of numbers are long. */
function nameIn(attribute: Uint8Array): string | undefined {
  const reader = new BinaryReader(attribute);
  let name = "";
  while (reader.pos < reader.len) {
    const [field, wire] = reader.tag();
    if (field === attributeFields.graph || field === attributeFields.graphs) {
      return undefined;
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
