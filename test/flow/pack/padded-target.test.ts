import * as fc from "fast-check";
import { describe, expect, test } from "vitest";
import type { InputBinding, PaddedBinding } from "#src/models/binding/contract.js";
import { blankInputs, createPacker, sliceBatch } from "#src/flow/pack/packer.js";
import { numericTensorTypes, tensorElement } from "#src/columns/tensor.js";
import { allocate } from "#src/columns/values.js";
import { dataOf, emptyContract, listColumn, pack, ref } from "../../support/batches.js";

const ids: PaddedBinding = {
  kind: "padded",
  input: "input_ids",
  dtype: "int64",
  width: 4,
  column: ref("tokens", { kind: "list", element: "int32" }),
  value: 0,
  side: "right",
  truncate: false,
  shrink: false,
};
const maskOf = (dtype: PaddedBinding["dtype"] = "int64"): InputBinding => ({
  kind: "mask",
  input: "attention_mask",
  dtype,
  of: "input_ids",
});

type Lists = readonly (readonly (number | null)[] | null)[];

function packLists(binding: PaddedBinding, lists: Lists, { mask = maskOf(), ...options }: PackOptions = {}) {
  const element = binding.dtype === "float16" ? "float64" : tensorElement(binding.dtype);
  const contract = { inputs: [mask, binding], fixedBatchRows: options.fixed ?? null, missing: options.missing };
  const { missing = "bad_row", ...rest } = contract;
  const rows = lists.length;
  const { batches, faults } = pack({ ...rest, missing }, [listColumn(element, lists)], { rows, batchRows: 3 });
  const rowsOf = (input: number): number[][] =>
    batches.flatMap(({ inputs }) => {
      const { dims = [] } = inputs[input] ?? {};
      const values = dataOf(inputs[input]).map(Number);
      return Array.from({ length: dims[0] ?? 0 }, (_, row) => values.slice(row * (dims[1] ?? 0)).slice(0, dims[1]));
    });
  return { batches, faults, masks: rowsOf(0), tokens: rowsOf(1) };
}

interface PackOptions {
  readonly mask?: InputBinding;
  readonly fixed?: number;
  readonly missing?: "bad_row" | "nan";
}

test("lists of any length are padded on the right, and the mask marks their elements", () => {
  const { tokens, masks, batches, faults } = packLists(ids, [[7], [1, 2, 3, 4], [], [5, 6]]);
  expect(tokens).toEqual([
    [7, 0, 0, 0],
    [1, 2, 3, 4],
    [0, 0, 0, 0],
    [5, 6, 0, 0],
  ]);
  expect(masks).toEqual([
    [1, 0, 0, 0],
    [1, 1, 1, 1],
    [0, 0, 0, 0],
    [1, 1, 0, 0],
  ]);
  expect(faults).toEqual([]);
  expect(batches.map(({ inputs }) => inputs.map(({ name, dims }) => [name, dims]))).toEqual(
    [3, 1].map((rows) => [
      ["attention_mask", [rows, 4]],
      ["input_ids", [rows, 4]],
    ]),
  );
});

test("lists of any length are padded on the left with another value", () => {
  const { tokens, masks } = packLists({ ...ids, side: "left", value: -100 }, [[7], [1, 2, 3, 4], [], [5, 6]]);
  expect(tokens).toEqual([
    [-100, -100, -100, 7],
    [1, 2, 3, 4],
    [-100, -100, -100, -100],
    [-100, -100, 5, 6],
  ]);
  expect(masks).toEqual([
    [0, 0, 0, 1],
    [1, 1, 1, 1],
    [0, 0, 0, 0],
    [0, 0, 1, 1],
  ]);
});

test.each(numericTensorTypes)("lists of any length and their mask have the input's type %s", (dtype) => {
  const given = { ...ids, dtype, value: 1, width: 3 };
  const { batches } = packLists(given, [[0], [1, 0]], { mask: maskOf(dtype) });
  const one = dtype === "float16" ? 0x3c00 : 1;
  const [mask, tokens] = batches[0]?.inputs ?? [];
  expect(tokens?.data.constructor).toBe(allocate(tensorElement(dtype), 0).constructor);
  expect([mask?.dtype, tokens?.dtype]).toEqual([dtype, dtype]);
  expect(dataOf(tokens).map(Number)).toEqual([0, one, one, one, 0, one]);
  expect(dataOf(mask).map(Number)).toEqual([one, 0, 0, one, one, 0]);
});

test("lists that are too long keep their first elements with truncate", () => {
  for (const side of ["left", "right"] as const) {
    const { tokens, masks, faults } = packLists({ ...ids, truncate: true, side }, [[1, 2, 3, 4, 5, null]]);
    expect({ tokens, masks, faults }).toEqual({ tokens: [[1, 2, 3, 4]], masks: [[1, 1, 1, 1]], faults: [] });
  }
});

test("lists of any length in a fixed batch are followed by rows of zeros, which the mask leaves out", () => {
  const { tokens, masks } = packLists({ ...ids, value: 9 }, [[1]], { fixed: 2 });
  expect(tokens).toEqual([
    [1, 9, 9, 9],
    [0, 0, 0, 0],
  ]);
  expect(masks[1]).toEqual([0, 0, 0, 0]);
});

test("numbers where lists are due are reported as a bug", () => {
  const numbers = { kind: "matrix", width: 4, data: new Float32Array(4), valid: undefined } as const;
  expect(() => pack({ inputs: [ids] }, [numbers], { rows: 1 })).toThrow("input input_ids takes lists");
});

test("bad lists are reported once, and scored on zeros that the mask leaves out", () => {
  const lists = [[1], null, [1, 2, 3, 4, 5], [1, null], [2]];
  const { tokens, masks, faults } = packLists({ ...ids, value: 9 }, lists);
  expect(tokens[0]).toEqual([1, 9, 9, 9]);
  expect(tokens.slice(1, 4)).toEqual([0, 1, 2].map(() => [0, 0, 0, 0]));
  expect(masks.slice(1, 3)).toEqual([0, 1].map(() => [0, 0, 0, 0]));
  expect(faults).toEqual([
    { reason: "missing", column: "tokens", row: 101, value: undefined },
    { reason: "too_long", column: "tokens", row: 102, value: "5 elements" },
    { reason: "missing", column: "tokens", row: 103, value: undefined },
  ]);
});

test.each(["float32", "float64", "float16"] as const)(
  "lists that cannot be scored of %s are those with NaN or infinity",
  (dtype) => {
    const floats = { ...ids, dtype };
    const lists = [[1], [2, Number.NaN], [Number.POSITIVE_INFINITY], [Number.NaN, null]];
    const strict = packLists(floats, lists);
    expect(strict.faults.map(({ row, reason }) => [row, reason])).toEqual([
      [101, "not_finite"],
      [102, "not_finite"],
      [103, "missing"],
    ]);
    const lenient = packLists(floats, lists, { missing: "nan" });
    expect(lenient.faults.map(({ row }) => row)).toEqual([102, 103]);
  },
);

test("lists with bad values under a NULL, or after the end of a truncated list, can be scored", () => {
  const lists = [[1, 2, 3, 4, Number.NaN], null, [3]];
  const { faults } = packLists({ ...ids, dtype: "float32", truncate: true }, lists);
  expect(faults.map(({ row }) => row)).toEqual([101]);
});

describe("batches that shrink", () => {
  const given = { ...ids, width: 6, shrink: true };

  test.each(["left", "right"] as const)(
    "batches that shrink are as wide as their longest list, padded on the %s",
    (side) => {
      const { batches, tokens, masks } = packLists({ ...given, side, value: 9 }, [[1], [2, 3], [], [4, 5, 6, 7]]);
      expect(batches.map(({ inputs }) => inputs.map(({ dims }) => dims))).toEqual([
        [
          [3, 2],
          [3, 2],
        ],
        [
          [1, 4],
          [1, 4],
        ],
      ]);
      expect(tokens).toEqual([side === "left" ? [9, 1] : [1, 9], [2, 3], [9, 9], [4, 5, 6, 7]]);
      expect(masks).toEqual([side === "left" ? [0, 1] : [1, 0], [1, 1], [0, 0], [1, 1, 1, 1]]);
    },
  );

  test("batches that shrink are never without elements", () => {
    const { tokens, masks } = packLists(given, [[], []]);
    expect({ tokens, masks }).toEqual({ tokens: [[0], [0]], masks: [[0], [0]] });
  });

  test("inputs shrink to one width where they are padded to the same number, and each to its own where not", () => {
    const types = { ...given, input: "types", column: ref("types") };
    const other = { ...given, input: "other", column: ref("other"), width: 9 };
    const columns = [[[1, 2]], [[1, 2, 3]], [[1]]].map((lists) => listColumn("int64", lists));
    const { batches } = pack({ inputs: [given, types, other] }, columns, { rows: 1 });
    expect(batches[0]?.inputs.map(({ dims }) => dims)).toEqual([
      [1, 3],
      [1, 3],
      [1, 1],
    ]);
  });

  test("fill fixed batches up with rows as wide as the others", () => {
    const { tokens } = packLists({ ...given, value: 9 }, [[1], [2, 3]], { fixed: 3 });
    expect(tokens).toEqual([
      [1, 9],
      [2, 3],
      [0, 0],
    ]);
  });
});

test("batches are the same however rows are cut, out of buffers that are used again", () => {
  const contract = { ...emptyContract, inputs: [maskOf("float32"), { ...ids, truncate: true, value: 5 }] };
  const lists = fc.array(fc.oneof(fc.constant(null), fc.array(fc.integer({ min: 0, max: 9 }), { maxLength: 7 })));
  fc.assert(
    fc.property(lists, fc.array(fc.nat(5)), fc.integer({ min: 1, max: 5 }), (rows, cuts, batchRows) => {
      const packer = createPacker({ contract, batchRows: () => batchRows, onFault() {} });
      const found: { ids: number[]; mask: number[] }[] = [];
      const take = (batch: ReturnType<typeof packer.flush>): void => {
        if (batch !== undefined) {
          const [mask = [], tokens = []] = batch.inputs.map((input) => dataOf(input).map(Number));
          found.push({ ids: tokens, mask });
          packer.recycle(batch.inputs);
        }
      };
      const record = { rowCount: rows.length, inputs: [listColumn("int64", rows)], carried: [] };
      let at = 0;
      for (const cut of [...cuts, rows.length]) {
        const to = Math.min(rows.length, at + cut);
        for (const batch of packer.push(record, { from: at, to, row: at })) {
          take(batch);
        }
        at = to;
      }
      take(packer.flush());
      const expected = rows.map((list) => (list === null ? [0, 0, 0, 0] : [...list, 5, 5, 5, 5].slice(0, 4)));
      const masks = rows.map((list) => Array.from({ length: 4 }, (_, index) => (index < (list?.length ?? 0) ? 1 : 0)));
      expect(found.flatMap((batch) => batch.ids)).toEqual(expected.flat());
      expect(found.flatMap((batch) => batch.mask)).toEqual(masks.flat());
    }),
  );
});

test("a slice of a batch, and a blank one, have masks as they have tokens", () => {
  const { batches } = packLists(ids, [[1], [2, 3]]);
  const [batch] = batches;
  if (batch === undefined) {
    throw new Error("a batch was due");
  }
  const half = sliceBatch(batch, batch.inputs, { from: 1, to: 2, fixedBatchRows: null });
  expect(half.inputs.map((input) => dataOf(input).map(Number))).toEqual([
    [1, 1, 0, 0],
    [2, 3, 0, 0],
  ]);
  const blank = blankInputs({ ...emptyContract, inputs: [{ ...ids, shrink: true }, maskOf("bool")] }, 2);
  expect(blank.map(({ dims }) => dims)).toEqual([
    [2, 4],
    [2, 4],
  ]);
});
