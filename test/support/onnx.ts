import { writeFile } from "node:fs/promises";
import { BinaryWriter, WireType } from "@bufbuild/protobuf/wire";

/** ONNX models of a node or two, written field by field (onnx.proto3): what a test needs and no exporter makes. */
export interface SmallModel {
  readonly inputs: readonly TensorShape[];
  readonly outputs: readonly TensorShape[];
  readonly nodes: readonly GraphNode[];
  readonly constants?: readonly Constant[];
  /** Of ONNX's own operators; default: 13. */
  readonly opset?: number;
}

export interface TensorShape {
  readonly name: string;
  readonly dtype: keyof typeof elementTypes;
  /** A name: a dimension that may vary. */
  readonly shape: readonly (number | string)[];
}

export interface GraphNode {
  readonly op: string;
  readonly from: readonly string[];
  readonly to: string;
  /** Integers, or lists of them. */
  readonly attributes?: Readonly<Record<string, number | readonly number[]>>;
}

/** A float32 tensor of one dimension, or of the shape given, in the model or in a file beside it. */
export type Constant =
  | { readonly name: string; readonly values: readonly number[]; readonly shape?: readonly number[] }
  | { readonly name: string; readonly length: number; readonly location: string };

const elementTypes = {
  float32: 1,
  uint8: 2,
  int8: 3,
  uint16: 4,
  int16: 5,
  int32: 6,
  int64: 7,
  string: 8,
  bool: 9,
  float16: 10,
  float64: 11,
  uint32: 12,
  uint64: 13,
} as const;
const attributeTypes = { integer: 2, integers: 7 } as const;

type Fields = (writer: BinaryWriter) => void;

const message = (writer: BinaryWriter, field: number, fields: Fields): void => {
  writer.tag(field, WireType.LengthDelimited).fork();
  fields(writer);
  writer.join();
};
const text = (writer: BinaryWriter, field: number, value: string): void => {
  writer.tag(field, WireType.LengthDelimited).string(value);
};
const integer = (writer: BinaryWriter, field: number, value: number): void => {
  writer.tag(field, WireType.Varint).int64(value);
};

export async function writeModel(
  path: string,
  { inputs, outputs, nodes, constants = [], opset = 13 }: SmallModel,
): Promise<void> {
  const writer = new BinaryWriter();
  integer(writer, 1, 8); // ir_version
  message(writer, 7, (graph) => {
    nodes.forEach((node) => message(graph, 1, nodeFields(node)));
    text(graph, 2, "small");
    constants.forEach((constant) => message(graph, 5, constantFields(constant)));
    inputs.forEach((tensor) => message(graph, 11, valueFields(tensor)));
    outputs.forEach((tensor) => message(graph, 12, valueFields(tensor)));
  });
  message(writer, 8, (imported) => integer(imported, 2, opset));
  await writeFile(path, writer.finish());
}

function nodeFields({ op, from, to, attributes = {} }: GraphNode): Fields {
  return (node) => {
    from.forEach((name) => text(node, 1, name));
    text(node, 2, to);
    text(node, 4, op);
    for (const [name, value] of Object.entries(attributes)) {
      message(node, 5, (attribute) => {
        text(attribute, 1, name);
        if (typeof value === "number") {
          integer(attribute, 3, value);
        } else {
          value.forEach((one) => integer(attribute, 8, one));
        }
        integer(attribute, 20, typeof value === "number" ? attributeTypes.integer : attributeTypes.integers);
      });
    }
  };
}

function constantFields(constant: Constant): Fields {
  return (tensor) => {
    const length = "values" in constant ? constant.values.length : constant.length;
    const shape = "values" in constant ? (constant.shape ?? [length]) : [length];
    shape.forEach((size) => integer(tensor, 1, size));
    integer(tensor, 2, elementTypes.float32);
    text(tensor, 8, constant.name);
    if ("values" in constant) {
      const bytes = new Uint8Array(Float32Array.from(constant.values).buffer);
      tensor.tag(9, WireType.LengthDelimited).bytes(bytes);
    } else {
      const { location } = constant;
      message(tensor, 13, (entry) => {
        text(entry, 1, "location");
        text(entry, 2, location);
      });
      integer(tensor, 14, 1); // data_location: EXTERNAL
    }
  };
}

function valueFields({ name, dtype, shape }: TensorShape): Fields {
  return (value) => {
    text(value, 1, name);
    message(value, 2, (type) => {
      message(type, 1, (tensor) => {
        integer(tensor, 1, elementTypes[dtype]);
        message(tensor, 2, (dimensions) => {
          for (const size of shape) {
            message(dimensions, 1, (dimension) => {
              if (typeof size === "number") {
                integer(dimension, 1, size);
              } else {
                text(dimension, 2, size);
              }
            });
          }
        });
      });
    });
  };
}
