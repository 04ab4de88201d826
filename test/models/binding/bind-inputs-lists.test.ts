import { describe, expect, test } from "vitest";
import type { Contract } from "#src/models/binding/contract.js";
import type { ContractRequest } from "#src/models/binding/bind-contract.js";
import type { ColumnType } from "#src/columns/types.js";
import { bind, column, list, tensor, typed, withInputs } from "../../support/contracts.js";

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
