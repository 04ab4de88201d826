import { readFile } from "node:fs/promises";
import { join } from "node:path";
import { BinaryWriter, WireType } from "@bufbuild/protobuf/wire";
import * as fc from "fast-check";
import { describe, expect, test } from "vitest";
import { type OnnxProto, readOnnxProto } from "#src/models/file/proto.js";
import { projectFolder } from "../../support/cli.js";

type Value = string | bigint | Uint8Array;

function message(...fields: readonly (readonly [number, Value])[]): Uint8Array {
  const writer = new BinaryWriter();
  for (const [field, value] of fields) {
    if (typeof value === "bigint") {
      writer.tag(field, WireType.Varint).int64(value);
    } else {
      writer.tag(field, WireType.LengthDelimited);
      if (typeof value === "string") {
        writer.string(value);
      } else {
        writer.bytes(value);
      }
    }
  }
  return writer.finish();
}

const emptyGraph = message();
const read = (...fields: readonly (readonly [number, Value])[]): OnnxProto => readOnnxProto(message(...fields));
const fixture = (name: string): Promise<Buffer> => readFile(join(projectFolder, "fixtures/models", name));

describe("readOnnxProto on a model's metadata", () => {
  // Expected values are what Python's onnx package reads.
  test.each([
    ["cancer-logistic.onnx", 8n, ["17", "ai.onnx.ml 1"], "skl2onnx 1.20.0", "ai.onnx", []],
    ["digits-lightgbm.onnx", 4n, ["9", "ai.onnx.ml 1"], "OnnxMLTools 1.16.0", "onnxml", []],
    ["diabetes-mlp-batch32.onnx", 8n, ["17"], "", "", []],
    ["external-data/model.onnx", 8n, ["17"], "", "", ["weights.bin"]],
  ])("readOnnxProto reads the metadata of %s", async (name, irVersion, opsets, producer, domain, externalData) => {
    const proto = readOnnxProto(await fixture(name));
    expect(proto).toMatchObject({ irVersion, domain, externalData, modelVersion: 0n, docString: "" });
    expect(proto.opsetImports.map((opset) => `${opset.domain} ${opset.version}`.trim())).toEqual(opsets);
    expect(`${proto.producerName} ${proto.producerVersion}`.trim()).toBe(producer);
    expect(proto.metadataProps.size).toBe(0);
  });

  test("readOnnxProto reads every metadata field, in any order, among unknown fields", () => {
    const proto = read(
      [14, message([1, "classes"], [2, "a,b"])],
      [99, "from a later version"],
      [7, emptyGraph],
      [6, "line 1\nline 2"],
      [5, -1n],
      [20, message([1, emptyGraph])],
      [1, 11n],
      [8, message([2, 22n])],
      [8, message([2, 3n], [1, "com.acme"])],
      [8, message([2, 4n], [1, "com.acme"])],
      [8, message([2, 22n])],
      [14, message([2, "value only"])],
      [2, "torch"],
      [3, "2.9"],
      [4, "acme.com"],
    );
    expect(proto).toMatchObject({
      irVersion: 11n,
      opsetImports: [
        { domain: "", version: 22n },
        { domain: "com.acme", version: 3n },
        { domain: "com.acme", version: 4n },
      ],
      producerName: "torch",
      producerVersion: "2.9",
      domain: "acme.com",
      modelVersion: -1n,
      docString: "line 1\nline 2",
      metadataProps: new Map([
        ["classes", "a,b"],
        ["", "value only"],
      ]),
      externalData: [],
    });
  });

  test("readOnnxProto accepts text that is not UTF-8, as ONNX Runtime does", () => {
    expect(read([2, new Uint8Array([0x61, 0xff])], [7, emptyGraph]).producerName).toBe("a\ufffd");
  });

  test("readOnnxProto skips a known field of another wire type, as protobuf does", () => {
    expect(read([1, "eight"], [2, 8n], [7, emptyGraph])).toMatchObject({ irVersion: 0n, producerName: "" });
  });
});

const outside = (location: string): Uint8Array => message([8, "w"], [13, message([1, "location"], [2, location])]);
const attribute = (field: number, value: Uint8Array): Uint8Array => message([1, "a"], [field, value]);
const nodeWith = (field: number, value: Uint8Array): Uint8Array => message([5, attribute(field, value)]);
const graphWith = (...fields: readonly (readonly [number, Value])[]): readonly [number, Value] => [
  7,
  message(...fields),
];

test("readOnnxProto tells the types of inputs and outputs, and constants and operators of all graphs", async () => {
  const proto = readOnnxProto(await fixture("wine-zipmap.onnx"));
  expect(proto).toMatchObject({
    inputs: [{ name: "input", type: "tensor(float)" }],
    outputs: [
      { name: "output_label", type: "tensor(int64)" },
      { name: "output_probability", type: "seq(map(int64,tensor(float)))" },
    ],
  });
  expect(proto.operators).toContain("TreeEnsembleClassifier");
  const inner = message([1, message([4, "Inner"])]);
  const graph = graphWith([5, message([8, "c"])], [1, message([4, "If"], [5, attribute(6, inner)])]);
  expect(read(graph, [25, message([7, message([4, "InFunction"])])])).toMatchObject({
    constants: new Set(["c"]),
    operators: new Set(["Inner", "If", "InFunction"]),
  });
});

describe("readOnnxProto on external tensors", () => {
  test.each([
    ["an initializer", graphWith([5, outside("f")])],
    ["a sparse initializer's values", graphWith([15, message([1, outside("f")])])],
    ["a sparse initializer's indices", graphWith([15, message([2, outside("f")])])],
    ["a node's tensor attribute", graphWith([1, nodeWith(5, outside("f"))])],
    ["a node's list of tensors", graphWith([1, nodeWith(10, outside("f"))])],
    ["a node's sparse tensor", graphWith([1, nodeWith(22, message([1, outside("f")]))])],
    ["a node's list of sparse tensors", graphWith([1, nodeWith(23, message([2, outside("f")]))])],
    ["a node's graph", graphWith([1, nodeWith(6, message([5, outside("f")]))])],
    ["one of a node's graphs", graphWith([1, nodeWith(11, message([1, nodeWith(5, outside("f"))]))])],
    ["a function's node", [25, message([7, nodeWith(5, outside("f"))])] as const],
    ["the default of a function's attribute", [25, message([11, attribute(5, outside("f"))])] as const],
  ])("readOnnxProto finds the files of external tensors in %s", (_where, field) => {
    expect(read(field, [7, emptyGraph]).externalData).toEqual(["f"]);
  });

  test("readOnnxProto lists each file of external tensors once, sorted, with any other contents of an entry", () => {
    const sliced = message([13, message([1, "offset"], [2, "8"])], [13, message([2, "b.bin"], [1, "location"])]);
    const graph = graphWith([5, outside("c.bin")], [5, sliced], [5, outside("c.bin")]);
    expect(read(graph, graphWith([5, outside("a.bin")])).externalData).toEqual(["a.bin", "b.bin", "c.bin"]);
  });
});

function nested(depth: number): Uint8Array {
  let graph = message([5, outside("f")]);
  for (let level = 0; level < depth; level += 1) {
    graph = message([1, nodeWith(6, graph)]);
  }
  return message([7, graph]);
}

describe("readOnnxProto on bytes that are not a model", () => {
  test.each([
    ["nothing at all", new Uint8Array(0), "it holds no graph"],
    ["a model without a graph", message([1, 8n], [2, "x"]), "it holds no graph"],
    ["text", Buffer.from("version: 1\nname: x\n"), "illegal tag"],
    ["a number that never ends", new Uint8Array(40).fill(0xff), "invalid varint"],
    ["a length of 4 GiB", new Uint8Array([0x3a, 0xff, 0xff, 0xff, 0xff, 0x0f]), "past the end of the file"],
    [
      "a text longer than its entry",
      Buffer.concat([new Uint8Array([0x72, 3, 0x0a, 4]), Buffer.from("longer"), message([7, emptyGraph])]),
      "past the end of its message",
    ],
    [
      "a graph that ends inside a field",
      Buffer.concat([new Uint8Array([0x3a, 2, 0x12, 9]), Buffer.from("123456789")]),
      "past the end of its message",
    ],
    ["graphs nested without end", nested(200), "nested more than 64 deep"],
    ["groups nested without end", new Uint8Array(5000).fill(0x0b), "recursion"],
  ])("readOnnxProto rejects %s", (_what, bytes, says) => {
    expect(() => readOnnxProto(bytes)).toThrow(says);
  });

  test("readOnnxProto accepts loops nested in loops", () => {
    expect(readOnnxProto(nested(12)).externalData).toEqual(["f"]);
  });

  test("readOnnxProto rejects a model that is cut anywhere but between two fields after its graph", async () => {
    const bytes = await fixture("cancer-logistic.onnx");
    const whole: number[] = [];
    for (let length = 0; length <= bytes.length; length += 1) {
      try {
        readOnnxProto(bytes.subarray(0, length));
        whole.push(length);
      } catch (error) {
        expect(error).toBeInstanceOf(Error);
      }
    }
    // The graph, then three opset imports.
    expect(whole).toHaveLength(4);
    expect(whole.at(-1)).toBe(bytes.length);
  });
});

function ends(bytes: Uint8Array): void {
  let ended: unknown;
  try {
    ended = readOnnxProto(bytes).externalData;
  } catch (error) {
    ended = error;
  }
  expect(Array.isArray(ended) || (ended instanceof Error && !ended.message.includes("call stack"))).toBe(true);
}

describe("readOnnxProto on damaged bytes", () => {
  test("readOnnxProto returns or throws on any bytes", () => {
    fc.assert(fc.property(fc.uint8Array({ maxLength: 300 }), ends), { numRuns: 2000 });
  });

  test("readOnnxProto returns or throws on models with damaged bytes", async () => {
    const models = await Promise.all(
      ["wine-zipmap.onnx", "external-data/model.onnx", "diabetes-mlp.onnx"].map(fixture),
    );
    const damage = fc.array(fc.tuple(fc.double({ min: 0, max: 1, noNaN: true }), fc.integer({ min: 0, max: 255 })), {
      minLength: 1,
      maxLength: 8,
    });
    fc.assert(
      fc.property(fc.constantFrom(...models), damage, (model, changes) => {
        const bytes = Uint8Array.from(model);
        for (const [place, value] of changes) {
          bytes[Math.floor(place * (bytes.length - 1))] = value;
        }
        ends(bytes);
      }),
      { numRuns: 1000 },
    );
  });
});
