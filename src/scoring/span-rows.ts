import { JobError } from "../util/errors.js";
import { mixedRows } from "../binding/batch-rows.js";
import { type ColumnBuilder, createColumnBuilder, filterColumn } from "../columnar/column-builder.js";
import { type Contract, type OutputBinding, scoredColumns } from "../binding/contract.js";
import type { BatchRows, RowFault } from "../packing/input-target.js";
import type { RowReuse } from "../packing/row-reuse.js";
import { createPredictionColumn } from "../packing/prediction-column.js";
import { columnTypeOfTensor, type Tensor } from "../columnar/tensor.js";
import type { AnswerFault, Column, ColumnType, OutputRows, RecordBatch, RowRange } from "../columnar/types.js";

/**
 * The output of a span, or of neighbouring rows of one, filled as its rows are read and scored. Batches may end in any
 * order. Rows that are left after a filter are numbered from the start of the span, without gaps.
 */
export interface SpanRows {
  /** Copies the carried columns of rows [from, to) of a record batch; `row` is the run's number of row `from`. */
  carry(batch: RecordBatch, range: BatchRows): void;
  /**
   * Takes the predictions of rows [rowStart, rowStart + rowCount) of the run. With `reuse`, rows are numbered as it numbers
   * those that are scored, here and in `refuse`.
   * @throws JobError CONTRACT when a tensor's shape is not the batch's, BAD_ROW when a value is not finite
   */
  predict(
    outputs: ReadonlyMap<string, Tensor>,
    range: { rowStart: number; rowCount: number; packedRows: number },
  ): void;
  /** The size of the carried and predicted values so far, in bytes. */
  readonly bytes: number;
  /** Removes a row of the run from the output, with its prediction. */
  reject(row: number): void;
  /** The model fails on this row: no prediction will come. */
  refuse(row: number, message: string, reason?: AnswerFault): void;
  /**
   * The rows that were not rejected, once each row was carried and predicted. `rowCount`: the rows that came in
   * all; those that were filtered out never did.
   */
  finish(rowCount: number): OutputRows;
  /** Rows of the output that took a stored prediction. */
  readonly reused: number;
  /** The rows that these rows of the output are, numbered as `reject` takes them; both in ascending order. */
  rowsAt(indexes: readonly number[]): number[];
}

export interface SpanRowsOptions {
  readonly contract: Contract;
  /** Rows of the run. */
  readonly span: RowRange;
  /** A prediction is NaN or infinite, or the model fails; throws to end the run, or rejects the row. */
  readonly onFault: (fault: RowFault) => void;
  /** Which rows take stored predictions, and the hashes of all rows; undefined: all rows are scored. */
  readonly reuse?: RowReuse | undefined;
}

export function createSpanRows({ contract, span, onFault, reuse }: SpanRowsOptions): SpanRows {
  const length = span.rowEnd - span.rowStart;
  const carried = contract.passthrough.map(({ source }) => createColumnBuilder(source.type, length));
  const predicted = contract.outputs.map((binding) => createPredictionColumn(binding.type, length));
  const isPredicted = new Uint8Array(length);
  const keep = new Uint8Array(length).fill(1);
  let carriedRows = 0;
  const report: PredictionFault = (scored, fault) => {
    const at = reuse === undefined ? scored : reuse.scoredAt(scored);
    if (keep[at] === 1) {
      onFault({ ...fault, row: span.rowStart + at });
    }
  };
  return {
    carry(batch, range) {
      const due = span.rowStart + carriedRows;
      if (range.row !== due || due + (range.to - range.from) > span.rowEnd) {
        throw new RangeError(`row ${range.row} came where row ${due} was due`);
      }
      carryInto(carried, batch, range);
      carriedRows += range.to - range.from;
    },
    predict(outputs, { rowStart, rowCount, packedRows }) {
      const at = rowStart - span.rowStart;
      markOnce(isPredicted, at, rowCount);
      for (const [index, one] of contract.outputs.entries()) {
        predicted[index]?.set(at, rowCount, valuesOf(one, outputs, packedRows), notFiniteFault(report, one));
      }
    },
    get bytes() {
      return bytesOf([...carried, ...predicted]) + (reuse?.bytes ?? 0);
    },
    reject(row) {
      keep[row - span.rowStart] = 0;
    },
    refuse(row, value, reason) {
      markOnce(isPredicted, row - span.rowStart, 1);
      report(row - span.rowStart, { reason: reason ?? "model", column: undefined, value });
    },
    finish(rowCount) {
      checkAllCame(span.rowStart, rowCount, { carried: carriedRows, isPredicted, reuse });
      keep.fill(0, rowCount);
      return keptRows(contract, { carried, predicted, keep: keep.subarray(0, rowCount), reuse });
    },
    get reused() {
      return reuse?.countReused(keep) ?? 0;
    },
    rowsAt: (indexes) => keptAt(keep, indexes).map((at) => span.rowStart + at),
  };
}

/** Reports a fault of a row, counted from the span's first among those that are scored. */
type PredictionFault = (scored: number, fault: Omit<RowFault, "row">) => void;

function notFiniteFault(report: PredictionFault, { column }: OutputBinding): (row: number, value: number) => void {
  return (row, value) => {
    report(row, { reason: "prediction", column, value: String(value) });
  };
}

function bytesOf(columns: readonly { readonly bytes: number }[]): number {
  return columns.reduce((sum, { bytes }) => sum + bytes, 0);
}

function carryInto(
  builders: readonly ColumnBuilder[],
  batch: RecordBatch,
  { from, to }: { from: number; to: number },
): void {
  for (const [index, builder] of builders.entries()) {
    const source = batch.carried[index];
    if (source === undefined) {
      throw new RangeError(`a record batch carries ${batch.carried.length} columns, expected ${builders.length}`);
    }
    builder.append(source, from, to);
  }
}

/** The last line of defence against a batch that was dropped, or came twice in the place of another. */
function checkAllCame(
  rowStart: number,
  rowCount: number,
  { carried, isPredicted, reuse }: { carried: number; isPredicted: Uint8Array; reuse: RowReuse | undefined },
): void {
  const { rowCount: compared, scoredCount: predicted } = reuse ?? { rowCount, scoredCount: rowCount };
  const seen = isPredicted.includes(0) ? isPredicted.indexOf(0) : isPredicted.length;
  if (carried !== rowCount || compared !== rowCount || seen !== predicted || isPredicted.includes(1, predicted)) {
    throw new Error(`row ${rowStart + Math.min(carried, seen)} was not carried or not predicted`);
  }
}

/** Where the rows are, among all, that are these among the kept ones; both in ascending order. */
function keptAt(keep: Uint8Array, indexes: readonly number[]): number[] {
  const found: number[] = [];
  for (let at = 0, kept = 0; at < keep.length && found.length < indexes.length; at += 1) {
    if (keep[at] === 1) {
      if (kept === indexes[found.length]) {
        found.push(at);
      }
      kept += 1;
    }
  }
  return found;
}

interface Finished {
  readonly carried: readonly { finish(): Column }[];
  readonly predicted: readonly { finish(rowCount: number): Column }[];
  readonly keep: Uint8Array;
  readonly reuse: RowReuse | undefined;
}

function keptRows(contract: Contract, { carried, predicted, keep, reuse }: Finished): OutputRows {
  const scored = predicted.map((column) => column.finish(reuse?.scoredCount ?? keep.length));
  const isMixed = reuse !== undefined && reuse.scoredCount < reuse.rowCount;
  const predictions = isMixed ? reuse.predictionsOf(scored, keep) : scored;
  const all = !keep.includes(0);
  const columns = scoredColumns(contract).map(({ name, type }, index) => {
    const output = index - carried.length;
    const column = (carried[index]?.finish() ?? predictions[output]) as Column;
    return { name, type, column: all || (isMixed && output >= 0) ? column : filterColumn(type, column, keep) };
  });
  const rowCount = all ? keep.length : countOf(keep);
  return { rowCount, columns: reuse === undefined ? columns : [...columns, reuse.hashesOf(columns, keep)] };
}

function countOf(flags: Uint8Array): number {
  let count = 0;
  for (const flag of flags) {
    count += flag;
  }
  return count;
}

/** Refuses a row that comes twice: a span needs each of its rows exactly once. */
function markOnce(seen: Uint8Array, at: number, rowCount: number): void {
  if (at < 0 || at + rowCount > seen.length || seen.subarray(at, at + rowCount).includes(1)) {
    throw new RangeError(`rows ${at} to ${at + rowCount} of a span of ${seen.length} came twice or are not of it`);
  }
  seen.fill(1, at, at + rowCount);
}

function valuesOf(
  binding: OutputBinding,
  outputs: ReadonlyMap<string, Tensor>,
  packedRows: number,
): { tensor: Tensor; width: number; element: number | undefined } {
  const tensor = outputs.get(binding.tensor);
  if (tensor === undefined) {
    throw new RangeError(`the engine gave no tensor ${binding.tensor}`);
  }
  const element = binding.kind === "element" ? binding.element : undefined;
  return { tensor, width: checkShape(binding, tensor, packedRows), element };
}

/** Checks that a tensor has the shape and type of its binding; returns how many values it has for each row. */
function checkShape(binding: OutputBinding, tensor: Tensor, packedRows: number): number {
  const [rows, width = 1, ...others] = tensor.dims;
  const wanted =
    binding.kind === "element"
      ? binding.element < width
      : binding.kind === "vector"
        ? tensor.dims.length === 2
        : width === 1;
  const element = binding.kind === "vector" ? elementTypeOf(binding.type) : binding.type;
  if (rows !== packedRows) {
    throw mixedRows(binding.tensor, tensor, packedRows);
  }
  if (others.length > 0 || !wanted || columnTypeOfTensor(tensor.dtype) !== element) {
    throw new JobError(
      "CONTRACT",
      `running the model: output \`${binding.tensor}\` came as ${tensor.dtype} [${tensor.dims.join(",")}] for a batch of ${packedRows} rows`,
      { hint: "each output must hold one row for each row of the batch, as its signature says" },
    );
  }
  return width;
}

function elementTypeOf(type: ColumnType): ColumnType {
  return typeof type === "object" && type.kind === "list" ? type.element : type;
}
