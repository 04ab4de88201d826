import { describe, expect, test } from "vitest";
import { compareRows, measure } from "#src/checks/agreement/agreement.js";
import {
  type AgreementPlan,
  mergeSpanAgreements,
  missedRows,
  planAgreement,
  type SpanAgreement,
} from "#src/checks/agreement/span-agreement.js";
import { noRows, parseProfile, type SpanProfile, profileText } from "#src/checks/profile/profile.js";
import type { Column, ColumnType, NamedColumn } from "#src/columnar/types.js";

const seeded = (seed: number) => () => {
  seed = (seed * 1_103_515_245 + 12_345) % 2 ** 31;
  return seed / 2 ** 31;
};

const floats = (length: number, random: () => number): Column => ({
  kind: "fixed",
  elementsPerValue: 1,
  data: Float64Array.from({ length }, () => random() ** 8 * 1e300 * (random() < 0.5 ? -1 : 1)),
  valid: undefined,
});

function texts(length: number, textOf: (row: number) => string): Column {
  const values = Array.from({ length }, (_row, index) => Buffer.from(textOf(index)));
  const offsets = new Uint32Array(length + 1);
  for (const [row, value] of values.entries()) {
    offsets[row + 1] = (offsets[row] as number) + value.length;
  }
  return { kind: "bytes", offsets, bytes: Buffer.concat(values), valid: undefined };
}

const columnsOf = (names: readonly string[], rows: number, random: () => number): NamedColumn[] =>
  names.map((name) => ({ name, type: "float64" as ColumnType, column: floats(rows, random) }));

const typesOf = (names: readonly string[]) => names.map((name) => ({ name, type: "float64" as ColumnType }));

function agreementOf(plan: AgreementPlan, firstRow: number, rows: number): SpanAgreement {
  const random = seeded(firstRow + 1);
  const rowNumbers = Float64Array.from({ length: rows }, (_row, index) => firstRow + index);
  const one = columnsOf(plan.compared, rows, random);
  const other = columnsOf(plan.compared, rows, random);
  const columns = compareRows({ rowNumbers, one, other }, plan);
  const keyed = [...columns].map(([name, column]) => {
    const most = column.most.map((row) => ({ ...row, keys: { id: String(row.row).padStart(60, "x") } }));
    return [name, { ...column, most }] as const;
  });
  return { compared: rows, missed: new Map(), columns: new Map(keyed) };
}

const profileOf = (agreement: SpanAgreement): SpanProfile => ({ ...noRows, agreement });
const textOf = (agreement: SpanAgreement): string => profileText(profileOf(agreement));

const levelOf = (rows: number, spanRows: number): number =>
  planAgreement(typesOf(["a"]), typesOf(["a"]), { rows, spanRows, tolerance: 0 }).options.level;

describe("the agreement of a champion and its challenger", () => {
  test("agreements of spans merge to the same text in any order, through the text that each span stores", () => {
    const plan = planAgreement(typesOf(["a", "b"]), typesOf(["a", "b"]), {
      rows: 9000,
      spanRows: 1500,
      tolerance: 0.1,
    });
    const spans = Array.from({ length: 6 }, (_span, index) => agreementOf(plan, index * 1500, 1500));
    const gone = missedRows(new Map([["not_running", 40] as const]));
    const merged = (parts: readonly SpanAgreement[]): string =>
      textOf(parts.map((part) => parseProfile(textOf(part)).agreement ?? gone).reduce(mergeSpanAgreements));
    const text = merged([...spans, gone]);
    expect(merged([gone, ...spans.toReversed()])).toBe(text);
    expect(merged([spans[3], gone, spans[0], spans[5], spans[1], spans[4], spans[2]] as SpanAgreement[])).toBe(text);
    const { agreement } = parseProfile(text);
    expect([agreement?.compared, agreement?.missed.get("not_running")]).toEqual([9000, 40]);
  });

  test("a span's agreement takes at most 64 KiB, with eight columns of the longest sums and with one", () => {
    const names = Array.from({ length: 20 }, (_name, index) => `column_${index}`);
    for (const compared of [names, names.slice(0, 1)]) {
      const size = { rows: 1_000_000, spanRows: 32_768, tolerance: 0.1 };
      const plan = planAgreement(typesOf(compared), typesOf(compared), size);
      const text = textOf(agreementOf(plan, 0, 32_768));
      expect(text.length).toBeLessThan(64 * 1024);
      expect(text.length).toBeGreaterThan(16 * 1024);
    }
    const plan = planAgreement(typesOf(names), typesOf(names), { rows: 10, spanRows: 10, tolerance: 0 });
    expect([plan.compared.length, plan.apart.length]).toEqual([8, 12]);
  });

  test.each([
    [1, 16, 240],
    [7, 6, 30],
    [8, 6, 30],
  ])(
    "of %i compared columns, a label of %i values has all %i pairs that differ, within 64 KiB for each span",
    (columns, values, pairs) => {
      const names = Array.from({ length: columns }, (_name, index) => `column_${index}`);
      const types = names.map((name) => ({ name, type: "utf8" as ColumnType }));
      const plan = planAgreement(types, types, { rows: 4000, spanRows: 1000, tolerance: 0 });
      const spanOf = (firstRow: number): SpanAgreement => {
        const rowNumbers = { first: firstRow, length: values * values };
        const labels = (labelOf: (row: number) => number): NamedColumn[] =>
          names.map((name) => ({ name, type: "utf8", column: texts(values * values, (row) => `lab${labelOf(row)}`) }));
        const one = labels((row) => Math.floor(row / values));
        const other = labels((row) => row % values);
        return { compared: values * values, missed: new Map(), columns: compareRows({ rowNumbers, one, other }, plan) };
      };
      const spans = [0, 1000, 2000].map((row) => spanOf(row));
      for (const span of spans) {
        expect(textOf(span).length).toBeLessThan(64 * 1024);
      }
      for (const column of spans.reduce(mergeSpanAgreements).columns.values()) {
        const found = measure(column);
        const flips = found.kind === "labels" ? found.flips : undefined;
        expect(flips?.map(({ rows }) => rows)).toEqual(Array.from({ length: pairs }, () => 3));
      }
    },
  );

  test("a run of few rows has the rank correlation of all of them, and a large run at most about 100,000 rows", () => {
    expect(levelOf(500, 262_144)).toBe(0);
    const labelled = [
      { name: "a", type: "float32" as ColumnType },
      { name: "label", type: "int64" as ColumnType },
    ];
    expect(planAgreement(labelled, labelled, { rows: 900, spanRows: 900, tolerance: 0 }).options.level).toBe(0);
    expect(levelOf(100_000, 100)).toBe(0);
    expect(levelOf(1_000_000, 100)).toBe(4);
    expect(2 ** levelOf(262_144, 262_144)).toBeGreaterThanOrEqual(262_144 / 600);
  });

  test("columns that only one of both predicts are named with the model that has them", () => {
    const one = [...typesOf(["a"]), { name: "label", type: "utf8" as ColumnType }];
    const other = [...typesOf(["b"]), { name: "label", type: "int64" as ColumnType }];
    expect(planAgreement(one, other, { rows: 1, spanRows: 1, tolerance: 0 }).apart).toEqual([
      { name: "a", reason: "only the champion has it (float64)" },
      { name: "label", reason: "utf8 in the champion, int64 in the challenger" },
      { name: "b", reason: "only the challenger has it (float64)" },
    ]);
  });
});
