import { describe, expect, test } from "vitest";
import { encodeTexts, type NamedTensor, type Tensor, type Tokenizing } from "#src/columns/tensor.js";
import type { EngineRequest } from "#src/models/engine.js";
import { type Encode, groupByLength, withTokens } from "#src/models/tokens.js";

const encodeCharacters: Encode = (texts, { width }) =>
  Promise.resolve(
    texts.map((text) => {
      const ids = Array.from(text.slice(0, width), (character) => character.charCodeAt(0));
      return { ids, types: ids.map((_, index) => index % 2) };
    }),
  );

const tokens: Tokenizing = {
  tokenizer: "abc",
  dtype: "int64",
  width: 8,
  cut: "right",
  value: 9,
  side: "right",
  shrink: true,
  sorted: false,
  masks: [{ input: "mask", dtype: "float32" }],
  types: [{ input: "types", dtype: "int32" }],
};

const textsTensor = (texts: readonly string[], how: Partial<Tokenizing> = {}): NamedTensor => ({
  name: "ids",
  dtype: "string",
  dims: [texts.length],
  data: encodeTexts(texts),
  tokens: { ...tokens, ...how },
});

async function runOn(
  inputs: readonly NamedTensor[],
  answer: (request: EngineRequest) => Tensor[] = () => [],
): Promise<{ readonly calls: EngineRequest[]; readonly outputs: readonly Tensor[] }> {
  const calls: EngineRequest[] = [];
  const run = withTokens(
    (request) => {
      calls.push(request);
      return Promise.resolve({ outputs: answer(request), ms: 1 });
    },
    new Map([["abc", encodeCharacters]]),
    () => 0,
  );
  const { outputs } = await run({ inputs, outputs: ["sum"] });
  return { calls, outputs };
}

const plain = ({ inputs }: EngineRequest): Record<string, unknown> =>
  Object.fromEntries(
    inputs.map((tensor) => [
      tensor.name,
      {
        dims: tensor.dims,
        data: tensor.dtype === "string" ? [] : Array.from(tensor.data as ArrayLike<number>, Number),
      },
    ]),
  );

const sums = ({ inputs: [ids, , , other] }: EngineRequest): Tensor[] => {
  const [rows = 0, width = 0] = ids?.dims ?? [];
  const data = Float32Array.from({ length: rows * 2 }, (_, at) => {
    const row = Math.floor(at / 2);
    const values = (ids as { data: BigInt64Array }).data.subarray(row * width, (row + 1) * width);
    const mine = (other as { data: Float32Array }).data[row] ?? 0;
    return at % 2 === 0 ? Number(values.reduce((sum, value) => sum + value, 0n)) : mine;
  });
  return [{ dtype: "float32", dims: [rows, 2], data }];
};

const widths = ({ inputs: [ids] }: EngineRequest): Tensor[] => {
  const dims = ids?.dims ?? [];
  return [{ dtype: "float32", dims, data: new Float32Array((dims[0] ?? 0) * (dims[1] ?? 0)) }];
};

describe("texts of a batch", () => {
  test("texts of a batch become ids, mask and types as wide as the longest text", async () => {
    const { calls } = await runOn([textsTensor(["ab", "", "c"])]);
    expect(calls.map(plain)).toEqual([
      {
        ids: { dims: [3, 2], data: [97, 98, 9, 9, 99, 9] },
        mask: { dims: [3, 2], data: [1, 1, 0, 0, 1, 0] },
        types: { dims: [3, 2], data: [0, 1, 0, 0, 0, 0] },
      },
    ]);
  });

  test("texts of a batch are padded on the left if the tokenizer does so, and to the full width without shrink", async () => {
    const { calls } = await runOn([textsTensor(["ab"], { side: "left", shrink: false, width: 4 })]);
    expect(calls.map(plain)).toMatchObject([
      { ids: { dims: [1, 4], data: [9, 9, 97, 98] }, mask: { data: [0, 0, 1, 1] }, types: { data: [0, 0, 0, 1] } },
    ]);
  });

  test("texts of a batch that are all empty have a width of one token", async () => {
    const { calls } = await runOn([textsTensor(["", ""])]);
    expect(plain(calls[0] as EngineRequest)).toMatchObject({ ids: { dims: [2, 1], data: [9, 9] } });
  });

  test("texts of a batch are scored in groups of similar lengths, with outputs in the order of the rows", async () => {
    const texts = Array.from({ length: 400 }, (_, index) => "a".repeat((index * 37) % 200));
    const other: NamedTensor = { name: "other", dtype: "float32", dims: [400], data: Float32Array.from(texts.keys()) };
    const inputs = [textsTensor(texts, { sorted: true, width: 256, value: 0 }), other];
    const { calls, outputs } = await runOn(inputs, sums);
    const [output] = outputs;
    expect(calls.length).toBeGreaterThan(4);
    expect(output?.dims).toEqual([400, 2]);
    expect(Array.from((output as { data: Float32Array }).data)).toEqual(
      texts.flatMap((text, index) => [text.length * 97, index]),
    );
  });

  test("texts of a batch that fit in one group are scored at once, with outputs in the order of the rows", async () => {
    const other: NamedTensor = { name: "other", dtype: "float32", dims: [3], data: Float32Array.of(5, 6, 7) };
    const { calls, outputs } = await runOn([textsTensor(["a", "abc", "ab"], { sorted: true, value: 0 }), other], sums);
    expect(calls).toHaveLength(1);
    expect(Array.from((outputs[0] as { data: Float32Array }).data)).toEqual([97, 5, 97 + 98 + 99, 6, 97 + 98, 7]);
    const one: Tensor = { dtype: "float32", dims: [1], data: Float32Array.of(8) };
    expect((await runOn([textsTensor(["a", "abc"], { sorted: true })], () => [one])).outputs).toEqual([one]);
  });

  test("texts of a batch end with an error if the output is as wide as the group", async () => {
    const texts = Array.from({ length: 400 }, (_, index) => "a".repeat(index % 200));
    await expect(runOn([textsTensor(texts, { sorted: true, width: 256 })], widths)).rejects.toThrow(
      "write shrink: false",
    );
  });
});

test("groups of rows have each row once, with little padding", () => {
  const lengths = Array.from({ length: 1000 }, (_, index) => (index * 7919) % 250);
  const groups = groupByLength(lengths);
  expect(groups.flatMap(({ rows }) => [...rows]).toSorted((one, other) => one - other)).toEqual([...lengths.keys()]);
  const padded = groups.reduce((sum, { rows, width }) => sum + rows.length * width, 0);
  expect(padded).toBeLessThan(1.1 * lengths.reduce((sum, length) => sum + length, 0));
});
