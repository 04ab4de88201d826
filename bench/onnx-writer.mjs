// The wire format of an ONNX file (onnx.proto3), field by field, for models that the benchmarks make.
import { WireType } from "@bufbuild/protobuf/wire";

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
