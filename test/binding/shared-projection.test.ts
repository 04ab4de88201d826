import { describe, expect, test } from "vitest";
import { shareProjection, withUsedExpressions } from "#src/binding/shared-projection.js";
import { type Contract, decodedInputs } from "#src/binding/contract.js";

const ref = (name: string, computed?: true) => ({ name, path: [name], type: "float32" as const, computed });

const contractOf = (columns: readonly string[], overrides: Partial<Contract> = {}): Contract => ({
  inputs: [{ kind: "matrix", input: "x", dtype: "float32", rank: 2, columns: columns.map((name) => ref(name)) }],
  outputs: [{ kind: "scalar", column: "score", tensor: "y", type: "float32" }],
  passthrough: [],
  fixedBatchRows: null,
  expressions: null,
  cast: "exact",
  missing: "bad_row",
  ...overrides,
});

const expression = (name: string) => ({ kind: "column" as const, name, text: `${name} + 1`, uses: ["a"] });
const filter = { kind: "where" as const, name: "input.where", text: "a > 0", uses: ["a"] };

describe("what is read for a champion and its challenger", () => {
  test("an input that both models have is read once", () => {
    const { projection, places } = shareProjection(contractOf(["a", "b"]), contractOf(["a", "b"]));
    expect([decodedInputs(projection).length, places]).toEqual([1, [0]]);
  });

  test("inputs of the challenger that differ in their columns, or in how numbers are cast, come after the champion's", () => {
    const champion = contractOf(["a", "b"]);
    for (const challenger of [
      contractOf(["b", "a"]),
      contractOf(["a", "b"], { missing: "nan" }),
      contractOf(["a", "b"], { cast: "lossy" }),
    ]) {
      const { projection, places } = shareProjection(champion, challenger);
      const rules = { cast: challenger.cast, missing: challenger.missing };
      expect(projection.inputs).toEqual([...champion.inputs, { ...challenger.inputs[0], rules }]);
      expect(places).toEqual([1]);
    }
  });

  test("two inputs of the challenger that read the same columns are sent once", () => {
    const input = contractOf(["b"]).inputs[0] as Contract["inputs"][number];
    const challenger = contractOf([], { inputs: [input, { ...input, input: "z" }] });
    const { places, sent } = shareProjection(contractOf(["a"]), challenger);
    expect([places, sent]).toEqual([[1, 1], [1]]);
  });

  test("expressions of the champion come first, so that their numbers stay, and the row filter comes once", () => {
    const champion = contractOf(["a"], { expressions: { list: [filter, expression("c")], folders: [] } });
    const challenger = contractOf(["a"], { expressions: { list: [filter, expression("d")], folders: [] } });
    const { expressions } = shareProjection(champion, challenger).projection;
    expect(expressions?.list.map(({ name }) => name)).toEqual(["input.where", "c", "d"]);
    expect(shareProjection(contractOf(["a"]), challenger).projection.expressions?.list).toHaveLength(2);
  });

  test("a contract keeps the row filter and the computed columns that it uses, and no other model's", () => {
    const expressions = { list: [filter, expression("c"), expression("d")], folders: [ref("a"), ref("day")] };
    const [input] = contractOf([]).inputs;
    const inputs = [{ ...input, columns: [ref("d", true)] }] as Contract["inputs"];
    const used = withUsedExpressions(contractOf([], { inputs, expressions })).expressions;
    expect([used?.list.map(({ name }) => name), used?.folders]).toEqual([["input.where", "d"], [ref("a")]]);
    const unused = withUsedExpressions(contractOf(["a"], { expressions: { list: [expression("c")], folders: [] } }));
    expect(unused.expressions).toBeNull();
  });
});
