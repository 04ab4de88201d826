import { describe, expect, test } from "vitest";
import type { Contract } from "#src/models/binding/contract.js";
import type { ContractRequest } from "#src/models/binding/bind-contract.js";
import type { InputSource, PadSpec } from "#src/job/jobfile/model-spec.js";
import { bind, list, refused, tensor, typed, withInputs } from "../../support/contracts.js";

const defaults: PadSpec = { value: 0, side: "right", truncate: false, shrink: false };
const padded = (pad: Partial<PadSpec> = {}, column = "tokens"): InputSource => ({
  column,
  pad: { ...defaults, ...pad },
});
const mask: InputSource = { mask_of: "ids" };
const columns = [
  typed("id", "int64"),
  typed("tokens", list("int32")),
  typed("mask", list("int8")),
  typed("nested", list(list("int32"))),
  typed("words", list("utf8")),
];
const free = [tensor("mask", "int64", null, null), tensor("ids", "int64", null, null)];
const fixed = [tensor("mask", "float32", null, 8), tensor("ids", "int64", null, 8)];

const given = (overrides: Partial<ContractRequest>): Partial<ContractRequest> => ({
  columns,
  ...withInputs(...free),
  ...overrides,
});
const bindThese = (overrides: Partial<ContractRequest>): Contract => bind(given(overrides));

describe("a padded list", () => {
  test("a padded list is as wide as the spec or the model says, and its mask may come before it", () => {
    expect(bindThese({ inputs: { ids: padded({ to: 16, side: "left", value: 3 }), mask } }).inputs).toEqual([
      { kind: "mask", input: "mask", dtype: "int64", of: "ids" },
      {
        kind: "padded",
        input: "ids",
        dtype: "int64",
        width: 16,
        column: { name: "tokens", path: ["tokens"], type: list("int32") },
        ...defaults,
        side: "left",
        value: 3,
      },
    ]);
    for (const pad of [{}, { to: 8 }]) {
      expect(bindThese({ ...withInputs(...fixed), inputs: { ids: padded(pad), mask } }).inputs).toMatchObject([
        { kind: "mask", dtype: "float32" },
        { kind: "padded", width: 8 },
      ]);
    }
  });

  test("a padded list may itself be the mask, or a field of a struct", () => {
    const s = typed("s", { kind: "struct", fields: [{ name: "t", type: list("int32") }] });
    const inputs = { ids: padded({ to: 4 }, "s.t"), mask: padded({ to: 4 }, "mask") };
    expect(bindThese({ columns: [...columns, s], inputs }).inputs).toMatchObject([
      { kind: "padded", column: { name: "mask" } },
      { kind: "padded", column: { path: ["s", "t"] } },
    ]);
  });

  test("a padded list that shrinks is refused if an output may be as wide as the batch", () => {
    const y = tensor("y", "float32", null, null);
    const signature = { inputs: free, outputs: [y] };
    for (const outputs of [undefined, { first: "y[0]" }]) {
      const shrinking = { columns, signature, outputs, inputs: { ids: padded({ to: 8, shrink: true }), mask } };
      expect(refused(shrinking)).toContain(
        "with shrink, the prediction of a row would depend on the other rows of its batch",
      );
      expect(bind({ ...shrinking, inputs: { ids: padded({ to: 8 }), mask } }).outputs).toHaveLength(1);
    }
  });

  test.each([
    ["int8", [-128, 127], [-129, 128]],
    ["uint8", [0, 255], [-1, 256]],
    ["int64", [-100, 2 ** 52], [2 ** 63]],
    ["uint64", [0], [-1]],
    ["bool", [0, 1], [2, -1]],
    ["float16", [65504, 0.5], [65520]],
    ["float32", [-1e38, 0.1], [1e39]],
    ["float64", [1e300], []],
  ])("a padded list of %s accepts only pad values that this type can hold", (dtype, fitting, others) => {
    const request = (value: number): Partial<ContractRequest> =>
      given({ ...withInputs(tensor("ids", dtype, null, null)), inputs: { ids: padded({ to: 8, value }) } });
    for (const value of fitting) {
      expect(bind(request(value)).inputs).toMatchObject([{ value }]);
    }
    for (const value of others) {
      expect(refused(request(value))).toContain(`pads with ${value}, which ${dtype} cannot hold`);
    }
  });
});
