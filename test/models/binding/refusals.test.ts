import { expect, test } from "vitest";
import type { ContractRequest } from "#src/models/binding/bind-contract.js";
import type { TokenizerFacts } from "#src/models/binding/model-facts.js";
import type { ColumnType } from "#src/columns/types.js";
import type { InputSource, PadSpec } from "#src/job/jobfile/model-spec.js";
import {
  column,
  columns,
  finding,
  list,
  outputs,
  refused,
  tensor,
  typed,
  withInput,
  withInputs,
  withOutput,
} from "../../support/contracts.js";

type Overrides = Partial<ContractRequest>;

const begins = "64 CONTRACT\nbinding models/churn.onnx to the columns of in/a.parquet: ";

const refusals = (cases: Readonly<Record<string, Overrides>>, common: Overrides = {}): Record<string, string> =>
  Object.fromEntries(
    Object.entries(cases).map(([what, overrides]) => {
      const said = finding(refused({ ...common, ...overrides }));
      expect(said.slice(0, begins.length), what).toBe(begins);
      return [what, said.slice(begins.length)];
    }),
  );

const user: ColumnType = {
  kind: "struct",
  fields: [
    { name: "age", type: "int32" },
    { name: "home", type: { kind: "struct", fields: [{ name: "city", type: "utf8" }] } },
  ],
};

test("carried columns that are refused", () => {
  const cases = {
    "one that is not there, but for its case": { passthrough: ["ID"] },
    "one that is not there": { passthrough: ["customer"] },
    "of a type that is not known": { passthrough: ["tags"] },
    "a field that is not there": { passthrough: ["user.agee"] },
    "a field of a field that is not there": { passthrough: ["user.home.street"] },
    "a field of a column without any": { passthrough: ["age.years"] },
    "a field of a text field": { passthrough: ["user.home.city.name"] },
    "a field of a column that is not there": { passthrough: ["usr.age"] },
    "a field of a column of unknown type": { passthrough: ["tags.a"] },
  };
  expect(refusals(cases, { columns: [...columns, column("user", "STRUCT(…)", user)] })).toMatchSnapshot();
});

const batches = (a: number | null, b: number | null): Overrides =>
  withInputs(tensor("age", "float32", a), tensor("rate", "float32", b));

test("inputs that are refused", () => {
  const cases: Record<string, Overrides> = {
    "none at all": withInputs(),
    "one of an unknown type": withInputs(tensor("features", "bfloat16", null, 3)),
    "one of a type like something every object has": withInputs(tensor("features", "constructor", null, 3)),
    "one of three dimensions": withInputs(tensor("features", "float32", null, 3, 4)),
    "one without a dimension": withInputs(tensor("features", "float32")),
    "a sequence": withInputs(tensor("features", undefined)),
    // Cut into batches of no row, a run would never end.
    "one of no row": withInput(0, 3),
    "one that the model lacks": { inputs: { feature: ["age", "amount", "rate"] } },
    "one without a column, and nothing like it": withInputs(
      tensor("features", "float32", null, 3),
      tensor("rates", "float32", null),
    ),
    "one without a column, and a similar one": withInputs(
      tensor("age", "float32", null),
      tensor("rates", "float32", null),
    ),
    "several of other batch sizes": batches(16, 8),
    // An input [4] beside [N,4] is a constant for all rows: filled with a column, it would mix four rows.
    "the first alone of a fixed first dimension": batches(16, null),
    "the second alone of a fixed first dimension": batches(null, 16),
    // An id could be among the columns.
    "a matrix of any number of columns": withInput(null, null),
    "a matrix, and too many columns": { passthrough: [] },
    "a matrix, and no column": { ...withInput(null, 2), columns: [typed("city", "utf8")], passthrough: [] },
    "a matrix, and too few listed columns": { inputs: { features: ["age"] } },
    "a matrix, and a listed column that is not there": { inputs: { features: ["age", "amont", "rate"] } },
    "a matrix, and a text": { inputs: { features: ["age", "city", "rate"] } },
    "a matrix, and a column that cannot be read": { inputs: { features: ["age", "tags", "rate"] } },
    "one value a row, and several columns": withInput(null),
    "one value a row, and several listed columns": { ...withInput(null), inputs: { features: ["age", "rate"] } },
    "one value a row, and a text of its name": withInputs(tensor("city", "float32", null)),
    "texts, and a number of its name": withInputs(tensor("age", "string", null)),
    "texts, and no column of its name": withInputs(tensor("town", "string", null)),
    "texts, and several columns": { ...withInputs(tensor("town", "string", null)), inputs: { town: ["city", "city"] } },
    "three texts a row": {
      ...withInputs(tensor("city", "string", null, 3)),
      inputs: { city: ["city", "city", "city"] },
    },
  };
  expect(refusals(cases)).toMatchSnapshot();
});

test("lists that are refused", () => {
  const ofType = (type: ColumnType): Overrides => ({ columns: [typed("features", type)], passthrough: [] });
  const cases: Record<string, Overrides> = {
    "not of numbers": ofType(list("utf8")),
    "of lists": ofType(list(list("float32"))),
    "of structs": ofType(list({ kind: "struct", fields: [] })),
    "of a length that the model leaves open": withInput(null, null),
    "listed together with another column": { inputs: { features: ["features", "id", "id"] } },
    "for strings": withInputs(tensor("features", "string", null)),
    "for one value a row": withInput(null),
  };
  const vectors = [column("id", "BIGINT", "int64"), typed("features", list("float64"))];
  expect(refusals(cases, { columns: vectors })).toMatchSnapshot();
});

const mask: InputSource = { mask_of: "ids" };
const padded = (pad: Partial<PadSpec> = {}, name = "tokens"): InputSource => ({
  column: name,
  pad: { value: 0, side: "right", truncate: false, shrink: false, ...pad },
});

test("padded lists, and masks of them, that are refused", () => {
  const lists = [
    typed("id", "int64"),
    typed("tokens", list("int32")),
    typed("mask", list("int8")),
    typed("nested", list(list("int32"))),
    typed("words", list("utf8")),
  ];
  const ids = tensor("ids", "int64", null, null);
  const fixed = withInputs(tensor("mask", "float32", null, 8), tensor("ids", "int64", null, 8));
  const to8 = { ids: padded({ to: 8 }), mask };
  const cases: Record<string, Overrides> = {
    "of lists": { inputs: { ids: padded({ to: 8 }, "nested"), mask } },
    "of texts": { inputs: { ids: padded({ to: 8 }, "words"), mask } },
    "a number": { inputs: { ids: padded({ to: 8 }, "id"), mask } },
    "that are not there": { inputs: { ids: padded({ to: 8 }, "token"), mask } },
    "to no number, where the model has none": { inputs: { ids: padded(), mask } },
    "to another number than the model's": { ...fixed, inputs: { ids: padded({ to: 9 }), mask } },
    "that shrink, where the model does not": { ...fixed, inputs: { ids: padded({ shrink: true }) } },
    "for one number a row": { ...withInputs(tensor("ids", "int64", null)), inputs: { ids: padded({ to: 8 }) } },
    "for strings": { ...withInputs(tensor("ids", "string", null, 8)), inputs: { ids: padded() } },
    "for three dimensions": { ...withInputs(tensor("ids", "int64", null, 8, 2)), inputs: { ids: padded() } },
    "with what their input cannot hold": { inputs: { ids: padded({ to: 8, value: 0.5 }), mask } },
    "of any length that nothing pads": { inputs: { ids: ["tokens"], mask } },
    "whose mask has no column": { columns: lists.slice(0, 2), inputs: { ids: padded({ to: 8 }) } },
    "a mask of no input": { inputs: { ...to8, mask: { mask_of: "id" } } },
    "a mask of one that is not padded": { ...fixed, inputs: { ids: ["tokens"], mask } },
    "a mask of itself": { inputs: { ...to8, mask: { mask_of: "mask" } } },
    "a mask of another width": { ...withInputs(tensor("mask", "bool", null, 9), ids), inputs: to8 },
    "a mask of a fixed width, where the lists shrink": {
      ...withInputs(tensor("mask", "bool", null, 8), ids),
      inputs: { ids: padded({ to: 8, shrink: true }), mask },
    },
    "a mask of strings": { ...withInputs(tensor("mask", "string", null, 8), ids), inputs: to8 },
  };
  expect(
    refusals(cases, { columns: lists, ...withInputs(tensor("mask", "int64", null, null), ids) }),
  ).toMatchSnapshot();
});

test("tokens that are refused", () => {
  const facts: TokenizerFacts = { sha256: "ab", maxTokens: undefined, cut: "right", padId: 3, side: "right" };
  const text = (more: object = {}): InputSource => ({ tokenize: "body", tokenizer: "t.json", ...more });
  const kinds: InputSource = { types_of: "ids" };
  const ids = tensor("ids", "int64", null, null);
  const free = [tensor("mask", "float32", null, null), ids, tensor("kinds", "int32", null, null)];
  const narrowMask = tensor("mask", "int64", null, 16);
  const fixed = withInputs(tensor("ids", "int32", null, 16), narrowMask);
  const cases: Record<string, Overrides> = {
    "of a column of numbers": { inputs: { ids: text({ tokenize: "length" }), mask, kinds } },
    "of a column that is not there": { inputs: { ids: text({ tokenize: "bodi" }), mask, kinds } },
    "for an input of fractions": { ...withInputs(tensor("ids", "float32", null, null)), inputs: { ids: text() } },
    "for one token a row": { ...withInputs(tensor("ids", "int64", null)), inputs: { ids: text() } },
    "of another number than the model's": { ...fixed, inputs: { ids: text({ max: 17 }), mask } },
    "that shrink where the model does not": { ...fixed, inputs: { ids: text({ shrink: true }), mask } },
    "without padding and without a mask": {
      ...withInputs(ids),
      inputs: { ids: text() },
      tokenizers: new Map([["t.json", { ...facts, padId: undefined }]]),
    },
    "with a mask of another length": { ...withInputs(ids, narrowMask), inputs: { ids: text({ max: 8 }), mask } },
    "whose mask no one names": { ...withInputs(ids, tensor("mask", "int64", null, null)), inputs: { ids: text() } },
    "whose types no one names": {
      ...withInputs(ids, tensor("token_type_ids", "int64", null, null)),
      inputs: { ids: text() },
    },
    "with types of another input": { inputs: { ids: text(), mask, kinds: { types_of: "idz" } } },
    "that shrink, where an output may be as wide as the batch": {
      signature: { inputs: free, outputs: [tensor("hidden", "float32", null, null)] },
      inputs: { ids: text(), mask, kinds },
      outputs: { hidden: "hidden" },
    },
  };
  const common = {
    columns: [typed("id", "int64"), typed("body", "utf8"), typed("length", "int32")],
    tokenizers: new Map([["t.json", facts]]),
    ...withInputs(...free),
  };
  expect(refusals(cases, common)).toMatchSnapshot();
});

test("outputs that are refused", () => {
  const one = (name: string, dtype: string | undefined, ...shape: (number | null)[]): Overrides => ({
    ...withOutput(tensor(name, dtype, ...shape)),
    outputs: undefined,
  });
  const twice = [tensor("score", "float32", null, 1), tensor("Score", "float32", null, 1)];
  const map = withOutput(tensor("output_label", "int64", null), tensor("output_probability", undefined));
  const cases: Record<string, Overrides> = {
    "without a dimension": one("t", "float32"),
    "of three dimensions": one("t", "float32", null, 2, 3),
    "of a type that is not supported": one("t", "bfloat16", null),
    "of a type like something every object has": one("t", "constructor", null),
    "an element beyond the width": { outputs: { score: "probabilities[2]" } },
    "an element of one value a row": { outputs: { score: "label[1]" } },
    "one that the model lacks": { outputs: { score: "probabilites[1]" } },
    "an element that is an output, too": {
      ...withOutput(tensor("y", "float32", null, 2), tensor("y[0]", "int64", null)),
      outputs: { a: "y[0]" },
    },
    "a map": { ...map, outputs: { p: "output_probability[1]" } },
    "nothing but a map": one("output_probability", undefined),
    "whose name is none for a column": one("StatefulPartitionedCall:0", "float32", null, 1),
    "of the name of a carried column, but for its case": one("ID", "float32", null, 1),
    "two of one name, but for its case": { ...withOutput(...twice), outputs: undefined },
  };
  expect(
    refusals(cases, { signature: { inputs: [tensor("features", "float32", null, 3)], outputs } }),
  ).toMatchSnapshot();
});
