import { BinaryReader, WireType } from "@bufbuild/protobuf/wire";
import { type ModelTraits, orderInMetadata } from "../binding/model-facts.js";

/** A model's metadata, and the files that hold its tensors. Text that is not set is "". */
export interface OnnxProto {
  /** 0 when not set. */
  readonly irVersion: bigint;
  /** Distinct, in file order. The domain of ONNX's own operators is "ai.onnx" or "". */
  readonly opsetImports: readonly { readonly domain: string; readonly version: bigint }[];
  readonly producerName: string;
  readonly producerVersion: string;
  readonly domain: string;
  readonly modelVersion: bigint;
  readonly docString: string;
  readonly metadataProps: ReadonlyMap<string, string>;
  /** The distinct `location`s of tensors stored outside the file, sorted. */
  readonly externalData: readonly string[];
  /** Types as ONNX Runtime writes them: "seq(map(int64,tensor(float)))". */
  readonly inputs: readonly NamedType[];
  readonly outputs: readonly NamedType[];
  /** Names of constants: an input of such a name is optional. */
  readonly constants: ReadonlySet<string>;
  /** Also those of its functions and inner graphs. */
  readonly operators: ReadonlySet<string>;
}

interface NamedType {
  readonly name: string;
  readonly type: string;
}

interface Leaf {
  readonly wire: WireType;
  readonly read: (reader: BinaryReader) => void;
}

/** What is read of a message, by the numbers that its fields have in onnx.proto3: values, and fields of inner messages. */
type Fields = { [field: number]: Leaf | Fields };

const depthLimit = 64;

/** Other fields, and those of another wire type, are skipped. @throws RangeError */
function walk(reader: BinaryReader, end: number, fields: Fields, depth = 0): void {
  if (depth > depthLimit) {
    throw new RangeError(`graphs nested more than ${depthLimit} deep`);
  }
  while (reader.pos < end) {
    const [field, wire] = reader.tag();
    const wanted = fields[field];
    if (isLeaf(wanted) && wire === wanted.wire) {
      wanted.read(reader);
    } else if (wanted !== undefined && !isLeaf(wanted) && wire === WireType.LengthDelimited) {
      walk(reader, endOfMessage(reader), wanted, depth + 1);
    } else {
      reader.skip(wire, field);
    }
  }
  if (reader.pos !== end) {
    throw new RangeError("a field runs past the end of its message");
  }
}

function isLeaf(wanted: Leaf | Fields | undefined): wanted is Leaf {
  return wanted !== undefined && "wire" in wanted;
}

function endOfMessage(reader: BinaryReader): number {
  const end = reader.uint32() + reader.pos;
  if (end > reader.len) {
    throw new RangeError("a message runs past the end of the file");
  }
  return end;
}

function text(take: (value: string) => void): Leaf {
  return { wire: WireType.LengthDelimited, read: (reader) => take(reader.string()) };
}

function integer(take: (value: bigint) => void): Leaf {
  return { wire: WireType.Varint, read: (reader) => take(BigInt(reader.int64())) }; // without BigInt support the library has text
}

function message(read: (reader: BinaryReader, end: number) => void): Leaf {
  return { wire: WireType.LengthDelimited, read: (reader) => read(reader, endOfMessage(reader)) };
}

function entry(take: (key: string, value: string) => void): Leaf {
  return message((reader, end) => {
    let [key, value] = ["", ""];
    walk(reader, end, { 1: text((said) => (key = said)), 2: text((said) => (value = said)) });
    take(key, value);
  });
}

/** Parses a serialized ModelProto without loading its tensors. @throws Error when it is none, or has no graph */
export function readOnnxProto(bytes: Uint8Array): OnnxProto {
  const scalars = { irVersion: 0n, modelVersion: 0n, producerName: "", producerVersion: "", domain: "", docString: "" };
  const opsets = new Map<string, OnnxProto["opsetImports"][number]>();
  const metadataProps = new Map<string, string>();
  const [locations, constants, operators] = [new Set<string>(), new Set<string>(), new Set<string>()];
  const [inputs, outputs]: [NamedType[], NamedType[]] = [[], []];
  let graphs = 0;
  const textOf = (key: "producerName" | "producerVersion" | "domain" | "docString"): Leaf =>
    text((value) => (scalars[key] = value));

  const tensor: Fields = { 13: entry((key, value) => key === "location" && locations.add(value)) };
  const sparseTensor: Fields = { 1: tensor, 2: tensor };
  const attribute: Fields = { 5: tensor, 10: tensor, 22: sparseTensor, 23: sparseTensor };
  const node: Fields = { 4: text((operator) => operators.add(operator)), 5: attribute };
  const graph: Fields = { 1: node, 5: tensor, 15: sparseTensor };
  attribute[6] = graph;
  attribute[11] = graph;
  const constant: Fields = { ...tensor, 8: text((name) => constants.add(name)) };
  const outermost: Fields = { ...graph, 5: constant, 11: namedType(inputs), 12: namedType(outputs) };
  walk(new BinaryReader(bytes), bytes.length, {
    1: integer((version) => (scalars.irVersion = version)),
    2: textOf("producerName"),
    3: textOf("producerVersion"),
    4: textOf("domain"),
    5: integer((version) => (scalars.modelVersion = version)),
    6: textOf("docString"),
    7: message((reader, end) => {
      graphs += 1;
      walk(reader, end, outermost, 1);
    }),
    8: message((reader, end) => {
      const opset = { domain: "", version: 0n };
      walk(reader, end, { 1: text((name) => (opset.domain = name)), 2: integer((is) => (opset.version = is)) });
      opsets.set(`${opset.domain} ${opset.version}`, opset);
    }),
    14: entry((key, value) => metadataProps.set(key, value)),
    25: { 7: node, 11: attribute },
  });
  if (graphs === 0) {
    throw new Error("it holds no graph");
  }
  const [opsetImports, externalData] = [[...opsets.values()], [...locations].toSorted()];
  return { ...scalars, opsetImports, metadataProps, externalData, inputs, outputs, constants, operators };
}

/** Operators of ONNX and ONNX Runtime that quantise an input by its smallest and largest value. */
const dynamicQuantizers = new Set(["DynamicQuantizeLinear", "DynamicQuantizeMatMul", "DynamicQuantizeLSTM"]);

/** What is known of a model from its file, apart from its inputs and outputs. */
export function traitsOf({ externalData, metadataProps, outputs, operators }: OnnxProto): ModelTraits {
  return {
    otherOutputs: outputs.filter(({ type }) => !type.startsWith("tensor(")),
    hasTrees: externalData.length === 0 && [...operators].some((name) => name.startsWith("TreeEnsemble")),
    batchScales: [...operators].filter((name) => dynamicQuantizers.has(name)).toSorted(),
    features: orderInMetadata(metadataProps),
  };
}

function namedType(into: NamedType[]): Leaf {
  return message((reader, end) => {
    const found = { name: "", type: "unknown" };
    walk(reader, end, { 1: text((name) => (found.name = name)), 2: typeField((type) => (found.type = type), 0) });
    into.push(found);
  });
}

/** Names of TensorProto.DataType, by number, as ONNX Runtime writes them. */
const elementTypes =
  "undefined float uint8 int8 uint16 int16 int32 int64 string bool float16 double uint32 uint64".split(" ");
const typeDepthLimit = 16;

/** The text of a TypeProto, as ONNX Runtime writes it: "seq(map(int64,tensor(float)))". */
function typeField(take: (type: string) => void, depth: number): Leaf {
  return message((reader, end) => {
    if (depth > typeDepthLimit) {
      throw new RangeError(`types nested more than ${typeDepthLimit} deep`);
    }
    let type = "unknown";
    let parts: string[] = [];
    const kind = (name: string, fields: Fields): Leaf =>
      message((inner, innerEnd) => {
        parts = [];
        walk(inner, innerEnd, fields);
        type = `${name}(${parts.join(",")})`;
      });
    const element = integer((number) => parts.push(elementTypes[Number(number)] ?? String(number)));
    const nested = typeField((part) => parts.push(part), depth + 1);
    walk(reader, end, {
      1: kind("tensor", { 1: element }),
      4: kind("seq", { 1: nested }),
      5: kind("map", { 1: element, 2: nested }),
      8: kind("sparse_tensor", { 1: element }),
      9: kind("optional", { 1: nested }),
    });
    take(type);
  });
}
