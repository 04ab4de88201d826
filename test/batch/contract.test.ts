import { describe, expect, test } from "vitest";
import {
  bind,
  column,
  columns,
  featureNames,
  features,
  outputs,
  refused,
  tensor,
  withInput,
} from "../support/contracts.js";

describe("a binding", () => {
  test("is plain JSON that says which column goes where", () => {
    const contract = bind({ outputs: { score: "probabilities[1]", label: "label" } });
    expect(JSON.parse(JSON.stringify(contract))).toEqual(contract);
    expect(contract).toMatchInlineSnapshot(`
      {
        "fixedBatchRows": null,
        "inputs": [
          {
            "columns": [
              {
                "name": "age",
                "sourceType": "INTEGER",
              },
              {
                "name": "amount",
                "sourceType": "DECIMAL(10,2)",
              },
              {
                "name": "rate",
                "sourceType": "DOUBLE",
              },
            ],
            "dtype": "float32",
            "input": "features",
            "kind": "matrix",
          },
        ],
        "outputs": [
          {
            "column": "score",
            "element": 1,
            "kind": "element",
            "tensor": "probabilities",
            "type": "float32",
          },
          {
            "column": "label",
            "kind": "scalar",
            "tensor": "label",
            "type": "int64",
          },
        ],
        "passthrough": [
          {
            "column": "id",
            "sourceType": "BIGINT",
            "type": "int64",
          },
        ],
      }
    `);
  });
});

describe("the columns of an input", () => {
  test("are by default the numeric ones in file order, minus those carried through", () => {
    expect(featureNames(bind())).toEqual(["age", "amount", "rate"]);
    expect(featureNames(bind({ ...withInput(null, 4), passthrough: [] }))).toEqual(["id", "age", "amount", "rate"]);
    expect(featureNames(bind({ columns: columns.toReversed() }))).toEqual(["rate", "amount", "age"]);
  });

  test("are those listed, in their order, a carried one among them if listed", () => {
    expect(featureNames(bind({ inputs: { features: ["rate", "id", "age"] } }))).toEqual(["rate", "id", "age"]);
  });

  test("are as many as there are where the model takes any number", () => {
    expect(featureNames(bind(withInput(null, null)))).toEqual(["age", "amount", "rate"]);
  });

  test("are counted against the model's", () => {
    expect(refused({ passthrough: [] })).toMatchInlineSnapshot(`
      "64 CONTRACT
      binding models/churn.onnx to the columns of in/a.parquet: input \`features\` needs 3 columns, the numeric columns minus output.columns are 4

        model inputs:                    columns of in/a.parquet:
          features  float32 [N,3]          id      BIGINT
        model outputs:                     age     INTEGER
          label          int64 [N]         amount  DECIMAL(10,2)
          probabilities  float32 [N,2]     city    VARCHAR
                                           rate    DOUBLE

      hint: list the 3 columns in the model's order under model.inputs.features, or put ids and labels under output.columns"
    `);
    expect(refused({ inputs: { features: ["age"] } })).toMatchInlineSnapshot(`
      "64 CONTRACT
      binding models/churn.onnx to the columns of in/a.parquet: input \`features\` needs 3 columns, model.inputs lists 1

        model inputs:                    columns of in/a.parquet:
          features  float32 [N,3]          id      BIGINT
        model outputs:                     age     INTEGER
          label          int64 [N]         amount  DECIMAL(10,2)
          probabilities  float32 [N,2]     city    VARCHAR
                                           rate    DOUBLE

      hint: list the 3 columns in the model's order under model.inputs.features, or put ids and labels under output.columns"
    `);
  });

  test("must be in the shard", () => {
    expect(refused({ inputs: { features: ["age", "amont", "rate"] } })).toMatchInlineSnapshot(`
      "64 CONTRACT
      binding models/churn.onnx to the columns of in/a.parquet: model.inputs.features names column \`amont\`, which is not there; did you mean \`amount\`?

        model inputs:                    columns of in/a.parquet:
          features  float32 [N,3]          id      BIGINT
        model outputs:                     age     INTEGER
          label          int64 [N]         amount  DECIMAL(10,2)
          probabilities  float32 [N,2]     city    VARCHAR
                                           rate    DOUBLE

      hint: names must match exactly"
    `);
  });

  test("must be numbers", () => {
    expect(refused({ inputs: { features: ["age", "city", "rate"] } })).toMatchInlineSnapshot(`
      "64 CONTRACT
      binding models/churn.onnx to the columns of in/a.parquet: model.inputs.features names \`city\`, whose type VARCHAR is not numeric

        model inputs:                    columns of in/a.parquet:
          features  float32 [N,3]          id      BIGINT
        model outputs:                     age     INTEGER
          label          int64 [N]         amount  DECIMAL(10,2)
          probabilities  float32 [N,2]     city    VARCHAR
                                           rate    DOUBLE

      hint: a float32 matrix is packed from integer, float and decimal columns"
    `);
  });

  test("must be some", () => {
    expect(
      refused({ ...withInput(null, null), columns: [column("city", "VARCHAR", undefined)], passthrough: [] }),
    ).toMatchInlineSnapshot(`
      "64 CONTRACT
      binding models/churn.onnx to the columns of in/a.parquet: no numeric column is left for input \`features\`

        model inputs:                    columns of in/a.parquet:
          features  float32 [N,?]          city  VARCHAR
        model outputs:
          label          int64 [N]
          probabilities  float32 [N,2]

      hint: list the columns under model.inputs.features"
    `);
  });
});

describe("the model's input", () => {
  test("must be one", () => {
    expect(
      refused({ signature: { inputs: [features, tensor("mask", "float32", null, 3)], outputs } }),
    ).toMatchInlineSnapshot(`
      "64 CONTRACT
      binding models/churn.onnx to the columns of in/a.parquet: the model has 2 inputs; one [N,F] float32 input is supported so far

        model inputs:                    columns of in/a.parquet:
          features  float32 [N,3]          id      BIGINT
          mask      float32 [N,3]          age     INTEGER
        model outputs:                     amount  DECIMAL(10,2)
          label          int64 [N]         city    VARCHAR
          probabilities  float32 [N,2]     rate    DOUBLE

      hint: export the model with a single feature matrix"
    `);
    expect(refused({ signature: { inputs: [], outputs } })).toContain("the model has 0 inputs");
  });

  test.each([
    ["another type", tensor("features", "float64", null, 3)],
    ["text", tensor("features", "string", null, 3)],
    ["one dimension", tensor("features", "float32", null)],
    ["three dimensions", tensor("features", "float32", null, 3, 4)],
    ["a sequence", tensor("features", undefined)],
  ])("is refused when it is %s", (_what, input) => {
    expect(refused({ signature: { inputs: [input], outputs } })).toMatch(
      /^64 CONTRACT\n.*input `features` is .*; float32 \[N,F\] is supported so far\n/,
    );
  });

  test("is the only one that may be named", () => {
    expect(refused({ inputs: { feature: ["age", "amount", "rate"] } })).toMatchInlineSnapshot(`
      "64 CONTRACT
      binding models/churn.onnx to the columns of in/a.parquet: model.inputs names \`feature\`, which is no input of the model; did you mean \`features\`?

        model inputs:                    columns of in/a.parquet:
          features  float32 [N,3]          id      BIGINT
        model outputs:                     age     INTEGER
          label          int64 [N]         amount  DECIMAL(10,2)
          probabilities  float32 [N,2]     city    VARCHAR
                                           rate    DOUBLE

      hint: its input is \`features\`"
    `);
  });

  test("with a fixed batch size gives its size on", () => {
    expect(bind(withInput(32, 3)).fixedBatchRows).toBe(32);
    expect(bind(withInput(1, 3)).fixedBatchRows).toBe(1);
    expect(bind().fixedBatchRows).toBeNull();
  });

  // Cut into batches of no row, a run would never end.
  test("with a batch of no row is refused", () => {
    expect(refused(withInput(0, 3))).toMatch(/^64 CONTRACT/);
  });

  test("called like something every object has is not taken for named", () => {
    const signature = { inputs: [tensor("toString", "float32", null, 3)], outputs };
    expect(featureNames(bind({ signature }))).toEqual(["age", "amount", "rate"]);
  });

  test("called like something every object has is not taken for named in an empty mapping", () => {
    const signature = { inputs: [tensor("toString", "float32", null, 3)], outputs };
    expect(featureNames(bind({ signature, inputs: {} }))).toEqual(["age", "amount", "rate"]);
  });
});

describe("carried columns", () => {
  test("keep their type", () => {
    expect(bind({ ...withInput(null, 2), passthrough: ["rate", "id"] }).passthrough).toEqual([
      { column: "rate", sourceType: "DOUBLE", type: "float64" },
      { column: "id", sourceType: "BIGINT", type: "int64" },
    ]);
  });

  test("must be in the shard", () => {
    expect(refused({ passthrough: ["ID"] })).toMatchInlineSnapshot(`
      "64 CONTRACT
      binding models/churn.onnx to the columns of in/a.parquet: output.columns names column \`ID\`, which is not there; did you mean \`id\`?

        model inputs:                    columns of in/a.parquet:
          features  float32 [N,3]          id      BIGINT
        model outputs:                     age     INTEGER
          label          int64 [N]         amount  DECIMAL(10,2)
          probabilities  float32 [N,2]     city    VARCHAR
                                           rate    DOUBLE

      hint: names must match exactly"
    `);
    expect(refused({ passthrough: ["customer"] })).toContain(
      "output.columns names column `customer`, which is not there\n",
    );
  });

  test("must be of a type that can be carried", () => {
    expect(refused({ passthrough: ["city"] })).toMatchInlineSnapshot(`
      "64 CONTRACT
      binding models/churn.onnx to the columns of in/a.parquet: output.columns names \`city\`, whose type VARCHAR is not supported yet

        model inputs:                    columns of in/a.parquet:
          features  float32 [N,3]          id      BIGINT
        model outputs:                     age     INTEGER
          label          int64 [N]         amount  DECIMAL(10,2)
          probabilities  float32 [N,2]     city    VARCHAR
                                           rate    DOUBLE

      hint: integer and float columns can be carried through; leave this one out"
    `);
  });
});

describe("the tables beside each other", () => {
  test("are cut where a shard has very many columns", () => {
    const many = Array.from({ length: 500 }, (_, index) => column(`f${index}`, "FLOAT", "float32"));
    const said = refused({ columns: [column("id", "BIGINT", "int64"), ...many] });
    expect(said.split("\n").length).toBeLessThan(50);
    expect(said).toContain("f37");
    expect(said).toContain("… and 462 more");
  });

  test("are printed without blanks at the ends of lines", () => {
    expect(refused({ passthrough: ["ID"] })).not.toMatch(/ $/m);
  });
});
