/** Values of a tensor; texts as JavaScript has them. FP16: the bits. BOOL: 0 or 1. */
export type Values =
  | Int8Array
  | Uint8Array
  | Int16Array
  | Uint16Array
  | Int32Array
  | Uint32Array
  | BigInt64Array
  | BigUint64Array
  | Float32Array
  | Float64Array
  | readonly string[];

/** ONNX Runtime's name of each data type of the protocol. */
export const onnxTypes: Readonly<Record<string, string>> = {
  BOOL: "bool",
  INT8: "int8",
  INT16: "int16",
  INT32: "int32",
  INT64: "int64",
  UINT8: "uint8",
  UINT16: "uint16",
  UINT32: "uint32",
  UINT64: "uint64",
  FP16: "float16",
  FP32: "float32",
  FP64: "float64",
  BYTES: "string",
};

const arrays = {
  BOOL: Uint8Array,
  INT8: Int8Array,
  INT16: Int16Array,
  INT32: Int32Array,
  INT64: BigInt64Array,
  UINT8: Uint8Array,
  UINT16: Uint16Array,
  UINT32: Uint32Array,
  UINT64: BigUint64Array,
  FP16: Uint16Array,
  FP32: Float32Array,
  FP64: Float64Array,
} as const;

/** Decodes what a client sent, by code that is not the program's. */
export function decodeTensor(datatype: string, sent: readonly unknown[] | Buffer): Values {
  if (datatype === "BYTES") {
    return Buffer.isBuffer(sent) ? decodeTexts(sent) : (sent as readonly string[]);
  }
  const ArrayOf = arrays[datatype as keyof typeof arrays];
  if (Buffer.isBuffer(sent)) {
    const bytes = new Uint8Array(sent);
    return new ArrayOf(bytes.buffer, 0, bytes.length / ArrayOf.BYTES_PER_ELEMENT);
  }
  const values = new ArrayOf(sent.length);
  for (const [index, value] of sent.entries()) {
    values[index] =
      values instanceof BigInt64Array || values instanceof BigUint64Array ? BigInt(Number(value)) : Number(value);
  }
  return values;
}

function decodeTexts(bytes: Buffer): string[] {
  const texts: string[] = [];
  for (let at = 0; at < bytes.length; ) {
    const length = bytes.readUInt32LE(at);
    texts.push(bytes.toString("utf8", at + 4, at + 4 + length));
    at += 4 + length;
  }
  return texts;
}

/** Encodes values as bytes, or as the text of a JSON array. */
export function encodeTensor(datatype: string, values: Values, isBinary: boolean): Buffer | string {
  if (!isBinary) {
    return datatype === "BYTES" ? JSON.stringify(values) : `[${[...values].map(String).join(",")}]`;
  }
  if (ArrayBuffer.isView(values)) {
    return Buffer.from(values.buffer, values.byteOffset, values.byteLength);
  }
  return Buffer.concat(
    values.flatMap((text) => {
      const bytes = Buffer.from(text, "utf8");
      const length = Buffer.alloc(4);
      length.writeUInt32LE(bytes.length);
      return [length, bytes];
    }),
  );
}
