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
}

interface Leaf {
  readonly wire: WireType;
  readonly read: (reader: BinaryReader) => void;
}

/** What is read of a message, by the numbers that its fields have in onnx.proto3: values, and fields of inner messages. */
type Fields = { [field: number]: Leaf | Fields };

const depthLimit = 64;

/** Reads a message up to `end`. Other fields, and those of another wire type, are skipped. @throws RangeError */
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

/** Reads the length of a nested message, and returns the position of its end. */
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

/** A StringStringEntryProto. */
function entry(take: (key: string, value: string) => void): Leaf {
  return message((reader, end) => {
    let [key, value] = ["", ""];
    walk(reader, end, { 1: text((said) => (key = said)), 2: text((said) => (value = said)) });
    take(key, value);
  });
}

/**
 * Parses a serialized ModelProto without loading its tensors.
 * @throws Error when the bytes are not a ModelProto, or have no graph
 */
export function readOnnxProto(bytes: Uint8Array): OnnxProto {
  const scalars = { irVersion: 0n, modelVersion: 0n, producerName: "", producerVersion: "", domain: "", docString: "" };
  const opsets = new Map<string, OnnxProto["opsetImports"][number]>();
  const metadataProps = new Map<string, string>();
  const locations = new Set<string>();
  let graphs = 0;
  const textOf = (key: "producerName" | "producerVersion" | "domain" | "docString"): Leaf =>
    text((value) => (scalars[key] = value));

  const tensor: Fields = { 13: entry((key, value) => key === "location" && locations.add(value)) };
  const sparseTensor: Fields = { 1: tensor, 2: tensor };
  const attribute: Fields = { 5: tensor, 10: tensor, 22: sparseTensor, 23: sparseTensor };
  const node: Fields = { 5: attribute };
  const graph: Fields = { 1: node, 5: tensor, 15: sparseTensor };
  attribute[6] = graph;
  attribute[11] = graph;
  walk(new BinaryReader(bytes), bytes.length, {
    1: integer((version) => (scalars.irVersion = version)),
    2: textOf("producerName"),
    3: textOf("producerVersion"),
    4: textOf("domain"),
    5: integer((version) => (scalars.modelVersion = version)),
    6: textOf("docString"),
    7: message((reader, end) => {
      graphs += 1;
      walk(reader, end, graph, 1);
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
  return { ...scalars, opsetImports: [...opsets.values()], metadataProps, externalData: [...locations].toSorted() };
}

/** Operators of ONNX and ONNX Runtime that quantise an input by its smallest and largest value. */
const dynamicQuantizers = new Set(["DynamicQuantizeLinear", "DynamicQuantizeMatMul", "DynamicQuantizeLSTM"]);

/** Reads traits of a serialized ModelProto that `readOnnxProto` has parsed. Damage is left for ONNX Runtime to report. */
export function readTraits(
  bytes: Uint8Array,
  { producerName, externalData, metadataProps }: Pick<OnnxProto, "producerName" | "externalData" | "metadataProps">,
): ModelTraits {
  const operators = new Set<string>();
  const outputs: { name: string; type: string }[] = [];
  const node: Fields = { 4: text((operator) => operators.add(operator)) };
  const graph: Fields = { 1: node };
  node[5] = { 6: graph, 11: graph };
  const output = message((reader, end) => {
    const value = { name: "", type: "unknown" };
    walk(reader, end, { 1: text((name) => (value.name = name)), 2: typeField((type) => (value.type = type), 0) });
    outputs.push(value);
  });
  try {
    walk(new BinaryReader(bytes), bytes.length, { 7: { ...graph, 12: output }, 25: { 7: node } });
  } catch {
    // ONNX Runtime refuses a damaged model with a better message.
  }
  return {
    producer: producerName,
    otherOutputs: outputs.filter(({ type }) => !type.startsWith("tensor(")),
    hasTrees: externalData.length === 0 && [...operators].some((name) => name.startsWith("TreeEnsemble")),
    batchScales: [...operators].filter((name) => dynamicQuantizers.has(name)).toSorted(),
    features: orderInMetadata(metadataProps),
  };
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

/** More bytes than the tag and length of any field take, which are ten each. */
const maxHeaderBytes = 20;
/** More fields than a model has: one for each function and pair of metadata, and a handful of others. */
const maxFields = 16_384;
const graphField = 7;

/**
 * Checks that a large file is a ModelProto by its outermost fields, reading a few bytes of each.
 * @param read returns bytes [offset, offset + length) of the file
 * @throws Error when they are not the fields of a ModelProto, or there is no graph
 */
export async function checkModelFields(
  sizeBytes: number,
  read: (offset: number, length: number) => Promise<Uint8Array>,
): Promise<void> {
  let offset = 0;
  let hasGraph = false;
  for (let fields = 0; offset < sizeBytes; fields += 1) {
    if (fields === maxFields) {
      throw new RangeError(`more than ${maxFields} fields`);
    }
    const header = new BinaryReader(await read(offset, Math.min(maxHeaderBytes, sizeBytes - offset)));
    const [field, wire] = header.tag();
    if (wire === WireType.LengthDelimited) {
      hasGraph ||= field === graphField;
      offset += header.uint32();
    } else {
      header.skip(wire, field);
    }
    offset += header.pos;
  }
  if (offset !== sizeBytes) {
    throw new RangeError("a field runs past the end of the file");
  }
  if (!hasGraph) {
    throw new Error("it holds no graph");
  }
}
