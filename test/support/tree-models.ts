import { BinaryWriter, WireType } from "@bufbuild/protobuf/wire";

/** A node of trees as a model of its own, written field by field (onnx.proto3). */
export interface TreeNodeModel {
  readonly operator: string;
  /** Of ai.onnx.ml. */
  readonly opset: number;
  readonly attributes: Readonly<Record<string, Attribute>>;
  /** TensorProto.DataType of the rows: 1 float, 6 int32, 7 int64, 11 double. */
  readonly element: 1 | 6 | 7 | 11;
  readonly outputs: readonly string[];
}

export type Attribute =
  | { readonly integers: readonly (number | bigint)[] }
  | { readonly floats: readonly number[] }
  | { readonly texts: readonly string[] }
  | { readonly text: string }
  | { readonly integer: number }
  | { readonly tensor: readonly number[]; readonly dataType: 1 | 11 };

type Fields = (writer: BinaryWriter) => void;

function message(writer: BinaryWriter, field: number, fields: Fields): void {
  writer.tag(field, WireType.LengthDelimited).fork();
  fields(writer);
  writer.join();
}

function text(writer: BinaryWriter, field: number, value: string): void {
  writer.tag(field, WireType.LengthDelimited).string(value);
}

function integer(writer: BinaryWriter, field: number, value: number | bigint): void {
  writer.tag(field, WireType.Varint).int64(value);
}

/** The model takes `x` [N, features]. */
export function writeTreeModel({
  operator,
  opset,
  attributes,
  element,
  outputs,
}: TreeNodeModel): Uint8Array<ArrayBuffer> {
  const writer = new BinaryWriter();
  integer(writer, 1, 10); // ir_version
  message(writer, 7, (graph) => {
    message(graph, 1, (node) => {
      text(node, 1, "x");
      outputs.forEach((output) => {
        text(node, 2, output);
      });
      text(node, 4, operator);
      text(node, 7, "ai.onnx.ml");
      Object.entries(attributes).forEach(([name, attribute]) => {
        message(node, 5, attributeFields(name, attribute));
      });
    });
    text(graph, 2, "trees");
    message(graph, 11, (value) => {
      text(value, 1, "x");
      message(value, 2, (type) => {
        message(type, 1, (tensor) => {
          integer(tensor, 1, element);
        });
      });
    });
    outputs.forEach((output) => {
      message(graph, 12, (value) => {
        text(value, 1, output);
      });
    });
  });
  message(writer, 8, (imported) => {
    text(imported, 1, "ai.onnx.ml");
    integer(imported, 2, opset);
  });
  message(writer, 8, (imported) => {
    integer(imported, 2, 17);
  });
  return writer.finish();
}

function attributeFields(name: string, attribute: Attribute): Fields {
  return (writer) => {
    text(writer, 1, name);
    if ("integers" in attribute) {
      attribute.integers.forEach((value) => {
        integer(writer, 8, value);
      });
      integer(writer, 20, 7);
    } else if ("floats" in attribute) {
      attribute.floats.forEach((value) => writer.tag(7, WireType.Bit32).float(value));
      integer(writer, 20, 6);
    } else if ("texts" in attribute) {
      attribute.texts.forEach((value) => {
        text(writer, 9, value);
      });
      integer(writer, 20, 8);
    } else if ("text" in attribute) {
      text(writer, 4, attribute.text);
      integer(writer, 20, 3);
    } else if ("integer" in attribute) {
      integer(writer, 3, attribute.integer);
      integer(writer, 20, 2);
    } else {
      message(writer, 5, tensorFields(attribute.tensor, attribute.dataType));
      integer(writer, 20, 4);
    }
  };
}

function tensorFields(values: readonly number[], dataType: 1 | 11): Fields {
  return (writer) => {
    integer(writer, 1, values.length);
    integer(writer, 2, dataType);
    const bytes = dataType === 1 ? Float32Array.from(values) : Float64Array.from(values);
    writer.tag(9, WireType.LengthDelimited).bytes(new Uint8Array(bytes.buffer));
  };
}
