import { describe, expect, test } from "vitest";
import { type ColumnType, showType } from "#src/columns/types.js";
import {
  bind,
  column,
  columns,
  featureNames,
  features,
  list,
  outputs,
  refused,
  tensor,
  typed,
  withInput,
  withInputs,
} from "../../support/contracts.js";
import type { Contract } from "#src/models/binding/contract.js";
import type { ContractRequest } from "#src/models/binding/bind-contract.js";
import { numericTensorTypes } from "#src/columns/tensor.js";
import { orderInMetadata, parseFeatureNames } from "#src/models/binding/model-facts.js";
import { sideBySide } from "#src/models/binding/signatures.js";

describe("the columns of a lone matrix", () => {
  test("a lone matrix takes by default the numeric columns that are not carried through, in file order", () => {
    expect(featureNames(bind())).toEqual(["age", "amount", "rate"]);
    expect(featureNames(bind({ ...withInput(null, 4), passthrough: [] }))).toEqual(["id", "age", "amount", "rate"]);
    expect(featureNames(bind({ columns: columns.toReversed() }))).toEqual(["rate", "amount", "age"]);
  });

  test("a lone matrix takes by default no texts, dates, flags, lists, structs or values of folder names", () => {
    const others: ColumnType[] = ["bool", "date32", "utf8", "uuid", "timestamp[us]", "interval", list("float32")];
    const dt = { ...column("dt", "int64, from the folder name", "int64"), partition: true as const };
    const struct: ColumnType = { kind: "struct", fields: [{ name: "a", type: "int32" }] };
    const odd = [...columns, ...[...others, struct].map((type, index) => typed(`c${index}`, type)), dt];
    expect(featureNames(bind({ columns: odd }))).toEqual(["age", "amount", "rate"]);
  });

  test("a lone matrix takes the columns that the spec lists, in this order, also a carried one", () => {
    expect(featureNames(bind({ inputs: { features: ["rate", "id", "age"] } }))).toEqual(["rate", "id", "age"]);
  });

  test("a lone matrix takes flags, values of folder names and fields of structs if the spec lists them", () => {
    const struct: ColumnType = { kind: "struct", fields: [{ name: "n", type: "uint8" }] };
    const dt = { ...column("month", "int64, from the folder name", "int64"), partition: true as const };
    const [input] = bind({
      columns: [...columns, typed("flag", "bool"), typed("s", struct), dt],
      inputs: { features: ["flag", "s.n", "month"] },
    }).inputs;
    expect(input).toMatchObject({
      kind: "matrix",
      rank: 2,
      columns: [
        { name: "flag", path: ["flag"], type: "bool" },
        { name: "s.n", path: ["s", "n"], type: "uint8" },
        { name: "month", path: ["month"], type: "int64", partition: true },
      ],
    });
  });

  test("a lone matrix of any number of columns takes those that the spec lists", () => {
    const inputs = { features: ["rate", "age"] };
    expect(featureNames(bind({ ...withInput(null, null), inputs }))).toEqual(["rate", "age"]);
  });

  test.each(["date32", "timestamp[us]", "time64[us]", "uuid", "interval", "binary", list("float32")] as ColumnType[])(
    "a matrix with a column of type %j is refused",
    (type) => {
      const said = refused({ columns: [...columns, typed("odd", type)], inputs: { features: ["age", "odd", "rate"] } });
      expect(said).toContain(`input \`features\` takes float32, column \`odd\` is ${showType(type)}\n`);
    },
  );
});

describe("an input of one value a row", () => {
  test.each([
    ["[N]", [null], 1],
    ["[N,1]", [null, 1], 2],
    ["[1]", [1], 1],
  ] as const)("an input of one value a row takes the column of its name: %s", (_what, shape, rank) => {
    const [input] = bind(withInputs(tensor("age", "int64", ...shape))).inputs;
    expect(input).toEqual({
      kind: "matrix",
      input: "age",
      dtype: "int64",
      rank,
      columns: [{ name: "age", path: ["age"], type: "int32" }],
    });
  });

  test("an input of one value a row takes the listed column, even if its name differs", () => {
    const given = withInputs(tensor("age", "float32", null));
    expect(featureNames(bind({ ...given, inputs: { age: ["rate"] } }))).toEqual(["rate"]);
  });

  test("an input of one value a row takes the only numeric column if no column has its name", () => {
    const given = { ...withInput(null), columns: columns.slice(0, 2) };
    expect(featureNames(bind(given))).toEqual(["age"]);
  });
});

describe("a list column", () => {
  const vectors = [column("id", "BIGINT", "int64"), typed("features", list("float64"))];
  const bindList = (overrides: Partial<ContractRequest>): Contract => bind({ columns: vectors, ...overrides });

  test("a list column is bound to the matrix of its name", () => {
    expect(bindList({}).inputs).toEqual([
      {
        kind: "list",
        input: "features",
        dtype: "float32",
        width: 3,
        column: { name: "features", path: ["features"], type: list("float64") },
      },
    ]);
  });

  test("a list column, or a list in a struct, is bound to the matrix that the spec lists it for", () => {
    const s: ColumnType = { kind: "struct", fields: [{ name: "v", type: list("int8") }] };
    const given = { columns: [...vectors, typed("s", s)], inputs: { features: ["s.v"] } };
    expect(bindList(given).inputs).toMatchObject([{ kind: "list", width: 3, column: { path: ["s", "v"] } }]);
  });
});

describe("a string input", () => {
  test.each([
    [[null], 1],
    [[null, 1], 2],
    [[null, null], 2],
  ] as const)("a string input of shape %j takes the text column of its name", (shape, rank) => {
    expect(bind(withInputs(tensor("city", "string", ...shape))).inputs).toEqual([
      { kind: "text", input: "city", rank, column: { name: "city", path: ["city"], type: "utf8" } },
    ]);
  });

  test("a string input takes the text column that the spec lists, next to other inputs", () => {
    const given = withInputs(tensor("age", "float32", null, 1), tensor("place", "string", null, 1));
    expect(bind({ ...given, inputs: { place: ["city"] } }).inputs).toMatchObject([
      { kind: "matrix", input: "age" },
      { kind: "text", input: "place", column: { name: "city" } },
    ]);
  });
});

const batches = (a: number | null, b: number | null): Partial<ContractRequest> =>
  withInputs(tensor("age", "float32", a), tensor("rate", "float32", b));

describe("several inputs", () => {
  const two = withInputs(tensor("age", "float32", null, 1), tensor("rate", "float64", null));

  test("several inputs take one column each, by name", () => {
    expect(bind(two).inputs).toMatchObject([
      { input: "age", dtype: "float32", rank: 2, columns: [{ name: "age" }] },
      { input: "rate", dtype: "float64", rank: 1, columns: [{ name: "rate" }] },
    ]);
  });

  test("inputs that the spec does not list take the columns of their names", () => {
    expect(featureNames(bind({ ...two, inputs: { rate: ["amount"] } }))).toEqual(["age", "amount"]);
    expect(featureNames(bind({ ...two, inputs: { rate: ["age"], age: ["age"] } }))).toEqual(["age", "age"]);
  });

  test("several inputs may be matrices if the spec lists their columns", () => {
    const wide = withInputs(features, tensor("mask", "bool", null, 2));
    const inputs = { features: ["age", "amount", "rate"], mask: ["id", "age"] };
    expect(featureNames(bind({ ...wide, inputs }))).toEqual(["age", "amount", "rate", "id", "age"]);
  });

  test("several inputs share their batch size", () => {
    expect(bind(batches(16, 16)).fixedBatchRows).toBe(16);
    expect(bind(batches(1, null)).fixedBatchRows).toBe(1);
    expect(bind(batches(null, null)).fixedBatchRows).toBeNull();
  });
});

describe("the model's input", () => {
  test("a model's input may have every numeric type", () => {
    for (const dtype of numericTensorTypes) {
      expect(bind(withInputs(tensor("features", dtype, null, 3))).inputs).toMatchObject([{ kind: "matrix", dtype }]);
    }
  });

  test("a model's input with a fixed batch size gives the size to the binding", () => {
    expect(bind(withInput(32, 3)).fixedBatchRows).toBe(32);
    expect(bind(withInput(1, 3)).fixedBatchRows).toBe(1);
    expect(bind().fixedBatchRows).toBeNull();
  });

  test("an input named like a property of every object does not count as listed", () => {
    const signature = { inputs: [tensor("toString", "float32", null, 3)], outputs };
    expect(featureNames(bind({ signature }))).toEqual(["age", "amount", "rate"]);
  });

  test("an input named like a property of every object does not count as listed in an empty mapping", () => {
    const signature = { inputs: [tensor("toString", "float32", null, 3)], outputs };
    expect(featureNames(bind({ signature, inputs: {} }))).toEqual(["age", "amount", "rate"]);
  });

  test("a wide input is not bound to the number column of its name", () => {
    const given = [...columns, column("features", "INTEGER", "int32")];
    expect(featureNames(bind({ columns: given, ...withInput(null, 4) }))).toEqual([
      "age",
      "amount",
      "rate",
      "features",
    ]);
  });
});

describe("feature names", () => {
  test.each([
    ['["a", "b c"]'],
    ['{ "feature_names": ["a", "b c"] }'],
    ['{ "version": 1, "feature_names_in_": ["a", "b c"] }'],
    ["a,b c"],
    ["a\nb c\n"],
    ["a\r\nb c\r\n"],
  ])("are read from %j", (text) => {
    expect(parseFeatureNames(text)).toEqual(["a", "b c"]);
  });

  test.each(["", "[1, 2]", "{}", "7", "[]"])("are none in %j", (text) => {
    expect(parseFeatureNames(text)).toEqual([]);
  });

  test("are found in the metadata of a model under the usual keys", () => {
    expect(orderInMetadata(new Map([["author", "me"]]))).toBeUndefined();
    expect(orderInMetadata(new Map([["feature_names", "a,b"]]))).toEqual({
      names: ["a", "b"],
      from: "feature_names in the model's metadata",
    });
  });
});

test("a name with line breaks or control characters is one line of the table", () => {
  const signature = { inputs: [tensor("x\u001b[2J", "float32", null)], outputs: [tensor("y", "float32", null)] };
  const odd = [typed("a\nb: evil", "int64"), typed("c", "utf8")];
  expect(sideBySide(signature, odd, "in\n/a.parquet").split("\n")).toEqual([
    String.raw`  model inputs:             columns of in\x0a/a.parquet:`,
    String.raw`    x\x1b[2J  float32 [N]     a\x0ab: evil  int64`,
    "  model outputs:              c             utf8",
    "    y  float32 [N]",
  ]);
});
