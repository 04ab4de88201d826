import { filterColumn, keptRuns } from "../../columns/columns.js";
import type { Contract } from "../../models/binding/contract.js";
import type { ColumnType, DecodedInput, FixedColumn, RecordBatch, RowRange } from "../../columns/types.js";
import { allocate, copyValues, elementOf } from "../../columns/values.js";

/** What expressions made of a row: `kept + 1 + i`: it stays, and expression i failed on it. */
export const rowState = { filtered: 0, kept: 1 } as const;

/** Of ascending numbers of rows those in a range, as numbers from its first row on. */
export function numbersIn(sorted: Uint32Array, { rowStart, rowEnd }: RowRange): Uint32Array {
  const numbers = sorted.subarray(firstAtLeast(sorted, rowStart), firstAtLeast(sorted, rowEnd));
  return rowStart === 0 ? numbers : numbers.map((row) => row - rowStart);
}

/** Index of the first value that is `limit` or more; `sorted` is ascending. */
export function firstAtLeast(sorted: Uint32Array, limit: number): number {
  let low = 0;
  let high = sorted.length;
  while (low < high) {
    const middle = (low + high) >>> 1;
    if ((sorted[middle] ?? 0) < limit) {
      low = middle + 1;
    } else {
      high = middle;
    }
  }
  return low;
}

/**
 * What becomes of rows some of which are removed: see `rowState`; undefined: all stay.
 * @param states what becomes of them else; undefined: they stay
 */
export function statesWithout(removed: Uint32Array, rowCount: number, states?: Uint16Array): Uint16Array | undefined {
  if (removed.length === 0) {
    return states;
  }
  const all = states?.slice() ?? new Uint16Array(rowCount).fill(rowState.kept);
  for (const row of removed) {
    all[row] = rowState.filtered;
  }
  return all;
}

/** Rows that a batch was made from. */
export function rowsRead({ rowCount, selection }: RecordBatch): number {
  return selection?.readCount ?? rowCount;
}

/**
 * Copies the rows of a batch that stay: rows that are filtered out are not packed, scored or carried.
 * `states`: one a row, see `rowState`. `problems`: what is wrong with rows that stay and cannot be read.
 */
export function selectRows(
  batch: RecordBatch,
  states: Uint16Array,
  { passthrough }: Pick<Contract, "passthrough">,
  problems: ReadonlyMap<number, string> = new Map(),
): RecordBatch {
  const keep = new Uint8Array(batch.rowCount);
  const places = new Uint32Array(batch.rowCount);
  const failed: { row: number; cause: number | string }[] = [];
  let rowCount = 0;
  for (let place = 0; place < batch.rowCount; place += 1) {
    const state = states[place] ?? rowState.filtered;
    if (state === rowState.filtered) {
      continue;
    }
    const cause = problems.get(place) ?? state - rowState.kept - 1;
    if (cause !== -1) {
      failed.push({ row: rowCount, cause });
    }
    keep[place] = 1;
    places[rowCount] = place;
    rowCount += 1;
  }
  const selection = selectedOf(batch, places.subarray(0, rowCount), failed);
  if (rowCount === batch.rowCount) {
    return { ...batch, selection };
  }
  return {
    rowCount,
    inputs: selectInputs(batch.inputs, keep, rowCount),
    carried: batch.carried.map((column, index) => {
      const source = passthrough[index]?.source;
      if (source === undefined) {
        throw new RangeError("a record batch carries more columns than the contract");
      }
      return filterColumn(source.type, column, keep);
    }),
    selection,
  };
}

/** @param places the rows of the batch that stay */
function selectedOf(
  { rowCount, selection }: RecordBatch,
  places: Uint32Array,
  failed: NonNullable<RecordBatch["selection"]>["failed"],
): RecordBatch["selection"] {
  if (selection === undefined) {
    return { readCount: rowCount, indices: places, failed };
  }
  const before = selection.failed.flatMap(({ row, cause }) => {
    const now = firstAtLeast(places, row);
    return places[now] === row ? [{ row: now, cause }] : [];
  });
  const indices = places.map((place) => selection.indices[place] ?? 0);
  return { readCount: selection.readCount, indices, failed: [...failed, ...before] };
}

/** Copies the rows that `keep` marks with 1 of what the model gets. */
export function selectInputs(inputs: readonly DecodedInput[], keep: Uint8Array, rowCount: number): DecodedInput[] {
  return inputs.map((input) => selectInput(input, keep, rowCount));
}

function selectInput(input: DecodedInput, keep: Uint8Array, rowCount: number): DecodedInput {
  if (input.kind === "list") {
    const lists = input.child.kind === "fixed" ? filterColumn(listOf(input.child), input, keep) : undefined;
    if (lists?.kind !== "list") {
      throw new TypeError("an input of lists takes lists of numbers");
    }
    return lists;
  }
  if (input.kind === "bytes") {
    const texts = filterColumn("utf8", input, keep);
    if (texts.kind !== "bytes") {
      throw new TypeError("a column of texts stays one");
    }
    return texts;
  }
  const { width, valid } = input;
  const data = allocate(elementOf(input.data), rowCount * width);
  const validNow = valid === undefined ? undefined : new Uint8Array(rowCount * width);
  let row = 0;
  for (const [from, to] of keptRuns(keep)) {
    copyValues(data, row * width, input.data, from * width, to * width);
    if (valid !== undefined) {
      validNow?.set(valid.subarray(from * width, to * width), row * width);
    }
    row += to - from;
  }
  return { ...input, data, valid: validNow };
}

function listOf({ data }: FixedColumn): ColumnType {
  return { kind: "list", element: elementOf(data) };
}
