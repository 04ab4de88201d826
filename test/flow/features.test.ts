import * as fc from "fast-check";
import { expect, test } from "vitest";
import type { DecodedInput } from "#src/columns/types.js";
import { mergeProfiles, parseProfile, profileText } from "#src/checks/profile/profile.js";
import type { ColumnProfile } from "#src/checks/profile/column.js";
import { createFeatureRows, measureFeatures } from "#src/checks/profile/features.js";
import { rowState, selectRows } from "#src/flow/pack/select-rows.js";
import { batchFeatures, featurePlanOf, keyColumns } from "#src/flow/features.js";
import { emptyContract, matrixBinding, ref, textColumn } from "../support/batches.js";
import {
  loopFeatures,
  type LoopMode,
  type LoopRow,
  loopRows,
  type LoopWay,
  loopWays,
  scoreLoop,
} from "../support/loop.js";

const modes = fc.constantFrom<LoopMode>("plain", "beside");
const goodRows = fc.array(
  fc.record({
    x: fc.integer({ min: 0, max: 6 }),
    list: fc.constantFrom([], [0], [3, 0]),
    state: fc.constant(rowState.kept),
  }),
  { maxLength: 80 },
);
const anyRows: fc.Arbitrary<LoopRow[]> = fc.oneof(loopRows, goodRows);
const attempt = fc.record({ mode: modes, way: loopWays });

async function profilesOf(rows: readonly LoopRow[], mode: LoopMode, way: LoopWay, every: number): Promise<string[]> {
  return (await scoreLoop(rows, mode, way, loopFeatures(way, every))).profiles;
}

function featuresOf(spans: readonly string[]): readonly (readonly [string, ColumnProfile])[] {
  const merged = spans.map((text) => parseProfile(text)).reduce(mergeProfiles);
  const { features } = parseProfile(profileText(merged));
  return [...(features ?? [])];
}

function row(x: number | null, state: number = rowState.kept): LoopRow {
  return { x, list: [0], state };
}

test("profiles of features do not depend on how rows are read, batched, filtered, rejected, repeated, spilled and divided into spans", async () => {
  let beside = 0;
  await fc.assert(
    fc.asyncProperty(anyRows, attempt, attempt, fc.integer({ min: 1, max: 4 }), async (rows, one, other, every) => {
      fc.pre(rows.length > 0);
      const first = await profilesOf(rows, one.mode, one.way, every);
      const second = await profilesOf(rows, other.mode, other.way, every);
      expect(featuresOf(first)).toEqual(featuresOf(second));
      expect(featuresOf(first.toReversed())).toEqual(featuresOf(first));
      beside += one.mode === "beside" ? 1 : 0;
    }),
    { numRuns: 80 },
  );
  expect(beside).toBeGreaterThan(10);
});

test("profiles of features of a run that many killed attempts made are those of one attempt", async () => {
  await fc.assert(
    fc.asyncProperty(
      anyRows,
      attempt,
      fc.array(attempt, { minLength: 1, maxLength: 3 }),
      fc.array(fc.nat(2), { minLength: 80, maxLength: 80 }),
      async (rows, one, others, makers) => {
        fc.pre(rows.length > 0);
        const whole = await profilesOf(rows, one.mode, one.way, 3);
        const attempts: string[][] = [];
        for (const { mode, way } of others) {
          attempts.push(await profilesOf(rows, mode, { ...way, spanRows: one.way.spanRows }, 3));
        }
        // Each span is that of the attempt which committed it.
        const stored = whole.map((_, span) => attempts[(makers[span] ?? 0) % attempts.length]?.[span] ?? "");
        expect(stored.map((text) => featuresOf([text]))).toEqual(whole.map((text) => featuresOf([text])));
        expect(featuresOf(stored.toReversed())).toEqual(featuresOf(whole));
      },
    ),
    { numRuns: 40 },
  );
});

test("profiles of features count rejected rows, and leave filtered rows out", async () => {
  const rows = [row(1), row(null), row(7), row(5, rowState.filtered), row(2), row(Number.POSITIVE_INFINITY)];
  const way = { batchRows: 2, fixedBatchRows: null, spanRows: 4, cut: 3, pieceBytes: 1e6, seed: 1 };
  for (const mode of ["plain", "beside"] as const) {
    const [[, x] = []] = featuresOf(await profilesOf(rows, mode, way, 1));
    expect(x).toMatchObject({ kind: "numbers", rows: 5, nulls: 1, nan: 0, infinite: [0, 1], min: 1, max: 7 });
  }
});

test("profiles of features are not made without checks", async () => {
  const way = { batchRows: 2, fixedBatchRows: null, spanRows: 4, cut: 3, pieceBytes: 1e6, seed: 1 };
  const { profiles } = await scoreLoop([{ x: 1, list: [0], state: rowState.kept }], "plain", way);
  expect(profiles.map((text) => parseProfile(text).features)).toEqual([undefined]);
  const run = { checks: null, contract: emptyContract, input: { rows: 1 }, commitRows: 1 };
  expect(featurePlanOf(run, new Set())).toBeUndefined();
});

test("the profile of a key column has only its rows and its NULLs", () => {
  const contract = {
    ...emptyContract,
    inputs: [matrixBinding(["user.id", "age"])],
    passthrough: [{ column: "user_id", source: ref("user.id", "int64") }],
  };
  const run = { checks: { baseline: [] }, contract, input: { rows: 1 }, commitRows: 1 };
  const keysOf = (checks: object | undefined, output: object): (true | undefined)[] | undefined =>
    featurePlanOf(run, keyColumns({ checks, output } as never))?.columns.map(({ isKey }) => isKey);
  expect(keysOf({ unique: ["user_id"] }, {})).toEqual([true, undefined]);
  expect(keysOf(undefined, { postgres: { key: ["user_id"] } })).toEqual([true, undefined]);
  expect(keysOf({}, { postgres: { key: [] } })).toEqual([undefined, undefined]);
});

test("a number and a text that are keys are counted, and their values are in no profile", () => {
  const about = { kind: "number", type: "float32", input: 0, isKey: true } as const;
  const columns = [
    { ...about, name: "id", place: 0 },
    { ...about, name: "code", kind: "text", type: "utf8", input: 1, place: 0 },
  ] as const;
  const plan = { columns, left: [], spanRows: 9, every: 1, bins: 9 };
  const data = Float32Array.of(1, 2, 3);
  const ids = { kind: "matrix", type: "float32", width: 1, data, valid: Uint8Array.of(1, 0, 1) } as const;
  const rows = createFeatureRows(plan);
  rows.add(measureFeatures(plan, [ids, textColumn(["a", "b", "c"])], { from: 0, to: 3, firstRow: 0 }));
  expect([...rows.finish()]).toEqual([
    ["id", { kind: "rows", type: "float32", rows: 3, nulls: 1 }],
    ["code", { kind: "rows", type: "utf8", rows: 3, nulls: 0 }],
  ]);
});

test("each column of a matrix has its own values, over several parts of which some have NULLs", () => {
  const about = { kind: "number", type: "float32", input: 0 } as const;
  const columns = [
    { ...about, name: "age", place: 0 },
    { ...about, name: "fee", place: 1 },
  ];
  const plan = { columns, left: [], spanRows: 9, every: 1, bins: 9 };
  const rows = createFeatureRows(plan);
  const add = (data: Float32Array<ArrayBuffer>, valid: Uint8Array | undefined): void => {
    const matrix = { kind: "matrix", width: 2, data, valid } as const;
    rows.add(measureFeatures(plan, [matrix], { from: 0, to: 2, firstRow: 0 }));
  };
  add(Float32Array.of(1, 10, 2, 20), undefined);
  add(Float32Array.of(3, 30, 4, Number.NaN), Uint8Array.of(1, 1, 1, 0));

  const { age, fee } = Object.fromEntries(rows.finish());
  expect(age).toMatchObject({ rows: 4, nulls: 0, min: 1, max: 4, sum: [10, 0] });
  expect(fee).toMatchObject({ rows: 4, nulls: 1, nan: 0, min: 10, max: 30, sum: [60, 0] });
});

test("the features of a batch without removed rows are measured span by span", () => {
  const columns = [{ name: "x", kind: "number", type: "float32", input: 0, place: 0 }] as const;
  const plan = { columns, left: [], spanRows: 5, every: 1, bins: 9 };
  const contract = { ...emptyContract, inputs: [matrixBinding(["x"])] };
  fc.assert(
    fc.property(
      fc.array(fc.boolean(), { minLength: 1, maxLength: 30 }),
      fc.nat(20),
      fc.nat(20),
      (isRemoved, firstRow, rowStart) => {
        const data = Float32Array.from(isRemoved, (_, index) => firstRow + rowStart + index);
        const matrix = { kind: "matrix", width: 1, data, valid: undefined } as const;
        const whole = { rowCount: data.length, inputs: [matrix], carried: [] };
        const states = Uint16Array.from(isRemoved, (gone) => (gone ? rowState.filtered : rowState.kept));
        const parts = batchFeatures({ plan, firstRow }, selectRows(whole, states, contract), rowStart);

        const spans = parts.map(({ inputs }) => new Set(dataOf(inputs).map((value) => Math.floor(value / 5))));
        const [measured, all] = [
          parts.flatMap(({ inputs }) => Array.from(dataOf(inputs))),
          new Set(spans.flatMap((each) => Array.from(each))),
        ];
        expect(spans.every((each) => each.size === 1)).toBe(true);
        expect(all.size).toBe(spans.length);
        expect(measured).toEqual([...data].filter((_, index) => isRemoved[index] !== true));
      },
    ),
  );
});

function dataOf([input]: readonly DecodedInput[]): Float32Array {
  return input?.kind === "matrix" ? (input.data as Float32Array) : expect.fail();
}
