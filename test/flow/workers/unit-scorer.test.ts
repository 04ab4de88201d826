import type { Contract, InputBinding } from "#src/models/binding/contract.js";
import type { NamedTensor } from "#src/columns/tensor.js";
import type { DecodedInput, RecordBatch } from "#src/columns/types.js";
import {
  type HashTable,
  addStored,
  createKeyHasher,
  createStoredTable,
  noPlace,
} from "#src/flow/pack/feature-hasher.js";
import { scorer } from "#src/flow/workers/unit-server.js";
import { describe, expect, test } from "vitest";
import { emptyContract } from "../../support/batches.js";

const list = {
  kind: "list",
  input: "x",
  dtype: "float32",
  width: 2,
  column: { name: "e", path: ["e"], type: "float32" },
} as const;
const columns = ["a", "b"].map((name) => ({ name, path: [name], type: "float32" as const }));
const matrix = { kind: "matrix", input: "x", dtype: "float32", rank: 2, columns } as const;

/** Three rows that begin two elements into their buffer, as those of a record batch do. */
function rowsOf(...values: number[]): DecodedInput {
  const data = Float32Array.of(-1, -1, ...values).subarray(2);
  return { kind: "matrix", width: 2, data, valid: undefined };
}

/** `seen`: its values when the model was called; their memory may have been used again. */
type Given = NamedTensor & { readonly seen: readonly number[] };

async function score(
  binding: InputBinding,
  input: DecodedInput,
  { rows = 2, fixedBatchRows = null }: { rows?: number; fixedBatchRows?: number | null } = {},
): Promise<{ given: Given[]; scored: readonly number[] | undefined }> {
  const given: Given[] = [];
  const contract = { ...emptyContract, inputs: [binding], fixedBatchRows };
  const run = scorer({ contract, tensors: [] }, ({ inputs }) => {
    given.push(...inputs.map((tensor) => ({ ...tensor, seen: [...(tensor.data as Float32Array)] })));
    return Promise.resolve({ outputs: [], ms: 0 });
  });
  const done = await run({ rowCount: 3, inputs: [input], carried: [] }, rows);
  return { given, scored: done?.predictions.map(({ rowCount }) => rowCount) };
}

describe.for([list, matrix])("rows of numbers, for an input of kind $kind", (binding) => {
  test("matrices in order are scored without a copy", async () => {
    const input = rowsOf(1, 2, 3, 4, 5, 6);
    const { given, scored } = await score(binding, input);
    expect(scored).toEqual([2, 1]);
    expect(given.map(({ dims }) => dims)).toEqual([
      [2, 2],
      [1, 2],
    ]);
    expect(given.map(({ seen }) => seen)).toEqual([
      [1, 2, 3, 4],
      [5, 6],
    ]);
    const { buffer } = (input as { data: Float32Array }).data;
    expect(given.map(({ data }) => (data as Float32Array).buffer === buffer)).toEqual([true, true]);
  });

  test("matrices are copied and padded if the model takes batches of one size", async () => {
    const { given, scored } = await score(binding, rowsOf(1, 2, 3, 4, 5, 6), { fixedBatchRows: 3 });
    expect(scored).toEqual([2, 1]);
    expect(given).toMatchObject([
      { dims: [3, 2], seen: [1, 2, 3, 4, 0, 0] },
      { dims: [3, 2], seen: [5, 6, 0, 0, 0, 0] },
    ]);
    const [first, second] = given.map(({ data }) => (data as Float32Array).buffer);
    expect(second).toBe(first); // the memory of the one before, which the model is done with
  });

  test.for([Number.NaN, Number.POSITIVE_INFINITY])("rows are not scored if one of them is %s", async (bad) => {
    expect((await score(binding, rowsOf(1, 2, 3, bad, 5, 6))).scored).toBeUndefined();
  });

  test("rows are not scored if one of them is NULL", async () => {
    const input = { ...rowsOf(1, 2, 3, 4, 5, 6), valid: Uint8Array.of(1, 1, 1, 0, 1, 1) } as DecodedInput;
    expect((await score(binding, input)).scored).toBeUndefined();
  });
});

const batchOf = (input: DecodedInput): RecordBatch => ({ rowCount: 3, inputs: [input], carried: [] });

describe("a batch that is not scored", () => {
  const contract = { ...emptyContract, inputs: [matrix], fixedBatchRows: null };
  const asked = { contract, tensors: [] };

  test("a batch that is not scored has no predictions where the model fails: the main thread finds the rows that it fails on", async () => {
    const run = scorer(asked, () => Promise.reject(new Error("the model refuses it")));
    expect(await run(batchOf(rowsOf(1, 2, 3, 4, 5, 6)), 2)).toBeUndefined();
  });

  test("the model gets only the hashed rows that take no stored prediction, side by side", async () => {
    const input = rowsOf(1, 2, 3, 4, 5, 6);
    const seeds = {
      features: Int32Array.of(1, 2, 3, 4),
      key: Int32Array.of(5, 6, 7, 8),
      predictions: new Int32Array(4),
    };
    const passthrough = [{ column: "id", source: { name: "id", path: ["id"], type: "int32" } }];
    const keyed = { ...asked.contract, passthrough, reuse: { key: ["id"] } } as unknown as Contract;
    const ids = { kind: "fixed", elementsPerValue: 1, data: Int32Array.of(7, 8, 9), valid: undefined } as const;
    const batch = { rowCount: 3, inputs: [input], carried: [ids] };
    const given: number[][] = [];
    const scoreWith = (table?: HashTable): ReturnType<ReturnType<typeof scorer>> =>
      scorer({ ...asked, contract: keyed, hashing: { seeds, table } }, ({ inputs }) => {
        given.push(...inputs.map(({ data }) => [...(data as Float32Array)]));
        return Promise.resolve({ outputs: [], ms: 0 });
      })(batch, 10);
    const first = await scoreWith();
    const table = createStoredTable(2);
    const hashes = first?.hashed?.hashes ?? new Int32Array();
    addStored(table, 0, {
      keys: createKeyHasher(seeds.key)([{ ...ids, data: Int32Array.of(8) }], 1),
      rows: hashes.subarray(4, 8),
    });

    const second = await scoreWith(table);

    expect([...(second?.hashed?.places ?? [])]).toEqual([noPlace, 0, noPlace]);
    expect(second?.hashed?.hashes).toEqual(hashes);
    expect(given).toEqual([
      [1, 2, 3, 4, 5, 6],
      [1, 2, 5, 6],
    ]);
  });

  test("a batch that is not scored is a defect where packing fails, before the model is called", async () => {
    let calls = 0;
    const run = scorer(asked, () => {
      calls += 1;
      return Promise.resolve({ outputs: [], ms: 0 });
    });
    const unfit = { kind: "matrix", width: 2, data: undefined, valid: Uint8Array.of(1) } as unknown as DecodedInput;
    await expect(run(batchOf(unfit), 2)).rejects.toThrow(TypeError);
    expect(calls).toBe(0);
  });

  test("a batch that is not scored is a defect where packing fails after the model has scored the rows before", async () => {
    const { data } = rowsOf(1, 2, 3, 4, 5, 6) as { data: Float32Array };
    const input = { kind: "matrix", width: 2, data, valid: Uint8Array.of(1, 1, 1, 1, 1, 1) } as unknown as DecodedInput;
    const run = scorer(asked, () => {
      Object.assign(input, { data: undefined });
      return Promise.resolve({ outputs: [], ms: 0 });
    });
    await expect(run(batchOf(input), 2)).rejects.toThrow(TypeError);
  });
});
