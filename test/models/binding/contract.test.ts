import { describe, expect, test } from "vitest";
import { outputColumns, usedColumns } from "#src/models/binding/contract.js";
import type { ColumnType } from "#src/columns/types.js";
import { bind, column, columns, refused, withInput, withInputs, tensor } from "../../support/contracts.js";

const user: ColumnType = {
  kind: "struct",
  fields: [
    { name: "age", type: "int32" },
    { name: "home", type: { kind: "struct", fields: [{ name: "city", type: "utf8" }] } },
  ],
};
const nested = [...columns, column("user", "STRUCT(…)", user)];

describe("a binding", () => {
  test("a binding is plain JSON that says which column goes where", () => {
    const contract = bind({ outputs: { score: "probabilities[1]", label: "label" } });
    expect(JSON.parse(JSON.stringify(contract))).toEqual(contract);
    expect(contract).toMatchInlineSnapshot(`
      {
        "cast": "exact",
        "expressions": null,
        "fixedBatchRows": null,
        "inputs": [
          {
            "columns": [
              {
                "name": "age",
                "path": [
                  "age",
                ],
                "type": "int32",
              },
              {
                "name": "amount",
                "path": [
                  "amount",
                ],
                "type": { "kind": "decimal", "precision": 10, "scale": 2 },
              },
              {
                "name": "rate",
                "path": [
                  "rate",
                ],
                "type": "float64",
              },
            ],
            "dtype": "float32",
            "input": "features",
            "kind": "matrix",
            "rank": 2,
          },
        ],
        "missing": "bad_row",
        "outputs": [
          { "column": "score", "element": 1, "kind": "element", "tensor": "probabilities", "type": "float32" },
          { "column": "label", "kind": "scalar", "tensor": "label", "type": "int64" },
        ],
        "passthrough": [
          {
            "column": "id",
            "source": {
              "name": "id",
              "path": [
                "id",
              ],
              "type": "int64",
            },
          },
        ],
      }
    `);
  });

  test("a binding contains the rules for casts and missing values", () => {
    expect(bind({ cast: "lossy", missing: "nan" })).toMatchObject({ cast: "lossy", missing: "nan" });
  });

  test("a binding reads each column of the shard once, also a struct with several bound fields", () => {
    const inputs = { features: ["age", "user.age", "rate"] };
    const contract = bind({ columns: nested, inputs, passthrough: ["id", "age", "user.home.city", "user"] });
    expect(usedColumns(contract)).toEqual(["id", "age", "user", "rate"]);
  });

  test("a binding lists the output's columns in order: carried columns, then predictions", () => {
    const contract = bind({ columns: nested, passthrough: ["user.home.city", "id"], ...withInput(null, 3) });
    expect(outputColumns(contract)).toEqual([
      { name: "user_home_city", type: "utf8" },
      { name: "id", type: "int64" },
      { name: "score", type: "float32" },
    ]);
  });
});

describe("carried columns", () => {
  test("carried columns of every type keep their type", () => {
    expect(
      bind({ columns: nested, passthrough: ["rate", "id", "amount", "user"], ...withInput(null, 1) }).passthrough,
    ).toEqual([
      { column: "rate", source: { name: "rate", path: ["rate"], type: "float64" } },
      { column: "id", source: { name: "id", path: ["id"], type: "int64" } },
      {
        column: "amount",
        source: { name: "amount", path: ["amount"], type: { kind: "decimal", precision: 10, scale: 2 } },
      },
      { column: "user", source: { name: "user", path: ["user"], type: user } },
    ]);
  });

  test("carried columns may be fields of a struct, and the dots in their names become _", () => {
    const { passthrough } = bind({ columns: nested, passthrough: ["id", "user.age", "user.home.city"] });
    expect(passthrough.slice(1)).toEqual([
      { column: "user_age", source: { name: "user.age", path: ["user", "age"], type: "int32" } },
      { column: "user_home_city", source: { name: "user.home.city", path: ["user", "home", "city"], type: "utf8" } },
    ]);
  });

  test("a carried name with a dot means a column of that name rather than a field", () => {
    const dotted = [...nested, column("user.age", "DATE", "date32")];
    expect(bind({ columns: dotted, passthrough: ["id", "user.age"] }).passthrough[1]).toEqual({
      column: "user_age",
      source: { name: "user.age", path: ["user.age"], type: "date32" },
    });
  });

  test("carried columns from folder names are marked as such", () => {
    const dt = { ...column("dt", "date, from the folder name", "date32"), partition: true as const };
    expect(bind({ columns: [...columns, dt], passthrough: ["id", "dt"] }).passthrough[1]?.source).toEqual({
      name: "dt",
      path: ["dt"],
      type: "date32",
      partition: true,
    });
  });
});

test("columns that the spec does not use may have any type", () => {
  const odd = [
    ...columns,
    column("blob", "VARIANT", undefined),
    column("v", "FLOAT[]", { kind: "list", element: "float32" }),
  ];
  expect(bind({ columns: odd })).toEqual(bind());
});

describe("the tables side by side", () => {
  test("the tables side by side are cut if a shard has very many columns", () => {
    const many = Array.from({ length: 500 }, (_, index) => column(`f${index}`, "FLOAT", "float32"));
    const said = refused({ columns: [column("id", "BIGINT", "int64"), ...many] });
    expect(said.split("\n").length).toBeLessThan(50);
    expect(said).toContain("f37");
    expect(said).toContain("… and 462 more");
  });

  test("the tables side by side have no blanks at the ends of lines", () => {
    expect(refused({ passthrough: ["ID"] })).not.toMatch(/ $/m);
  });

  test("the tables side by side show inputs of every kind", () => {
    expect(
      refused({ ...withInputs(tensor("a", "string", null, 1), tensor("b", "float16", 8, 4)), passthrough: ["ID"] }),
    ).toMatchInlineSnapshot(`
      "64 CONTRACT
      binding models/churn.onnx to the columns of in/a.parquet: output.columns names column \`ID\`, which is not there; did you mean \`id\`?

        model inputs:                    columns of in/a.parquet:
          a  string [N,1]                  id      int64
          b  float16 [8,4]                 age     int32
        model outputs:                     amount  decimal(10,2)
          label          int64 [N]         city    utf8
          probabilities  float32 [N,2]     tags    MAP(VARCHAR, INTEGER)
                                           rate    float64

      hint: names must match exactly"
    `);
  });
});
