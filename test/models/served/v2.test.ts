import { describe, expect, test } from "vitest";
import { decodeTexts, encodeTexts, type NamedTensor, type Tensor, toFloat16Bits } from "#src/columns/tensor.js";
import type { EncodedRequest, RequestParts, UnfitRequest } from "#src/models/served/protocol.js";
import { v2 } from "#src/models/served/v2.js";
import { decodeTensor, encodeTensor } from "../../support/v2-tensors.js";

const served = { signature: { inputs: [], outputs: [] }, version: "7", isVersionInPath: true, mostRows: undefined };

const binaryRequest = (parts: RequestParts): EncodedRequest =>
  v2.encode(parts, { ...served, isBinary: true }) as EncodedRequest;

const jsonRequest = (parts: RequestParts): EncodedRequest | UnfitRequest =>
  v2.encode(parts, { ...served, isBinary: false });

const f16 = (...numbers: number[]): Uint16Array<ArrayBuffer> =>
  Uint16Array.from(numbers, (value) => toFloat16Bits(value));

const cases: readonly (readonly [string, Tensor["dtype"], NamedTensor["data"], readonly unknown[]])[] = [
  ["BOOL", "bool", Uint8Array.of(1, 0), [true, false]],
  ["INT8", "int8", Int8Array.of(-128, 127), [-128, 127]],
  ["INT16", "int16", Int16Array.of(-32_768, 32_767), [-32_768, 32_767]],
  ["INT32", "int32", Int32Array.of(-(2 ** 31), 2 ** 31 - 1), [-(2 ** 31), 2 ** 31 - 1]],
  ["UINT8", "uint8", Uint8Array.of(0, 255), [0, 255]],
  ["UINT16", "uint16", Uint16Array.of(0, 65_535), [0, 65_535]],
  ["UINT32", "uint32", Uint32Array.of(0, 2 ** 32 - 1), [0, 2 ** 32 - 1]],
  ["FP16", "float16", f16(-1.5, 65_504), [-1.5, 65_504]],
  ["FP32", "float32", Float32Array.of(0.1, -3e38), [Math.fround(0.1), Math.fround(-3e38)]],
  ["FP64", "float64", Float64Array.of(0.1, -1e308), [0.1, -1e308]],
  ["BYTES", "string", encodeTexts(['é "1234567890123456789" NaN', ""]), ['é "1234567890123456789" NaN', ""]],
];
const large: readonly (readonly [string, Tensor["dtype"], NamedTensor["data"], readonly string[]])[] = [
  ["INT64", "int64", BigInt64Array.of(-(2n ** 63n), 2n ** 63n - 1n), ["-9223372036854775808", "9223372036854775807"]],
  ["UINT64", "uint64", BigUint64Array.of(0n, 2n ** 64n - 1n), ["0", "18446744073709551615"]],
];

const tensorOf = (dtype: string, data: NamedTensor["data"]): NamedTensor =>
  ({ name: "x", dtype, dims: [2, 1], data }) as NamedTensor;

function bodyOf(encoded: EncodedRequest | { readonly unfit: string }): Buffer {
  if ("unfit" in encoded) {
    throw new Error(`${encoded.unfit} does not fit`);
  }
  expect(encoded.headers["content-length"]).toBe(String(encoded.sizeBytes));
  return Buffer.concat(encoded.body);
}

function read(datatype: string, dtype: string, values: Buffer | string): ReturnType<typeof v2.decode> {
  const head = `"name":"x","shape":[2,1],"datatype":"${datatype}"`;
  const output = Buffer.isBuffer(values)
    ? `{${head},"parameters":{"binary_data_size":${values.length}}}`
    : `{${head},"data":${values}}`;
  const json = Buffer.from(`{"model_version":"7","outputs":[${output}]}`);
  const isBinary = Buffer.isBuffer(values);
  const headers = new Headers(isBinary ? { "inference-header-content-length": String(json.length) } : {});
  const body = new Uint8Array(isBinary ? Buffer.concat([json, values]) : json);
  return v2.decode({ headers, body }, { outputs: [{ name: "x", dtype, shape: [] }], rows: 2 });
}

const plain = ({ outputs: [tensor] }: ReturnType<typeof v2.decode>): unknown =>
  tensor?.dtype === "string" ? decodeTexts(tensor.data) : tensor?.data;

const all = [...cases, ...large];

describe("tensors of the Open Inference Protocol", () => {
  test.each(all)("tensors of %s keep their values as bytes, sent and received", (datatype, dtype, data) => {
    const request = binaryRequest({ id: "1", inputs: [tensorOf(dtype, data)], outputs: ["x"] });
    const body = bodyOf(request);
    const jsonEnd = Number(request.headers["inference-header-content-length"]);
    const [input] = (JSON.parse(body.toString("utf8", 0, jsonEnd)) as { inputs: object[] }).inputs;
    const sent = decodeTensor(datatype, body.subarray(jsonEnd));
    expect(input).toMatchObject({ name: "x", datatype, shape: [2, 1] });
    expect(sent).toEqual(dtype === "string" ? decodeTexts(data as never) : data);

    expect(plain(read(datatype, dtype, encodeTensor(datatype, sent, true) as Buffer))).toEqual(sent);
  });

  test.each(cases)("tensors of %s keep their values as JSON, sent and received", (datatype, dtype, data, json) => {
    const body = bodyOf(jsonRequest({ id: "1", inputs: [tensorOf(dtype, data)], outputs: ["x"] }));
    const [input] = (JSON.parse(body.toString("utf8")) as { inputs: object[] }).inputs;
    expect(input).toEqual({ name: "x", datatype, shape: [2, 1], data: json });

    const received = plain(read(datatype, dtype, JSON.stringify(json)));
    expect(received).toEqual(dtype === "string" ? json : data);
  });

  test.each(large)("tensors of %s keep all digits as JSON, sent and received", (datatype, dtype, data, digits) => {
    const body = bodyOf(jsonRequest({ id: "1", inputs: [tensorOf(dtype, data)], outputs: ["x"] }));
    expect(body.toString("utf8")).toContain(`"data":[${digits.join(",")}]`);

    expect(plain(read(datatype, dtype, `[${digits.join(",")}]`))).toEqual(data);
  });

  test.each<[string, Tensor["dtype"], NamedTensor["data"]]>([
    ["FP16", "float16", f16(-0, 0)],
    ["FP32", "float32", Float32Array.of(-0, 0)],
    ["FP64", "float64", Float64Array.of(-0, 0)],
  ])("a zero of %s keeps its sign as JSON, sent and received", (datatype, dtype, data) => {
    const sent = bodyOf(jsonRequest({ id: "1", inputs: [tensorOf(dtype, data)], outputs: ["x"] })).toString("utf8");
    expect(sent).toContain('"data":[-0.0,0]');
    expect(plain(read(datatype, dtype, "[-0.0,0]"))).toEqual(data);
  });

  test.each([
    ["are not UTF-8", [1, 0, 0, 0, 0xe9, 0, 0, 0, 0]],
    ["begin a character that ends in the next text", [1, 0, 0, 0, 0xc3, 1, 0, 0, 0, 0xa9]],
  ])("bytes of a text that %s are about their rows", (_what, bytes) => {
    expect(() => read("BYTES", "string", Buffer.from(bytes))).toThrow(
      expect.objectContaining({ name: "UnfitValue", message: "a text that is not UTF-8" }),
    );
  });

  test("values in nested lists are read as those of the shape", () => {
    expect(plain(read("INT32", "int32", "[[1], [2]]"))).toEqual(Int32Array.of(1, 2));
  });

  test("NaN and infinities are refused for a request as JSON, and read in an answer that names them", () => {
    const inputs = [tensorOf("float32", Float32Array.of(1, Number.NaN))];
    expect(jsonRequest({ id: "1", inputs, outputs: ["x"] })).toEqual({ unfit: "x" });
    expect(plain(read("FP32", "float32", "[NaN, -Infinity]"))).toEqual(Float32Array.of(Number.NaN, -Infinity));
  });

  test.each([
    ["null in place of a number, which may stand for NaN or an infinity", "FP32", "float32", "[1, null]"],
    ["an integer that does not fit its type", "INT8", "int8", "[1, 300]"],
    ["an integer of 64 bits that does not fit its type", "UINT64", "uint64", "[1, -5]"],
    ["a fraction in place of an integer", "INT32", "int32", "[1, 2.5]"],
    ["a number in place of a text", "BYTES", "string", '["a", 5]'],
  ])("an answer with %s is about its rows", (_what, datatype, dtype, values) => {
    expect(() => read(datatype, dtype, values)).toThrow(expect.objectContaining({ name: "UnfitValue" }));
  });

  test.each([
    ["fewer values than its shape says", () => read("FP32", "float32", "[1]")],
    ["fewer bytes than its shape says", () => read("FP32", "float32", Buffer.alloc(7))],
    [
      "a text that is longer than the answer",
      () => read("BYTES", "string", Buffer.from([1, 0, 0, 0, 65, 9, 0, 0, 0, 65])),
    ],
    ["another type than the model's signature", () => read("FP64", "float32", "[1, 2]")],
    ["a type that is not known", () => read("BF16", "float32", "[1, 2]")],
  ])("an answer with %s is malformed", (_what, reading) => {
    expect(reading).toThrow(expect.objectContaining({ name: "MalformedAnswer" }));
  });
});
