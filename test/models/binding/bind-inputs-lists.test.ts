import { describe, expect, test } from "vitest";
import type { Contract } from "#src/models/binding/contract.js";
import type { ContractRequest } from "#src/models/binding/bind-contract.js";
import type { ColumnType } from "#src/columns/types.js";
import { bind, column, finding, list, refused, tensor, typed, withInput, withInputs } from "../../support/contracts.js";

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

  test.each([
    ["not of numbers", { columns: [typed("features", list("utf8"))], passthrough: [] }],
    ["of lists", { columns: [typed("features", list(list("float32")))], passthrough: [] }],
    ["of structs", { columns: [typed("features", list({ kind: "struct", fields: [] }))], passthrough: [] }],
    ["of a length that the model leaves open", withInput(null, null)],
    ["listed together with another column", { inputs: { features: ["features", "id", "id"] } }],
    ["for strings", withInputs(tensor("features", "string", null))],
  ] as [string, Partial<ContractRequest>][])("a list column is refused: %s", (what, overrides) => {
    expect(finding(refused({ columns: vectors, ...overrides }))).toMatchSnapshot(what);
  });

  test("a list column is not bound to an input of one value a row", () => {
    expect(finding(refused({ columns: vectors, ...withInput(null) }))).toMatchInlineSnapshot(`
      "64 CONTRACT
      binding models/churn.onnx to the columns of in/a.parquet: input \`features\` is float32 [N], one number a row; column \`features\` is list<float64>
      hint: bind a column of numbers to it, or export the model with an input [N,F] for lists"
    `);
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

  test.each([
    ["a number where text is due", { ...withInputs(tensor("age", "string", null)) }],
    ["no column of its name", withInputs(tensor("town", "string", null))],
    ["several columns", { ...withInputs(tensor("town", "string", null)), inputs: { town: ["city", "city"] } }],
    [
      "three texts a row",
      { ...withInputs(tensor("city", "string", null, 3)), inputs: { city: ["city", "city", "city"] } },
    ],
  ] as [string, Partial<ContractRequest>][])("a string input is refused: %s", (what, overrides) => {
    expect(finding(refused(overrides))).toMatchSnapshot(what);
  });
});
