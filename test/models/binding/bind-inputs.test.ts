import { describe, expect, test } from "vitest";
import { type ColumnType, showType } from "#src/columns/types.js";
import {
  bind,
  column,
  columns,
  featureNames,
  finding,
  list,
  refused,
  tensor,
  typed,
  withInput,
  withInputs,
} from "../../support/contracts.js";

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

  test("the columns of a single matrix input must be listed if the model accepts any number of columns, because an id could be among them", () => {
    expect(refused(withInput(null, null))).toMatchInlineSnapshot(`
      "64 CONTRACT
      binding models/churn.onnx to the columns of in/a.parquet: input \`features\` is float32 [N,?]: it does not say how many columns it takes

        model inputs:                    columns of in/a.parquet:
          features  float32 [N,?]          id      int64
        model outputs:                     age     int32
          label          int64 [N]         amount  decimal(10,2)
          probabilities  float32 [N,2]     city    utf8
                                           tags    MAP(VARCHAR, INTEGER)
                                           rate    float64

      hint: list them in the model's order: model.inputs: { features: [age, amount, rate] }"
    `);
    const inputs = { features: ["rate", "age"] };
    expect(featureNames(bind({ ...withInput(null, null), inputs }))).toEqual(["rate", "age"]);
  });

  test("the columns of a lone matrix must be as many as the model takes", () => {
    expect(refused({ passthrough: [] })).toMatchInlineSnapshot(`
      "64 CONTRACT
      binding models/churn.onnx to the columns of in/a.parquet: input \`features\` needs 3 columns; the numeric columns that are not in output.columns are 4

        model inputs:                    columns of in/a.parquet:
          features  float32 [N,3]          id      int64
        model outputs:                     age     int32
          label          int64 [N]         amount  decimal(10,2)
          probabilities  float32 [N,2]     city    utf8
                                           tags    MAP(VARCHAR, INTEGER)
                                           rate    float64

      hint: list its columns in the model's order under model.inputs.features, or put ids and labels under output.columns"
    `);
    expect(refused({ inputs: { features: ["age"] } })).toMatchInlineSnapshot(`
      "64 CONTRACT
      binding models/churn.onnx to the columns of in/a.parquet: input \`features\` needs 3 columns, model.inputs lists 1

        model inputs:                    columns of in/a.parquet:
          features  float32 [N,3]          id      int64
        model outputs:                     age     int32
          label          int64 [N]         amount  decimal(10,2)
          probabilities  float32 [N,2]     city    utf8
                                           tags    MAP(VARCHAR, INTEGER)
                                           rate    float64

      hint: list them in the model's order"
    `);
  });

  test("a listed column of a matrix must be in the shard", () => {
    expect(finding(refused({ inputs: { features: ["age", "amont", "rate"] } }))).toMatchInlineSnapshot(`
      "64 CONTRACT
      binding models/churn.onnx to the columns of in/a.parquet: model.inputs.features names column \`amont\`, which is not there; did you mean \`amount\`?
      hint: names must match exactly"
    `);
  });

  test("the columns of a matrix must be numbers", () => {
    expect(refused({ inputs: { features: ["age", "city", "rate"] } })).toMatchInlineSnapshot(`
      "64 CONTRACT
      binding models/churn.onnx to the columns of in/a.parquet: input \`features\` takes float32, column \`city\` is utf8

        model inputs:                    columns of in/a.parquet:
          features  float32 [N,3]          id      int64
        model outputs:                     age     int32
          label          int64 [N]         amount  decimal(10,2)
          probabilities  float32 [N,2]     city    utf8
                                           tags    MAP(VARCHAR, INTEGER)
                                           rate    float64

      hint: if its texts are numbers, add a line under input.columns: city: try_cast(city as double)"
    `);
  });

  test.each(["date32", "timestamp[us]", "time64[us]", "uuid", "interval", "binary", list("float32")] as ColumnType[])(
    "a matrix with a column of type %j is refused",
    (type) => {
      const said = refused({ columns: [...columns, typed("odd", type)], inputs: { features: ["age", "odd", "rate"] } });
      expect(said).toContain(`input \`features\` takes float32, column \`odd\` is ${showType(type)}\n`);
    },
  );

  test("a column of a matrix must have a type that can be read", () => {
    expect(finding(refused({ inputs: { features: ["age", "tags", "rate"] } }))).toMatchInlineSnapshot(`
      "64 CONTRACT
      binding models/churn.onnx to the columns of in/a.parquet: model.inputs.features names \`tags\`, whose type MAP(VARCHAR, INTEGER) is not supported
      hint: maps, unions, variants and integers of 128 bits cannot be read; leave this one out, cast it under input.columns, or store its parts as columns"
    `);
  });

  test("a matrix without any column is refused", () => {
    expect(
      finding(refused({ ...withInput(null, 2), columns: [typed("city", "utf8")], passthrough: [] })),
    ).toMatchInlineSnapshot(`
      "64 CONTRACT
      binding models/churn.onnx to the columns of in/a.parquet: input \`features\` needs 2 columns; the numeric columns that are not in output.columns are 0
      hint: if earlier runs had enough, the input is incomplete: write it again; else list its columns in the model's order under model.inputs.features"
    `);
  });
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
    expect(finding(refused(withInput(null)))).toMatchInlineSnapshot(`
      "64 CONTRACT
      binding models/churn.onnx to the columns of in/a.parquet: input \`features\` needs 1 column; the numeric columns that are not in output.columns are 3
      hint: list its columns in the model's order under model.inputs.features, or put ids and labels under output.columns"
    `);
  });

  test("an input of one value a row refuses more than one column", () => {
    expect(finding(refused({ ...withInput(null), inputs: { features: ["age", "rate"] } }))).toMatchInlineSnapshot(`
      "64 CONTRACT
      binding models/churn.onnx to the columns of in/a.parquet: input \`features\` needs 1 column, model.inputs lists 2
      hint: list them in the model's order"
    `);
  });

  test("an input of one value a row is refused if the column of its name is no number", () => {
    expect(finding(refused(withInputs(tensor("city", "float32", null))))).toMatchInlineSnapshot(`
      "64 CONTRACT
      binding models/churn.onnx to the columns of in/a.parquet: input \`city\` takes float32, column \`city\` is utf8
      hint: if its texts are numbers, add a line under input.columns: city: try_cast(city as double)"
    `);
  });
});
