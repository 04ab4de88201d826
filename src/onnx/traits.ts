import { BinaryReader, WireType } from "@bufbuild/protobuf/wire";
import { orderInMetadata, type ModelTraits } from "../binding/model-facts.js";
import { endOfMessage, type OnnxProto, readFields } from "./proto.js";

/** Operators of ONNX and ONNX Runtime that quantise an input by its smallest and largest value. */
const dynamicQuantizers = new Set(["DynamicQuantizeLinear", "DynamicQuantizeMatMul", "DynamicQuantizeLSTM"]);

type Visitor = { readonly [field: number]: Visitor };

// Field numbers of onnx.proto3, from ModelProto through graphs, functions and attributes to each NodeProto.
const node: { [field: number]: Visitor } = {};
const graph: Visitor = { 1: node };
node[5] = { 6: graph, 11: graph };
const model: Visitor = { 7: graph, 25: { 7: node } };
const opTypeField = 4;
const graphField = 7;
const outputField = 12;

/** Reads traits of a serialized ModelProto that `readOnnxProto` has parsed. Damage is left for ONNX Runtime to report. */
export function readTraits(
  bytes: Uint8Array,
  { producerName, externalData, metadataProps }: Pick<OnnxProto, "producerName" | "externalData" | "metadataProps">,
): ModelTraits {
  const found: FoundTraits = { operators: new Set(), outputs: [] };
  try {
    walk(new BinaryReader(bytes), bytes.length, model, found);
  } catch {
    // ONNX Runtime refuses a damaged model with a better message.
  }
  return {
    producer: producerName,
    otherOutputs: found.outputs.filter(({ type }) => !type.startsWith("tensor(")),
    hasTrees: externalData.length === 0 && [...found.operators].some((name) => name.startsWith("TreeEnsemble")),
    batchScales: [...found.operators].filter((name) => dynamicQuantizers.has(name)).toSorted(),
    features: orderInMetadata(metadataProps),
  };
}

interface FoundTraits {
  readonly operators: Set<string>;
  readonly outputs: { readonly name: string; readonly type: string }[];
}

function walk(reader: BinaryReader, end: number, visitor: Visitor, found: FoundTraits): void {
  readFields(reader, end, (field, wire) => {
    if (wire !== WireType.LengthDelimited) {
      return false;
    }
    const next = visitor[field];
    if (visitor === node && field === opTypeField) {
      found.operators.add(reader.string());
    } else if (visitor === topGraph && field === outputField) {
      found.outputs.push(readOutput(reader, endOfMessage(reader)));
    } else if (next !== undefined) {
      walk(reader, endOfMessage(reader), visitor === model && field === graphField ? topGraph : next, found);
    } else {
      return false;
    }
    return true;
  });
}

/** The model's own graph, whose outputs are those of the model. */
const topGraph: Visitor = { ...graph };

/** ValueInfoProto: name, type. */
function readOutput(reader: BinaryReader, end: number): { name: string; type: string } {
  let name = "";
  let type = "unknown";
  readFields(reader, end, (field, wire) => {
    if (field === 1 && wire === WireType.LengthDelimited) {
      name = reader.string();
    } else if (field === 2 && wire === WireType.LengthDelimited) {
      type = readType(reader, endOfMessage(reader), 0);
    } else {
      return false;
    }
    return true;
  });
  return { name, type };
}

/** Names of TensorProto.DataType, by number, as ONNX Runtime writes them. */
const elementTypes =
  "undefined float uint8 int8 uint16 int16 int32 int64 string bool float16 double uint32 uint64".split(" ");
const depthLimit = 16;

/** The text of a TypeProto, as ONNX Runtime writes it: "seq(map(int64,tensor(float)))". */
function readType(reader: BinaryReader, end: number, depth: number): string {
  if (depth > depthLimit) {
    throw new RangeError(`types nested more than ${depthLimit} deep`);
  }
  let found = "unknown";
  readFields(reader, end, (field, wire) => {
    const name = kinds[field];
    if (name === undefined || wire !== WireType.LengthDelimited) {
      return false;
    }
    const parts: string[] = [];
    readFields(reader, endOfMessage(reader), (part, partWire) => {
      if (partWire === WireType.Varint && part === 1) {
        const element = reader.int32();
        parts.push(elementTypes[element] ?? String(element));
      } else if (partWire === WireType.LengthDelimited && isType(field, part)) {
        parts.push(readType(reader, endOfMessage(reader), depth + 1));
      } else {
        return false;
      }
      return true;
    });
    found = `${name}(${parts.join(",")})`;
    return true;
  });
  return found;
}

/** Names of TypeProto's fields, by number. */
const kinds: Readonly<Record<number, string>> = {
  1: "tensor",
  4: "seq",
  5: "map",
  8: "sparse_tensor",
  9: "optional",
};

/** Whether a field of a sequence, map or optional holds the type of its elements. */
function isType(kind: number, field: number): boolean {
  return (kind === 5 && field === 2) || ((kind === 4 || kind === 9) && field === 1);
}
