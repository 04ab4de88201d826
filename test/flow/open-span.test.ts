import * as fc from "fast-check";
import { describe, expect, test } from "vitest";
import type { Contract } from "#src/models/binding/contract.js";
import type { RowFault } from "#src/flow/pack/input-target.js";
import { rowState, selectRows } from "#src/flow/pack/select-rows.js";
import type { RecordBatch } from "#src/columns/types.js";
import { openSpan, type OpenSpan } from "#src/flow/span.js";
import { emptyContract, ref } from "../support/batches.js";

const contract: Contract = {
  ...emptyContract,
  passthrough: [{ column: "id", source: ref("id", "int64") }],
  outputs: [{ kind: "scalar", column: "score", tensor: "score", type: "float64" }],
  expressions: {
    list: [
      { kind: "where", name: "input.where", text: "true", uses: [] },
      { kind: "column", name: "a", text: "1", uses: [] },
    ],
    folders: [],
    columns: [],
  },
};

const dropped = rowState.filtered;
const kept = rowState.kept;
const failedOn = (expression: number): number => rowState.kept + 1 + expression;

function batchFrom(start: number, states: readonly number[]): RecordBatch {
  const data = BigInt64Array.from(states, (_, index) => BigInt(start + index));
  const batch: RecordBatch = {
    rowCount: states.length,
    inputs: [],
    carried: [{ kind: "fixed", elementsPerValue: 1, data, valid: undefined }],
  };
  return selectRows(batch, Uint16Array.from(states), contract);
}

/** All rows, as they come where a table has removed none of them. */
function wholeFrom(start: number, rows: number): RecordBatch {
  const { selection: _, ...whole } = batchFrom(start, Array<number>(rows).fill(kept));
  return whole;
}

function open(span: { rowStart: number; rowEnd: number }): { open: OpenSpan; faults: RowFault[] } {
  const faults: RowFault[] = [];
  const opened = openSpan({
    contract,
    span: { index: 0, ...span },
    onFault: (one, fault) => {
      faults.push(fault);
      one.setAside(fault);
    },
  });
  return { open: opened, faults };
}

function predictAll({ rows, span, keptRows }: OpenSpan, not: ReadonlySet<number> = new Set()): void {
  for (let index = 0; index < keptRows; index += 1) {
    const row = span.rowStart + index;
    if (not.has(row)) {
      rows.refuse(row, "");
    } else {
      const data = Float64Array.of(row);
      rows.predict(new Map([["score", { dtype: "float64", dims: [1], data }]]), {
        rowStart: row,
        rowCount: 1,
        packedRows: 1,
      });
    }
  }
}

function idsOf({ rows, keptRows }: OpenSpan): number[] {
  const [ids] = rows.finish(keptRows).columns;
  return ids?.column.kind === "fixed" ? Array.from<number | bigint>(ids.column.data).map(Number) : [];
}

describe("rows of a span that was filtered", () => {
  test("rows of a filtered span are at its start without gaps, over several batches", () => {
    const { open: span } = open({ rowStart: 100, rowEnd: 108 });
    const first = span.take(batchFrom(98, [kept, kept, dropped, kept, kept]), { from: 2, to: 5, row: 100 });
    const second = span.take(batchFrom(103, [dropped, dropped]), { from: 0, to: 2, row: 103 });
    const third = span.take(batchFrom(105, [kept, dropped, kept, kept, kept]), { from: 0, to: 3, row: 105 });

    expect([first, second, third]).toEqual([
      { range: { from: 2, to: 4, row: 100 }, filtered: 1 },
      { range: { from: 0, to: 0, row: 102 }, filtered: 2 },
      { range: { from: 0, to: 2, row: 102 }, filtered: 1 },
    ]);
    expect(span.keptRows).toBe(4);
    predictAll(span);
    expect(idsOf(span)).toEqual([101, 102, 105, 107]);
  });

  test("bad rows are reported by their number in the run, at each stage that can find a fault", () => {
    const { open: span, faults } = open({ rowStart: 100, rowEnd: 108 });
    span.take(batchFrom(100, [dropped, kept, dropped, kept, dropped, dropped, kept, kept]), {
      from: 0,
      to: 8,
      row: 100,
    });
    // The packer, the model and the check of predictions know the third row that is left as row 102.
    span.onFault({ reason: "missing", column: "f", row: 102, value: undefined });
    span.onFault({ reason: "model", column: undefined, row: 103, value: "says no" });

    expect(faults.map(({ reason, row }) => [reason, row])).toEqual([
      ["missing", 106],
      ["model", 107],
    ]);
    expect([...span.faults.keys()]).toEqual([106, 107]);
    predictAll(span, new Set([103]));
    expect(idsOf(span)).toEqual([101, 103]);
  });

  test("rows keep their numbers where some batches of the span have no filtered row", () => {
    const { open: span, faults } = open({ rowStart: 0, rowEnd: 9 });
    span.take(wholeFrom(0, 3), { from: 0, to: 3, row: 0 });
    span.take(batchFrom(3, [dropped, kept, kept]), { from: 0, to: 3, row: 3 });
    span.take(wholeFrom(6, 3), { from: 0, to: 3, row: 6 });
    predictAll(span, new Set([1, 4, 6]));
    expect(faults.map(({ row }) => row)).toEqual([1, 5, 7]);
    expect(idsOf(span)).toEqual([0, 2, 4, 6, 8]);
  });

  test("bad rows of a filtered span are rejected once", () => {
    const { open: span } = open({ rowStart: 0, rowEnd: 3 });
    span.take(batchFrom(0, [dropped, kept, kept]), { from: 0, to: 3, row: 0 });
    const fault: RowFault = { reason: "missing", column: "f", row: 2, value: undefined };
    expect([span.setAside(fault), span.setAside({ ...fault, reason: "model" })]).toEqual([true, false]);
    expect([...span.faults.values()]).toEqual([fault]);
  });
});

test("rows keep their numbers where there is no filter", () => {
  const { open: span, faults } = open({ rowStart: 50, rowEnd: 53 });
  expect(span.take(wholeFrom(49, 4), { from: 1, to: 4, row: 50 })).toEqual({
    range: { from: 1, to: 4, row: 50 },
    filtered: 0,
  });
  span.onFault({ reason: "missing", column: "f", row: 51, value: undefined });
  expect(faults.map(({ row }) => row)).toEqual([51]);
  predictAll(span);
  expect(idsOf(span)).toEqual([50, 52]);
});

test("however spans and batches cut the rows, each span holds those that were kept and reports those at fault", () => {
  const state = fc.constantFrom(dropped, dropped, kept, kept, failedOn(0), failedOn(1));
  const shape = fc.record({
    states: fc.array(state, { minLength: 1, maxLength: 60 }),
    spanRows: fc.integer({ min: 1, max: 20 }),
    batchRows: fc.array(fc.integer({ min: 1, max: 17 }), { minLength: 60, maxLength: 60 }),
  });
  fc.assert(
    fc.property(shape, ({ states, spanRows, batchRows }) => {
      const spans: { open: OpenSpan; faults: RowFault[] }[] = [];
      let filtered = 0;
      let row = 0;
      for (const rows of batchRows) {
        const batch = batchFrom(row, states.slice(row, row + rows));
        const readCount = batch.selection?.readCount ?? 0;
        // As run/score.ts does.
        for (let from = 0; from < readCount; ) {
          const rowStart = Math.floor((row + from) / spanRows) * spanRows;
          const rowEnd = Math.min(rowStart + spanRows, states.length);
          if (spans.at(-1)?.open.span.rowStart !== rowStart) {
            spans.push(open({ rowStart, rowEnd }));
          }
          const to = Math.min(readCount, rowEnd - row);
          filtered += spans.at(-1)?.open.take(batch, { from, to, row: row + from }).filtered ?? 0;
          from = to;
        }
        row += readCount;
      }
      const rowsOf = (span: OpenSpan["span"], wanted: (state: number) => boolean): number[] =>
        states.flatMap((one, at) => (at >= span.rowStart && at < span.rowEnd && wanted(one) ? [at] : []));
      expect(filtered).toBe(states.filter((one) => one === dropped).length);
      for (const { open: one, faults } of spans) {
        expect(faults.map((fault) => [fault.row, fault.column])).toEqual(
          rowsOf(one.span, (found) => found > kept).map((at) => [at, states[at] === failedOn(0) ? "input.where" : "a"]),
        );
        predictAll(one);
        expect(idsOf(one)).toEqual(rowsOf(one.span, (found) => found === kept));
      }
    }),
    { numRuns: 500 },
  );
});
