import { describe, expect, test } from "vitest";
import { equalOutputLimits, type Measured } from "#src/checks/features/feature-limits.js";
import { divideOutputBytes, type MeasuredOutput, planOutputBytes } from "#src/checks/output-limits.js";
import { valueList } from "#src/checks/profiles/outside-values.js";
import type { VectorLimits } from "#src/checks/profiles/vector-profile.js";
import {
  mergeSpanProfiles,
  parseSpanProfile,
  profileRows,
  type SpanProfile,
  spanProfileText,
} from "#src/checks/span-profile.js";
import { type Column, type ColumnType, showType } from "#src/columnar/types.js";
import { sliceColumn } from "#src/columnar/column-rows.js";
import type { Values } from "#src/columnar/values.js";
import { listColumn, textColumn } from "../support/batches.js";
import { randomOf } from "../support/random.js";

const outputs = (...types: readonly string[]): MeasuredOutput[] =>
  types.map((type, index) => ({ name: `o${index}`, type }));
const several = (count: number, type: string): string[] => Array.from({ length: count }, () => type);
const features = (count: number): Measured[] =>
  several(count, "float32").map((type, index) => ({ name: `f${index}`, type, kind: "number" }));

function limitsOf(columns: readonly MeasuredOutput[], beside: readonly Measured[] | undefined): VectorLimits[] {
  return divideOutputBytes(columns, planOutputBytes(columns, beside));
}

describe("the bytes of a span's profiles are divided by what its columns need", () => {
  test.each([
    ["no features", undefined, 16_000],
    ["12 features", features(12), 10_000],
    ["32 features", features(32), 5000],
  ])("a label beside eleven probabilities counts 256 values, with %s", (_, beside, nameBytes) => {
    const [label, ...others] = limitsOf(outputs("utf8", ...several(11, "float32")), beside);
    expect(label?.values).toBe(256);
    expect(label?.nameBytes).toBeGreaterThan(nameBytes);
    expect(Math.min(...others.map(({ bins }) => bins))).toBeGreaterThan(32);
  });

  test("an integer label beside eleven probabilities counts many values, with 12 features", () => {
    const [label] = limitsOf(outputs("int64", ...several(11, "float32")), features(12));
    expect(label?.values).toBeGreaterThan(190);
    expect(limitsOf(outputs("int64", "float32"), features(32))[0]).toMatchObject({ values: 256 });
  });

  test.each(["int64", "utf8"])(
    "a label of type %s beside vectors never counts fewer values than equal shares would allow",
    (type) => {
      for (const [vectors, labels] of [
        [1, 1],
        [2, 1],
        [2, 2],
        [3, 1],
        [4, 1],
        [7, 1],
      ] as const) {
        const columns = outputs(...several(labels, type), ...several(vectors, "list<float32>"));
        const equal = equalOutputLimits(columns.length);
        const [label] = limitsOf(columns, features(32));
        expect(label?.values, `${labels} and ${vectors} vectors`).toBeGreaterThanOrEqual(equal.values);
        expect(label?.nameBytes, `${labels} and ${vectors} vectors`).toBeGreaterThanOrEqual(equal.nameBytes);
      }
    },
  );

  test("a vector beside a score and a label is profiled in all of its dimensions", () => {
    const beside: Measured[] = [...features(2), { name: "emb", type: "list<float32>", kind: "vector" }];
    const [vector] = limitsOf(outputs("list<float32>", "float32", "utf8"), beside);
    expect(vector?.dimensions).toBeGreaterThanOrEqual(768);
  });

  test("a single column gets all bytes that a profile can use", () => {
    expect(limitsOf(outputs("float32"), undefined)).toMatchObject([{ bins: 1024, values: 256 }]);
    expect(limitsOf(outputs("float64"), features(32))).toMatchObject([{ bins: 1024, values: 256 }]);
    expect(limitsOf(outputs("utf8"), features(32))).toMatchObject([{ values: 256, nameBytes: 16_384 }]);
    expect(limitsOf(outputs("list<float32>"), features(32))).toMatchObject([{ dimensions: 1024 }]);
  });

  test("outputs that need few bytes leave the rest to features", () => {
    expect(planOutputBytes(outputs("bool"), features(32))).toBeLessThan(1000);
  });
});

const fixed = (data: Values): Column => ({
  kind: "fixed",
  elementsPerValue: 1,
  data,
  valid: undefined,
});

/** The first seven are examples, and one of the others is the cut-off. */
function longText(row: number): string {
  return row < 7 ? `text 0${row}` : `text ${"é".repeat(30)} ${row}`;
}

/** Rows of a column that take as many bytes as a profile of this type can. */
function worst(
  type: string,
  rows: number,
  random: () => number,
): { readonly type: ColumnType; readonly column: Column } {
  const wild = (exponents: number): number => (random() - 0.5) * 10 ** ((random() - 0.5) * exponents);
  switch (type) {
    case "float32":
      return { type, column: fixed(Float32Array.from({ length: rows }, () => wild(76))) };
    case "float64":
      return { type, column: fixed(Float64Array.from({ length: rows }, () => wild(610))) };
    case "int64":
      return { type, column: fixed(BigInt64Array.from({ length: rows }, () => BigInt(Math.floor(wild(36))))) };
    case "few int64": {
      const ids = Array.from({ length: 200 }, () => BigInt(Math.floor(wild(36))));
      const pick = (): bigint => ids[Math.floor(random() * ids.length)] ?? 0n;
      return { type: "int64", column: fixed(BigInt64Array.from({ length: rows }, pick)) };
    }
    case "bool":
      return { type, column: fixed(Uint8Array.from({ length: rows }, () => (random() < 0.5 ? 1 : 0))) };
    case "few utf8": {
      const names = Array.from({ length: 200 }, (_, index) => `${index} ${"é".repeat(random() * 28)}`);
      return {
        type: "utf8",
        column: textColumn(Array.from({ length: rows }, () => names[Math.floor(random() * names.length)] ?? "")),
      };
    }
    case "utf8":
      return { type, column: textColumn(Array.from({ length: rows }, (_, row) => `text ${row}`)) };
    case "long utf8":
      return { type: "utf8", column: textColumn(Array.from({ length: rows }, (_, row) => longText(row))) };
    default: {
      const lists = Array.from({ length: rows / 20 }, () => Array.from({ length: 1100 }, () => wild(10)));
      return { type: { kind: "list", element: "float32" }, column: listColumn("float32", lists) };
    }
  }
}

/** The profile of a span of 128 times as many rows. */
function spanOf(types: readonly string[], rows: number, random: () => number, bytes?: number): SpanProfile {
  const columns = types.map((type, index) =>
    Object.assign(worst(type, rows, random), { name: `output_${index}`, list: valueList(["text 1", "1"]) }),
  );
  const measured = columns.map(({ name, type }) => ({ name, type: showType(type) }));
  const outputBytes = bytes ?? planOutputBytes(measured, undefined);
  let span = profileRows({ rowCount: rows, columns }, { predicted: columns, bytes: outputBytes });
  for (let doublings = 0; doublings < 7; doublings += 1) {
    span = mergeSpanProfiles(span, span);
  }
  return span;
}

describe("the JSON of the profiles of a span's outputs takes at most the bytes that they share", () => {
  const mixed = ["float32", "utf8", "few utf8", "int64", "few int64", "float64", "bool", "list<float32>"];
  test.each([
    ["one of each", mixed],
    ["32 of doubles", several(32, "float64")],
    ["32 of texts", several(32, "utf8")],
    ["32 of long texts", several(32, "long utf8")],
    ["32 of labels", several(32, "few utf8")],
    ["32 of integers", several(32, "int64")],
    ["32 of integer labels", several(32, "few int64")],
    ["a label beside eleven probabilities", ["few utf8", ...several(11, "float32")]],
    ["10 of vectors", several(10, "list<float32>")],
  ])("with %s", (_, types) => {
    const text = spanProfileText(spanOf(types, 2000, randomOf(7)));
    expect(Buffer.byteLength(text)).toBeLessThanOrEqual(64 * 1024);
    expect(Buffer.byteLength(text)).toBeGreaterThan(15 * 1024);
  });

  test("the JSON of a label and eleven probabilities stays within the bytes that features leave", () => {
    const types = ["few utf8", ...several(11, "float32")];
    const bytes = planOutputBytes(outputs("utf8", ...several(11, "float32")), features(12));
    const text = spanProfileText(spanOf(types, 2000, randomOf(7), bytes));
    expect(Buffer.byteLength(text)).toBeLessThanOrEqual(bytes);
  });

  test("profiles of outputs merge to the same profile however rows are divided into spans, and keep their size limit", () => {
    const random = randomOf(3);
    const rows = 900;
    const columns = ["few utf8", "int64", "float32", "list<float32>"].map((type, index) =>
      Object.assign(worst(type, type === "list<float32>" ? 20 * rows : rows, random), {
        name: `output_${index}`,
        list: valueList(["0 é"]),
      }),
    );
    const about = { predicted: columns, bytes: 9000 };
    const whole = spanProfileText(profileRows({ rowCount: rows, columns }, about));
    const spans = [0, 100, 450].map((from, index, starts) => {
      const to = starts[index + 1] ?? rows;
      const cut = columns.map(({ name, type, column }) => ({ name, type, column: sliceColumn(column, from, to) }));
      return parseSpanProfile(spanProfileText(profileRows({ rowCount: to - from, columns: cut }, about))).profile;
    });
    expect(spanProfileText(spans.reduce(mergeSpanProfiles))).toBe(whole);
    expect(spanProfileText(spans.reduceRight(mergeSpanProfiles))).toBe(whole);
  });
});
