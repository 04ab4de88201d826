import * as fc from "fast-check";
import { describe, expect, test } from "vitest";
import { featureLimits, measuredOf } from "#src/checks/features/feature-limits.js";
import { measureFeatures } from "#src/checks/features/feature-part.js";
import { type FeatureColumn, type FeaturePlan } from "#src/checks/features/feature-plan.js";
import { createFeatureRows } from "#src/checks/features/feature-rows.js";
import { sampleRows } from "#src/checks/features/row-sample.js";
import { featureShare } from "#src/checks/output-limits.js";
import { type ColumnProfile, profileColumn, profileLimits } from "#src/checks/profiles/column-profile.js";
import { fitHistogram } from "#src/checks/profiles/histogram.js";
import { mean } from "#src/checks/profiles/number-profile.js";
import type { VectorLimits } from "#src/checks/profiles/vector-profile.js";
import { mergeSpanProfiles, profileRows, type SpanProfile } from "#src/checks/span-profile.js";
import type { DecodedInput, FixedColumn, Matrix } from "#src/columnar/types.js";
import { sliceColumn } from "#src/columnar/column-rows.js";
import { allocate, type ElementType, type Values } from "#src/columnar/values.js";
import { takeMemory } from "#src/columnar/memory/vectors.js";
import { listColumn, textColumn } from "../../support/batches.js";
import { randomOf } from "../../support/random.js";
import { parseWholeText, wholeProfileText } from "../../support/span-profiles.js";

const full = profileLimits(1);

type Draw = () => number;

/** Numbers that take each way: plain ones, such as are not finite, and such as differ too much to be added up at once. */
const kinds: Readonly<Record<string, (random: Draw) => number>> = {
  weights: (random) => 40 + 80 * random(),
  normal: (random) => Math.sqrt(-2 * Math.log(random() + 1e-9)) * Math.cos(6.28 * random()),
  few: (random) => Math.floor(random() * 3) - 1,
  missing: (random) => (random() < 0.3 ? Number.NaN : random()),
  infinite: (random) => (random() < 0.01 ? Number.POSITIVE_INFINITY : -random()),
  "all NaN": () => Number.NaN,
  zeros: (random) => (random() < 0.5 ? 0 : -0),
  tiny: (random) => 1e-42 * random(),
  "of 64 exponents": (random) => (1 + random()) * 2 ** -Math.floor(random() * 64),
  "of all sizes": (random) => (random() - 0.5) * 10 ** (random() * 76 - 38),
};
const names = Object.keys(kinds);

/** A matrix of as many columns as there are kinds of numbers; `nulls`: some are NULL. */
function matrixOf(
  rows: number,
  width: number,
  { random, element = "float32", nulls = false }: { random: Draw; element?: ElementType; nulls?: boolean },
): Matrix {
  const data = allocate(element, rows * width);
  for (let at = 0; at < data.length; at += 1) {
    const value = (kinds[names[(at % width) % names.length] as string] as (random: Draw) => number)(random);
    data[at] = (element === "int64" ? BigInt(Math.trunc(Number.isFinite(value) ? value : 7)) : value) as never;
  }
  const valid = nulls ? Uint8Array.from({ length: data.length }, () => (random() < 0.2 ? 0 : 1)) : undefined;
  return { kind: "matrix", width, data, valid };
}

const numbered = (input: number, width: number, type: ElementType): FeatureColumn[] =>
  Array.from({ length: width }, (_, place) => ({ name: `c${input}_${place}`, kind: "number", type, input, place }));

interface Table {
  readonly rows: number;
  readonly columns: readonly FeatureColumn[];
  readonly inputs: readonly DecodedInput[];
}

/** A table with inputs of all kinds. */
function tableOf(rows: number, seed: number): Table {
  const random = randomOf(seed);
  const lists = Array.from({ length: rows }, () => (random() < 0.1 ? null : [random(), random() - 0.5]));
  const texts = Array.from({ length: rows }, () => (random() < 0.1 ? null : `t${Math.floor(random() * 12)}`));
  return {
    rows,
    inputs: [
      matrixOf(rows, 10, { random }),
      matrixOf(rows, 1, { random }),
      matrixOf(rows, 6, { random, nulls: true }),
      matrixOf(rows, 2, { random, element: "int64" }),
      matrixOf(rows, 3, { random, element: "float64" }),
      listColumn("float32", lists),
      textColumn(texts),
      matrixOf(rows, 4, { random, nulls: true }),
    ],
    columns: [
      ...numbered(0, 10, "float32"),
      ...numbered(1, 1, "float32"),
      ...numbered(2, 6, "float32"),
      ...numbered(3, 2, "int64"),
      ...numbered(4, 3, "float64"),
      { name: "list", kind: "vector", type: { kind: "list", element: "float32" }, input: 5, place: 0 },
      { name: "text", kind: "text", type: "utf8", input: 6, place: 0 },
      { name: "vector", kind: "vector", type: { kind: "list", element: "float32" }, input: 7, place: 0 },
    ],
  };
}

/** Of the bytes of a span's profiles, those that outputs share. */
const outputBytes = 20_000;
const noOutput = { rowCount: 0, columns: [] };

/** The profile of rows [from, to) of a table, in one span, from batches that end at `cuts`. */
function spanOf(plan: FeaturePlan, { inputs }: Table, from: number, to: number, cuts: readonly number[]): SpanProfile {
  const span = createFeatureRows(plan, featureShare(outputBytes));
  const ends = [...new Set([...cuts.filter((cut) => cut > from && cut < to), to])].toSorted((a, b) => a - b);
  let start = from;
  for (const end of ends) {
    const batch = inputs.map((input) => rowsOfInput(input, start, end));
    span.add(measureFeatures(plan, batch, { from: 0, to: end - start, firstRow: start }));
    start = end;
  }
  return profileRows(noOutput, { predicted: [], bytes: outputBytes }, span.finish());
}

function rowsOfInput(input: DecodedInput, from: number, to: number): DecodedInput {
  if (input.kind !== "matrix") {
    return sliceColumn(input, from, to) as DecodedInput;
  }
  const { width, data, valid } = input;
  return {
    ...input,
    data: data.subarray(from * width, to * width),
    valid: valid?.subarray(from * width, to * width),
  };
}

const planOf = (columns: readonly FeatureColumn[], every: number): FeaturePlan => ({
  columns,
  left: 0,
  spanRows: 1000,
  every,
});

describe("the profile of features", () => {
  test("a feature profile is the same for any cut into batches and spans, merged in any order", () => {
    const table = tableOf(3000, 3);
    const every = fc.constantFrom(1, 3, 100);
    const cut = fc.integer({ min: 0, max: 3000 });
    fc.assert(
      fc.property(every, fc.array(cut, { maxLength: 6 }), fc.array(cut, { maxLength: 4 }), (one, cuts, ends) => {
        const plan = planOf(table.columns, one);
        const whole = wholeProfileText(spanOf(plan, table, 0, 3000, []));
        const bounds = [0, ...ends.toSorted((a, b) => a - b), 3000];
        const spans = bounds.slice(1).map((end, index) => spanOf(plan, table, bounds[index] ?? 0, end, cuts));
        const stored = spans.map((span) => parseWholeText(wholeProfileText(span)));
        expect(wholeProfileText(stored.reduce(mergeSpanProfiles))).toBe(whole);
        expect(wholeProfileText(stored.reduceRight(mergeSpanProfiles))).toBe(whole);
      }),
      { numRuns: 25 },
    );
  });

  test.each([1, 7])("a feature profile counts and adds up all rows exactly, and samples one of %s rows", (every) => {
    const table = tableOf(5000, 11);
    const plan = planOf(table.columns, every);
    const { features } = spanOf(plan, table, 0, 5000, [777, 1500, 4999]);
    const limits = featureLimits([...(features ?? [])].map(measuredOf), featureShare(outputBytes));
    for (const [index, { name, type, kind, input, place }] of table.columns.entries()) {
      const found = features?.get(name);
      const decoded = table.inputs[input] as DecodedInput;
      if (decoded.kind !== "matrix" || kind !== "number") {
        continue;
      }
      const expected = profileColumn({ type }, columnAt(decoded, place), limits[index] as never);
      if (expected.kind !== "numbers") {
        throw new TypeError(expected.kind);
      }
      const { histogram: _h, values: _v, squares: _s, ...numbers } = expected.numbers;
      expect(found?.all, name).toEqual({ rows: 5000, nulls: expected.nulls, numbers });
      const rows = sampleRows({ from: 0, to: 5000, firstRow: 0 }, every);
      expect(found?.rows).toBe(rows.length);
      const bins = (limits[index] as VectorLimits).bins;
      const sample = profileColumn({ type }, columnAt(decoded, place, rows), full);
      expect(histogramOf(found), name).toEqual(histogramOf(sample, bins));
    }
  });

  test("the mean of a feature is that of all rows, not of the sample", () => {
    const data = Float32Array.from({ length: 5000 }, (_, row) => row);
    const plan = planOf(numbered(0, 1, "float32"), 100);
    const table: Table = {
      rows: 5000,
      columns: plan.columns,
      inputs: [{ kind: "matrix", width: 1, data, valid: undefined }],
    };
    const all = spanOf(plan, table, 0, 5000, [1234]).features?.get("c0_0")?.all?.numbers;
    expect(all && mean(all)).toBe(2499.5);
  });

  test("a feature profile does not depend on whether the floats are in WebAssembly memory", () => {
    const matrix = matrixOf(2500, 10, { random: randomOf(5) });
    const piece = takeMemory(matrix.data.byteLength);
    const here = new Float32Array(piece.buffer, piece.byteOffset, matrix.data.length);
    here.set(matrix.data as Float32Array);
    const table = { rows: 2500, columns: numbered(0, 10, "float32"), inputs: [matrix] };
    const plan = planOf(table.columns, 1);
    const there = wholeProfileText(spanOf(plan, table, 0, 2500, []));
    expect(wholeProfileText(spanOf(plan, { ...table, inputs: [{ ...matrix, data: here }] }, 0, 2500, []))).toBe(there);
  });

  test("a feature profile contains no value of a key column, and the other columns are profiled as without keys", () => {
    const table = tableOf(1000, 4);
    const keys = new Set(["c1_0", "text"]);
    const columns = table.columns.map((column) =>
      keys.has(column.name) ? { ...column, isKey: true as const } : column,
    );
    const other = [...(spanOf(planOf(table.columns, 1), table, 0, 1000, []).features ?? [])];
    const plan = planOf(columns, 1);
    const spans = [spanOf(plan, table, 0, 400, []), spanOf(plan, table, 400, 1000, [])];
    const found = [...(spans.reduce(mergeSpanProfiles).features ?? [])];
    expect(found.filter(([name]) => !keys.has(name))).toEqual(other.filter(([name]) => !keys.has(name)));
    const nulls = new Map(other.map(([name, { all }]) => [name, all?.nulls]));
    expect(found.filter(([name]) => keys.has(name))).toEqual([
      ["c1_0", { kind: "rows", type: "float32", rows: 1000, nulls: nulls.get("c1_0") }],
      ["text", { kind: "rows", type: "utf8", rows: 1000, nulls: nulls.get("text") }],
    ]);
  });

  test("the feature profile of a span without rows changes nothing when it is merged", () => {
    const table = tableOf(100, 2);
    const plan = planOf(table.columns, 1);
    const whole = spanOf(plan, table, 0, 100, []);
    const empty = profileRows(
      noOutput,
      { predicted: [], bytes: outputBytes },
      createFeatureRows(plan, featureShare(outputBytes)).finish(),
    );
    expect(wholeProfileText(mergeSpanProfiles(empty, whole))).toBe(wholeProfileText(whole));
    expect(wholeProfileText(mergeSpanProfiles(whole, empty))).toBe(wholeProfileText(whole));
  });

  test("a run has no feature profile if one of its spans has none", () => {
    const table = tableOf(100, 2);
    const whole = spanOf(planOf(table.columns, 1), table, 0, 100, []);
    const { features: _, ...without } = whole;
    expect(mergeSpanProfiles(without, whole).features).toBeUndefined();
    expect(mergeSpanProfiles(whole, without).features).toBeUndefined();
  });
});

function columnAt({ data, valid, width }: Matrix, place: number, rows?: Uint32Array): FixedColumn {
  const wanted = rows ?? Uint32Array.from({ length: data.length / width }, (_, row) => row);
  const values = (
    data.constructor as unknown as { from(rows: Uint32Array, of: (row: number) => unknown): Values }
  ).from(wanted, (row) => data[row * width + place]);
  const there = valid && Uint8Array.from(wanted, (row) => valid[row * width + place] as number);
  return { kind: "fixed", elementsPerValue: 1, data: values, valid: there };
}

/** In at most `bins` bins. */
function histogramOf(profile: ColumnProfile | undefined, bins?: number): unknown {
  if (profile?.kind !== "numbers") {
    return undefined;
  }
  const { histogram } = profile.numbers;
  const shown = bins === undefined ? histogram : fitHistogram(histogram, bins);
  return { nulls: profile.nulls, histogram: shown };
}
