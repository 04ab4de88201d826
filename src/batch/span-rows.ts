import { JobError } from "../errors.js";
import { createColumnBuilder, filterColumn } from "./column-builder.js";
import { type Contract, type OutputBinding, scoredColumns } from "./contract.js";
import type { RowFault } from "./input-target.js";
import { createPredictionColumn } from "./prediction-column.js";
import { columnTypeOfTensor, type Tensor } from "./tensor.js";
import type { Column, ColumnType, OutputRows, RecordBatch } from "./types.js";

/**
 * The output of one span, filled as its rows are read and scored, in whatever order the batches end. Where some
 * are filtered out, those that are left are numbered as if they stood at the span's start without a gap.
 */
export interface SpanRows {
  /** Copies the carried columns of rows [from, to) of a record batch; `row` is the run's number of row `from`. */
  carry(batch: RecordBatch, range: { from: number; to: number; row: number }): void;
  /**
   * Takes the predictions of rows [rowStart, rowStart + rowCount) of the run.
   * @throws JobError MODEL_FAILED when a tensor's shape is not the batch's, BAD_ROW when a value is not finite
   */
  predict(
    outputs: ReadonlyMap<string, Tensor>,
    range: { rowStart: number; rowCount: number; packedRows: number },
  ): void;
  /** Takes a row of the run out of the output, whatever is predicted for it. */
  reject(row: number): void;
  /** No prediction will come for a rejected row. */
  skip(row: number): void;
  /**
   * The rows that were not rejected, once each row was carried and predicted. `rowCount`: the rows that came in
   * all; those that were filtered out never did.
   */
  finish(rowCount: number): OutputRows;
  /** The rows that these rows of the output are, numbered as `reject` takes them; both in ascending order. */
  rowsAt(indexes: readonly number[]): number[];
}

export interface SpanRowsOptions {
  readonly contract: Contract;
  /** Rows [rowStart, rowEnd) of the run. */
  readonly span: { readonly rowStart: number; readonly rowEnd: number };
  /** A prediction is NaN or infinite; throws to end the run, or rejects the row. */
  readonly onFault: (fault: RowFault) => void;
}

export function createSpanRows({ contract, span, onFault }: SpanRowsOptions): SpanRows {
  const length = span.rowEnd - span.rowStart;
  const carried = contract.passthrough.map(({ source }) => createColumnBuilder(source.type, length));
  const predicted = contract.outputs.map((binding) => createPredictionColumn(binding.type, length));
  const isPredicted = new Uint8Array(length);
  const keep = new Uint8Array(length).fill(1);
  let carriedRows = 0;
  return {
    carry(batch, { from, to, row }) {
      if (row !== span.rowStart + carriedRows || carriedRows + (to - from) > length) {
        throw new RangeError(`row ${row} came where row ${span.rowStart + carriedRows} was due`);
      }
      for (const [index, builder] of carried.entries()) {
        const source = batch.carried[index];
        if (source === undefined) {
          throw new RangeError(`a record batch carries ${batch.carried.length} columns, ${carried.length} are due`);
        }
        builder.append(source, from, to);
      }
      carriedRows += to - from;
    },
    predict(outputs, { rowStart, rowCount, packedRows }) {
      const at = rowStart - span.rowStart;
      markOnce(isPredicted, at, rowCount);
      for (const [index, binding] of contract.outputs.entries()) {
        predicted[index]?.set(at, rowCount, valuesOf(binding, outputs, packedRows), (row, value) => {
          if (keep[row] === 1) {
            onFault({ reason: "prediction", column: binding.column, row: span.rowStart + row, value: String(value) });
          }
        });
      }
    },
    reject(row) {
      keep[row - span.rowStart] = 0;
    },
    skip(row) {
      markOnce(isPredicted, row - span.rowStart, 1);
    },
    finish(rowCount) {
      const seen = isPredicted.includes(0) ? isPredicted.indexOf(0) : length;
      // The last line of defence against a batch that was dropped, or came twice in the place of another.
      if (carriedRows !== rowCount || seen !== rowCount || isPredicted.includes(1, rowCount)) {
        throw new Error(`row ${span.rowStart + Math.min(carriedRows, seen)} was not carried or not predicted`);
      }
      keep.fill(0, rowCount);
      const columns = [...carried, ...predicted].map((column) => column.finish());
      return keptRows(scoredColumns(contract), columns, keep);
    },
    rowsAt: (indexes) => keptAt(keep, indexes).map((at) => span.rowStart + at),
  };
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

function keptRows(
  names: readonly { name: string; type: ColumnType }[],
  columns: readonly Column[],
  keep: Uint8Array,
): OutputRows {
  const all = !keep.includes(0);
  return {
    rowCount: all ? keep.length : countOf(keep),
    columns: names.flatMap(({ name, type }, index) => {
      const column = columns[index];
      return column === undefined ? [] : [{ name, type, column: all ? column : filterColumn(type, column, keep) }];
    }),
  };
}

function countOf(flags: Uint8Array): number {
  let count = 0;
  for (const flag of flags) {
    count += flag;
  }
  return count;
}

/** Each row of a span comes once: twice would be as wrong as never. */
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

/** Values a row of a tensor [packedRows], [packedRows, 1] or [packedRows, K], as the binding wants it. */
function checkShape(binding: OutputBinding, tensor: Tensor, packedRows: number): number {
  const [rows, width = 1, ...others] = tensor.dims;
  const wanted =
    binding.kind === "element"
      ? binding.element < width
      : binding.kind === "vector"
        ? tensor.dims.length === 2
        : width === 1;
  const element = binding.kind === "vector" ? elementTypeOf(binding.type) : binding.type;
  if (rows !== packedRows || others.length > 0 || !wanted || columnTypeOfTensor(tensor.dtype) !== element) {
    throw new JobError(
      "MODEL_FAILED",
      `running the model: output \`${binding.tensor}\` came as ${tensor.dtype} [${tensor.dims.join(",")}] for a batch of ${packedRows} rows`,
      { hint: "each output must hold one row for each row of the batch, as its signature says" },
    );
  }
  return width;
}

function elementTypeOf(type: ColumnType): ColumnType {
  return typeof type === "object" && type.kind === "list" ? type.element : type;
}
