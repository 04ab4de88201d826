import { describe, expect, test } from "vitest";
import { type Proposal, proposeBinding, type ProposalRequest } from "#src/models/binding/propose.js";
import { column, finding, list, tensor, typed } from "../../support/contracts.js";
import { refusal } from "../../support/spec.js";

const noTraits = { otherOutputs: [], batchScales: [], hasTrees: false, features: undefined };
const numbers = ["a", "b", "c"].map((name) => typed(name, "float64"));
const label = tensor("label", "int64", null);
const probabilities = tensor("probabilities", "float32", null, 2);

function propose(overrides: Partial<ProposalRequest> = {}): Proposal {
  return proposeBinding({
    model: "churn.onnx",
    shard: "in/a.parquet",
    signature: { inputs: [tensor("input", "float32", null, 3)], outputs: [label, probabilities] },
    columns: [typed("customer_id", "int64"), ...numbers, typed("signup", "date32")],
    carry: undefined,
    ofFolders: new Set(),
    traits: noTraits,
    order: undefined,
    ...overrides,
  });
}

const inputOf = (...shape: (number | null)[]): Partial<ProposalRequest> => ({
  signature: { inputs: [tensor("input", "float32", ...shape)], outputs: [label] },
});
const outputs = (...given: ReturnType<typeof tensor>[]): Partial<ProposalRequest> => ({
  signature: { inputs: [tensor("input", "float32", null, 3)], outputs: given },
});

describe("features", () => {
  test("the features of a lone input are the numbers, and the other columns are carried through", () => {
    expect(propose()).toEqual({
      inputs: { input: ["a", "b", "c"] },
      columns: ["customer_id", "signup"],
      outputs: { label: "label", probabilities_0: "probabilities[0]", probabilities_1: "probabilities[1]" },
      notes: [expect.stringContaining("the columns of input input are in the order of the file, since the model")],
    });
  });

  test("the features are in the order that the model says, whatever the file's, and even if named like ids", () => {
    const order = { names: ["c", "customer_id", "a"], from: "feature_names in the model's metadata" };
    expect(propose({ order })).toMatchObject({
      inputs: { input: ["c", "customer_id", "a"] },
      columns: ["b", "signup"],
      notes: ["the columns of input input are in the order of feature_names in the model's metadata"],
    });
    expect(propose({ ...inputOf(null, null), order }).inputs).toEqual({ input: order.names });
  });

  test("an order of names that no column has is that of a matrix, and is not taken", () => {
    const order = { names: ["Column_0", "Column_1", "Column_2"], from: "x" };
    expect(propose({ order })).toEqual(propose());
  });

  test.each([
    [["a", "b", "d", "e"], "x has `d`, `e`, which is no column"],
    [["a", "b"], "x has 2 names, and input `input` is float32 [N,3]"],
  ])("an order that does not fit is refused: %j", (names, found) => {
    expect(finding(refusal(() => propose({ order: { names, from: "x" } })))).toContain(found);
  });

  test("the index of a pandas DataFrame is neither a feature nor carried through, unless somebody names it", () => {
    const index = typed("__index_level_0__", "int64");
    const columns = [...numbers, index];
    const left = propose({ columns, ...inputOf(null, null) });
    expect(left).toMatchObject({ inputs: { input: ["a", "b", "c"] }, columns: [] });
    expect(left.notes).toContain("__index_level_0__ is left out: it is the index of a pandas DataFrame");
    expect(propose({ columns, carry: [index.name] }).columns).toEqual([index.name]);
    expect(propose({ columns, order: { names: ["a", "b", index.name], from: "x" } }).inputs?.["input"]).toContain(
      index.name,
    );
  });

  test("the features are all numbers if their count fits, even if one is named like an id", () => {
    expect(propose(inputOf(null, 4)).inputs).toEqual({ input: ["customer_id", "a", "b", "c"] });
  });

  test("a number named like a label is no feature if there is one number too many", () => {
    const columns = [typed("id", "int64"), ...numbers, typed("target", "int64")];
    expect(propose({ columns })).toMatchObject({ inputs: { input: ["a", "b", "c"] }, columns: ["id", "target"] });
  });

  test("init proposes columns by name if every input has its column", () => {
    const signature = { inputs: [tensor("b", "float32", null, 1), tensor("a", "float32", null)], outputs: [label] };
    expect(propose({ signature })).toMatchObject({ inputs: undefined, columns: ["customer_id", "c", "signup"] });
  });

  test("the feature is the one list column if there are too few numbers", () => {
    const columns = [typed("id", "int64"), typed("vector", list("float32"))];
    expect(propose({ ...inputOf(null, 64), columns })).toMatchObject({
      inputs: { input: ["vector"] },
      columns: ["id"],
    });
  });

  test("the features leave out columns that the user named, and folder values", () => {
    const day = { ...typed("day", "int64"), partition: true as const };
    const columns = [typed("x", "int64"), ...numbers, day];
    expect(propose({ columns, carry: ["x"] })).toMatchObject({ inputs: { input: ["a", "b", "c"] }, columns: ["x"] });
  });

  test("the features of an input of unknown width leave out columns named like ids", () => {
    const columns = ["ID", "userId", "order_id", "paid", "a"].map((name) => typed(name, "int64"));
    expect(propose({ ...inputOf(null, null), columns }).inputs).toEqual({ input: ["paid", "a"] });
  });

  test("init asks for the features if it cannot tell them from other columns", () => {
    expect(finding(refusal(() => propose(inputOf(null, 2))))).toMatchInlineSnapshot(`
      "64 CONTRACT
      binding churn.onnx to the columns of in/a.parquet: input \`input\` is float32 [N,2], and 4 columns are numbers
      hint: say which columns are no features: --columns id,label; or write model.inputs by hand"
    `);
  });

  test("the features of several inputs are refused if one input has no column", () => {
    const signature = { inputs: [tensor("a", "float32", null), tensor("age", "float32", null)], outputs: [label] };
    expect(finding(refusal(() => propose({ signature })))).toMatchInlineSnapshot(`
      "64 CONTRACT
      binding churn.onnx to the columns of in/a.parquet: no column is called like input \`age\`
      hint: rename the columns, or write the spec by hand: model.inputs lists the columns of each input"
    `);
  });

  test.each(["input_ids", "tokens"])(
    "the features of a token model are padded lists (%s), and their mask is made",
    (name) => {
      const wide = ["input_ids", "attention_mask"].map((input) => tensor(input, "int64", null, null));
      const columns = [typed("id", "int64"), typed(name, list("int64"))];
      expect(propose({ signature: { inputs: wide, outputs: [label] }, columns })).toMatchObject({
        inputs: { input_ids: { column: name, pad: { to: 128 } }, attention_mask: { mask_of: "input_ids" } },
        columns: ["id"],
      });
    },
  );

  test("the features of a token model are as wide as the model says, and their mask is a column if one exists", () => {
    const wide = ["input_ids", "attention_mask"].map((input) => tensor(input, "int64", null, 48));
    const lists = ["input_ids", "attention_mask"].map((name) => typed(name, list("int32")));
    const propose48 = (columns: ProposalRequest["columns"]): Proposal["inputs"] =>
      propose({ signature: { inputs: wide, outputs: [label] }, columns }).inputs;
    expect(propose48(lists.slice(0, 1))).toEqual({
      input_ids: { column: "input_ids", pad: { to: 48 } },
      attention_mask: { mask_of: "input_ids" },
    });
    expect(propose48(lists)).toBeUndefined(); // by name: lists may be just as long
  });

  test("init asks for the features if two columns of lists could be the tokens", () => {
    const signature = { inputs: [tensor("input_ids", "int64", null, null), label], outputs: [label] };
    const columns = [typed("title", list("int64")), typed("body", list("int64")), typed("label", "int64")];
    expect(refusal(() => propose({ signature, columns }))).toContain("pad: { to: 128 } }");
  });

  test("a list of floats of the length that the model takes does not count as tokens", () => {
    const signature = { inputs: [tensor("vector", "float32", null, null)], outputs: [label] };
    expect(propose({ signature, columns: [typed("vector", list("float32"))] }).inputs).toBeUndefined();
  });
});

describe("output columns", () => {
  test("proposed output columns have names that are free and valid in SQL", () => {
    const given = [
      tensor("customer_id", "int64", null),
      tensor("out/score:0", "float32", null, 1),
      tensor("1st", "float32", null),
    ];
    expect(propose(outputs(...given)).outputs).toEqual({
      customer_id_predicted: "customer_id",
      out_score_0: "out/score:0",
      _1st: "1st",
    });
  });

  test("the proposed output column of a wide tensor is one list", () => {
    expect(propose(outputs(tensor("vector", "float32", null, 64))).outputs).toEqual({ vector: "vector" });
  });

  test("proposed output columns leave out outputs that are no tensors, and say so", () => {
    const found = propose(outputs(label, tensor("maps", undefined)));
    expect([found.outputs, found.notes.slice(1)]).toEqual([
      { label: "label" },
      [
        "output maps is no tensor, and left out: export the model with zipmap=False (skl2onnx: options={'zipmap': False}), or take the ZipMap out of the file, as docs/models.md shows",
      ],
    ]);
  });

  test("init refuses a model without an output that can be a column", () => {
    expect(finding(refusal(() => propose(outputs(tensor("maps", undefined)))))).toMatchInlineSnapshot(`
      "64 CONTRACT
      binding churn.onnx to the columns of in/a.parquet: the model has no tensor output that could be scored
      hint: output maps is no tensor, and left out: export the model with zipmap=False (skl2onnx: options={'zipmap': False}), or take the ZipMap out of the file, as docs/models.md shows"
    `);
  });
});

test("columns that cannot be carried through are named", () => {
  const columns = [...numbers, column("tags", "MAP(VARCHAR, INTEGER)", undefined), typed("first name", "utf8")];
  const found = propose({ columns });
  expect([found.columns, found.notes.at(-1)]).toEqual([[], "not carried through: tags, first name"]);
});
