import { BinaryReader, WireType } from "@bufbuild/protobuf/wire";

/** A model's metadata, and the files that hold its tensors. Text that is not set is "". */
export interface OnnxProto {
  /** 0 when not set. */
  readonly irVersion: bigint;
  /** Distinct, in file order. The domain of ONNX's own operators is "ai.onnx" or "". */
  readonly opsetImports: readonly OpsetImport[];
  readonly producerName: string;
  readonly producerVersion: string;
  readonly domain: string;
  readonly modelVersion: bigint;
  readonly docString: string;
  readonly metadataProps: ReadonlyMap<string, string>;
  /** The distinct `location`s of tensors stored outside the file, sorted. */
  readonly externalData: readonly string[];
}

interface OpsetImport {
  readonly domain: string;
  readonly version: bigint;
}

// Field numbers of onnx.proto3: GraphProto.node, initializer, sparse_initializer; FunctionProto.node,
// attribute_proto; NodeProto.attribute; AttributeProto.t, g, tensors, graphs, sparse_tensor(s);
// SparseTensorProto.values, indices; TensorProto.external_data.
type Visitor = { readonly [field: number]: Visitor | "external_data" };

const tensor: Visitor = { 13: "external_data" };
const sparseTensor: Visitor = { 1: tensor, 2: tensor };
const attribute: { [field: number]: Visitor | "external_data" } = {
  5: tensor,
  10: tensor,
  22: sparseTensor,
  23: sparseTensor,
};
const node: Visitor = { 5: attribute };
const graph: Visitor = { 1: node, 5: tensor, 15: sparseTensor };
attribute[6] = graph;
attribute[11] = graph;
const modelFunction: Visitor = { 7: node, 11: attribute };

// Fields of ModelProto with scalar values.
const versions: Readonly<Record<number, "irVersion" | "modelVersion">> = { 1: "irVersion", 5: "modelVersion" };
const texts: Readonly<Record<number, "producerName" | "producerVersion" | "domain" | "docString">> = {
  2: "producerName",
  3: "producerVersion",
  4: "domain",
  6: "docString",
};
const graphField = 7;
const opsetImportField = 8;
const metadataPropsField = 14;
const functionsField = 25;

const depthLimit = 64;

/**
 * Parses a serialized ModelProto without loading its tensors.
 * @throws Error when the bytes are not a ModelProto, or have no graph
 */
export function readOnnxProto(bytes: Uint8Array): OnnxProto {
  const reader = new BinaryReader(bytes);
  const scalars = { irVersion: 0n, modelVersion: 0n, producerName: "", producerVersion: "", domain: "", docString: "" };
  const opsets = new Map<string, OpsetImport>();
  const metadataProps = new Map<string, string>();
  const locations = new Set<string>();
  let graphs = 0;
  readFields(reader, bytes.length, (field, wire) => {
    const version = versions[field];
    if (wire === WireType.Varint && version !== undefined) {
      scalars[version] = readInt64(reader);
      return true;
    }
    if (wire !== WireType.LengthDelimited) {
      return false;
    }
    const text = texts[field];
    if (text !== undefined) {
      scalars[text] = reader.string();
    } else if (field === graphField || field === functionsField) {
      graphs += field === graphField ? 1 : 0;
      walk(reader, endOfMessage(reader), field === graphField ? graph : modelFunction, { locations, depth: 1 });
    } else if (field === opsetImportField) {
      const opset = readOpsetImport(reader, endOfMessage(reader));
      opsets.set(`${opset.domain} ${opset.version}`, opset);
    } else if (field === metadataPropsField) {
      metadataProps.set(...readStringEntry(reader, endOfMessage(reader)));
    } else {
      return false;
    }
    return true;
  });
  if (graphs === 0) {
    throw new Error("it holds no graph");
  }
  return { ...scalars, opsetImports: [...opsets.values()], metadataProps, externalData: [...locations].toSorted() };
}

/** Calls `readField` for every field of a message; it reads the value, or returns false to skip it. */
export function readFields(
  reader: BinaryReader,
  end: number,
  readField: (field: number, wire: WireType) => boolean,
): void {
  while (reader.pos < end) {
    const [field, wire] = reader.tag();
    if (!readField(field, wire)) {
      reader.skip(wire, field);
    }
  }
  if (reader.pos !== end) {
    throw new RangeError("a field runs past the end of its message");
  }
}

/** Reads the length of a nested message, and returns the position of its end. */
export function endOfMessage(reader: BinaryReader): number {
  const end = reader.uint32() + reader.pos;
  if (end > reader.len) {
    throw new RangeError("a message runs past the end of the file");
  }
  return end;
}

function walk(
  reader: BinaryReader,
  end: number,
  visitor: Visitor,
  { locations, depth }: { readonly locations: Set<string>; readonly depth: number },
): void {
  if (depth > depthLimit) {
    throw new RangeError(`graphs nested more than ${depthLimit} deep`);
  }
  readFields(reader, end, (field, wire) => {
    const next = wire === WireType.LengthDelimited ? visitor[field] : undefined;
    if (next === undefined) {
      return false;
    }
    if (next === "external_data") {
      const [key, value] = readStringEntry(reader, endOfMessage(reader));
      if (key === "location") {
        locations.add(value);
      }
    } else {
      walk(reader, endOfMessage(reader), next, { locations, depth: depth + 1 });
    }
    return true;
  });
}

/** Reads a StringStringEntryProto: key, value. */
function readStringEntry(reader: BinaryReader, end: number): [string, string] {
  const entry: [string, string] = ["", ""];
  readFields(reader, end, (field, wire) => {
    if (wire !== WireType.LengthDelimited || field > 2) {
      return false;
    }
    entry[field - 1] = reader.string();
    return true;
  });
  return entry;
}

/** Reads an OperatorSetIdProto: domain, version. */
function readOpsetImport(reader: BinaryReader, end: number): OpsetImport {
  let domain = "";
  let version = 0n;
  readFields(reader, end, (field, wire) => {
    if (field === 1 && wire === WireType.LengthDelimited) {
      domain = reader.string();
    } else if (field === 2 && wire === WireType.Varint) {
      version = readInt64(reader);
    } else {
      return false;
    }
    return true;
  });
  return { domain, version };
}

/** Converts to bigint: without BigInt support the library would return text, and its type says so. */
function readInt64(reader: BinaryReader): bigint {
  return BigInt(reader.int64());
}
