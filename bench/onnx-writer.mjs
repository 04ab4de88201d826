// The wire format of an ONNX file (onnx.proto3), field by field, for models that the benchmarks make.
import { WireType } from "@bufbuild/protobuf/wire";

/** Element type FLOAT of onnx.proto3. */
export const float = 1;

/** Writes a message field; `fields` writes what is in it. */
export function message(writer, field, fields) {
  writer.tag(field, WireType.LengthDelimited).fork();
  fields(writer);
  writer.join();
}

export function text(writer, field, string) {
  writer.tag(field, WireType.LengthDelimited).string(string);
}

export function integer(writer, field, number) {
  writer.tag(field, WireType.Varint).int64(number);
}

/** A float32 input or output [N, width]. */
export function rowsOf(graph, field, name, width) {
  message(graph, field, (info) => {
    text(info, 1, name);
    message(info, 2, (type) => {
      message(type, 1, (tensorType) => {
        integer(tensorType, 1, float);
        message(tensorType, 2, (shape) => {
          message(shape, 1, (dimension) => text(dimension, 2, "N"));
          message(shape, 1, (dimension) => integer(dimension, 1, width));
        });
      });
    });
  });
}
