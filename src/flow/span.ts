import { type Contract, type OutputBinding, scoredColumns } from "../models/binding/contract.js";
import { type FeaturePlan, type FeatureRows, createFeatureRows } from "../checks/profile/features.js";
import type { SpanProfile } from "../checks/profile/profile.js";
import { type Reuse, type RowReuse, createRowReuse } from "./pack/row-reuse.js";
import type { BatchRows, RowFault } from "./pack/input-target.js";
import type { AnswerFault, Column, ColumnType, OutputRows, RecordBatch, RowRange } from "../columns/types.js";
import { firstAtLeast } from "./pack/select-rows.js";
import type { Span } from "../run/plan/plan.js";
import { JobError } from "../base/errors.js";
import { mixedRows } from "../models/binding/model-facts.js";
import { type ColumnBuilder, createColumnBuilder, filterColumn } from "../columns/columns.js";
import { createPredictionColumn } from "./pack/prediction-column.js";
import { type Tensor, columnTypeOfTensor } from "../columns/tensor.js";

/**
 * A piece of a span whose rows are being read: all rows of the span, or consecutive ones if the span has more bytes than
 * memory holds at once. Inside a piece rows are numbered as `SpanRows` does: those that are left after the filter, from
 * the piece's first row on, without a gap.
 */
export interface OpenSpan {
  readonly span: Span;
  /** The rows of the piece; it may end before `rowEnd` if they have many bytes. */
  readonly piece: RowRange;
  readonly rows: SpanRows;
  /** Set if the rows are hashed: which rows take stored predictions. */
  readonly reuse: RowReuse | undefined;
  /** Collects the features of the piece; undefined: features are not profiled. */
  readonly features: FeatureRows | undefined;
  /** Ends of its batches, in the order they were submitted. */
  readonly predictions: Promise<void>[];
  /** Rows of the span that the model was given so far, by what computed them. */
  readonly scored: ScoredRows;
  /** The first fault of each row of the span that is set aside, by the run's number of the row. */
  readonly faults: ReadonlyMap<number, RowFault>;
  /** Rows of the piece that came and were not filtered out. */
  readonly keptRows: number;
  /** The run's number of a row of the piece, which is numbered as in `rows`. */
  rowInRun(this: void, row: number): number;
  /** The pieces of the span that come before this one. */
  readonly before: SpanTotals;
  /**
   * Takes rows [from, to) of those that a batch was made from; `row` is the run's number of row `from`. Returns
   * which rows of the batch these are, and how many were filtered out.
   */
  take(batch: RecordBatch, read: BatchRows): { range: BatchRows; filtered: number };
  /** Sets a row aside, or throws where bad rows end the run. The fault's row is numbered as in `rows`. */
  onFault(fault: RowFault): void;
  /** Takes a row out of the output; false when it was before. The fault's row is the run's. */
  setAside(fault: RowFault): boolean;
}

export interface ScoredRows {
  byTrees: number;
  byRuntime: number;
}

/** What neighbouring pieces of a span add up to. */
export interface SpanTotals {
  /** Rows that came and were not filtered out. */
  readonly keptRows: number;
  /** Rows for the target. */
  readonly rowCount: number;
  /** The rows that took a stored prediction. */
  readonly reused: number;
  readonly faults: ReadonlyMap<number, RowFault>;
  readonly scored: Readonly<ScoredRows>;
  /** The profile of the rows for the target; undefined: there are no pieces. */
  readonly profile: SpanProfile | undefined;
}

const noPieces: SpanTotals = {
  keptRows: 0,
  rowCount: 0,
  reused: 0,
  faults: new Map(),
  scored: { byTrees: 0, byRuntime: 0 },
  profile: undefined,
};

interface OpenSpanOptions {
  readonly contract: Contract;
  readonly span: Span;
  /** Default: the span is one piece. */
  readonly piece?: RowRange | undefined;
  readonly before?: SpanTotals | undefined;
  /** Called with each fault; its row is numbered within the run. */
  readonly onFault: (open: OpenSpan, fault: RowFault) => void;
  /** Default: rows are not hashed, and take no stored predictions. */
  readonly reuse?: Reuse | undefined;
  /** Which features are profiled; default: none. */
  readonly features?: FeaturePlan | undefined;
}

export function openSpan(options: OpenSpanOptions): OpenSpan {
  const { contract, span, piece = span, before = noPieces, onFault, features } = options;
  const faults = new Map(before.faults);
  const numbers = rowNumbers(piece);
  const report = (fault: RowFault): void => {
    onFault(open, { ...fault, row: numbers.inRun(fault.row) });
  };
  const reuse = options.reuse && createRowReuse(options.reuse, piece);
  const rows = createSpanRows({ contract, span: piece, onFault: report, reuse });
  const open: OpenSpan = {
    span,
    piece,
    before,
    rows,
    reuse,
    features: features && createFeatureRows(features),
    predictions: [],
    scored: { ...before.scored },
    faults,
    get keptRows() {
      return numbers.count;
    },
    rowInRun: numbers.inRun,
    take(batch, read) {
      const { from, to } = rowsBetween(batch, read);
      const range = { from, to, row: piece.rowStart + numbers.count };
      numbers.add(batch, range, read);
      rows.carry(batch, range);
      reportFailed(contract, batch, { range, report });
      return { range, filtered: read.to - read.from - (to - from) };
    },
    onFault: report,
    setAside(fault) {
      if (faults.has(fault.row)) {
        return false;
      }
      faults.set(fault.row, fault);
      rows.reject(numbers.inPiece(fault.row));
      return true;
    },
  };
  return open;
}

function reportFailed(
  { expressions }: Contract,
  { selection }: RecordBatch,
  {
    range: { from, to, row: first },
    report,
  }: { readonly range: BatchRows; readonly report: (fault: RowFault) => void },
): void {
  for (const { row, cause } of selection?.failed ?? []) {
    if (row >= from && row < to) {
      const place = { row: first + (row - from) };
      report(
        typeof cause === "string"
          ? { ...place, reason: "unreadable", column: undefined, value: cause }
          : { ...place, reason: "expression", column: expressions?.list[cause]?.name, value: undefined },
      );
    }
  }
}

/** The rows of a batch that were made from rows [from, to) of those that were read. */
function rowsBetween({ selection }: RecordBatch, { from, to }: BatchRows): { from: number; to: number } {
  if (selection === undefined) {
    return { from, to };
  }
  return { from: firstAtLeast(selection.indices, from), to: firstAtLeast(selection.indices, to) };
}

interface RowNumbers {
  readonly count: number;
  add(batch: RecordBatch, range: BatchRows, read: BatchRows): void;
  inRun(this: void, row: number): number;
  inPiece(row: number): number;
}

/** The numbers differ only by an offset while no row was filtered out. */
function rowNumbers({ rowStart, rowEnd }: RowRange): RowNumbers {
  let offsets: Uint32Array | undefined;
  let count = 0;
  return {
    get count() {
      return count;
    },
    add({ selection }, { from, to }, read) {
      // Where a table has removed rows, other batches of the span have all of theirs.
      offsets ??= selection && new Uint32Array(rowEnd - rowStart).map((_, row) => row);
      if (offsets !== undefined) {
        for (let row = from; row < to; row += 1) {
          offsets[count + (row - from)] = read.row - read.from + (selection?.indices[row] ?? row) - rowStart;
        }
      }
      count += to - from;
    },
    inRun: (row) => (offsets === undefined ? row : rowStart + (offsets[row - rowStart] ?? 0)),
    inPiece: (row) =>
      offsets === undefined ? row : rowStart + firstAtLeast(offsets.subarray(0, count), row - rowStart),
  };
}

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

interface SpanRowsOptions {
  readonly contract: Contract;
  readonly span: RowRange;
  /** A prediction is NaN or infinite, or the model fails; throws to end the run, or rejects the row. */
  readonly onFault: (fault: RowFault) => void;
  /** Which rows take stored predictions, and the hashes of all rows; undefined: all rows are scored. */
  readonly reuse?: RowReuse | undefined;
}

/** @public so that tests call it */
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

/** A span needs each of its rows exactly once. */
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

/** Returns how many values the tensor has for each row. */
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
