import type { TensorType } from "../../../columnar/tensor.js";

/** Data types of the Open Inference Protocol. */
const names: Readonly<Record<TensorType, string>> = {
  bool: "BOOL",
  int8: "INT8",
  int16: "INT16",
  int32: "INT32",
  int64: "INT64",
  uint8: "UINT8",
  uint16: "UINT16",
  uint32: "UINT32",
  uint64: "UINT64",
  float16: "FP16",
  float32: "FP32",
  float64: "FP64",
  string: "BYTES",
};

const types = new Map(Object.entries(names).map(([type, name]) => [name, type as TensorType]));

/** The protocol's name of a type: "FP32". */
export function datatypeOf(type: TensorType): string {
  return names[type];
}

/** The type of a name in the protocol; undefined for one that no tensor of ours has ("BF16"). */
export function typeOfDatatype(datatype: string): TensorType | undefined {
  return types.get(datatype);
}
