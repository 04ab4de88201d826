import { describe, expect, test } from "vitest";
import { type ColumnType, showType } from "#src/columns/types.js";
import {
  bind,
  column,
  columns,
  featureNames,
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
