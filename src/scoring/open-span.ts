import type { Contract } from "../binding/contract.js";
import { createFeatureRows, type FeaturePlan, type FeatureRows } from "../checks/profile/features.js";
import type { SpanProfile } from "../checks/profile/profile.js";
import { createRowReuse, type Reuse, type RowReuse } from "../packing/row-reuse.js";
import type { RowFault, BatchRows } from "../packing/input-target.js";
import { createSpanRows, type SpanRows } from "./span-rows.js";
import type { RecordBatch, RowRange } from "../columnar/types.js";
import type { Span } from "../plan/plan.js";

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
  /** Rows of the piece that came, also those that were filtered out. */
  readonly readRows: number;
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

export interface OpenSpanOptions {
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
  let readRows = 0;
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
    get readRows() {
      return readRows;
    },
    get keptRows() {
      return numbers.count;
    },
    rowInRun: numbers.inRun,
    take(batch, read) {
      const { from, to } = rowsBetween(batch, read);
      const range = { from, to, row: piece.rowStart + numbers.count };
      numbers.add(batch, range, read);
      readRows += read.to - read.from;
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

/** Reports the rows of a range for which an expression failed. */
function reportFailed(
  { expressions }: Contract,
  { selection }: RecordBatch,
  { range: { from, to, row: first }, report }: { readonly range: BatchRows; readonly report: (fault: RowFault) => void },
): void {
  for (const { row, expression } of selection?.failed ?? []) {
    const column = expressions?.list[expression]?.name;
    if (column !== undefined && row >= from && row < to) {
      report({ reason: "expression", column, row: first + (row - from), value: undefined });
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

/** Index of the first value that is `limit` or more; `sorted` is ascending. */
function firstAtLeast(sorted: Uint32Array, limit: number): number {
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

interface RowNumbers {
  /** Rows so far. */
  readonly count: number;
  add(batch: RecordBatch, range: BatchRows, read: BatchRows): void;
  /** Converts a row's number in the piece to the run's number. */
  inRun(this: void, row: number): number;
  /** Converts the run's number of a row to its number in the piece. */
  inPiece(row: number): number;
}

/** Maps rows of a piece to rows of the run. The numbers differ only by an offset while no row was filtered out. */
function rowNumbers({ rowStart, rowEnd }: RowRange): RowNumbers {
  let offsets: Uint32Array | undefined;
  let count = 0;
  return {
    get count() {
      return count;
    },
    add({ selection }, { from, to }, read) {
      if (selection !== undefined) {
        offsets ??= new Uint32Array(rowEnd - rowStart);
        for (let row = from; row < to; row += 1) {
          offsets[count + (row - from)] = read.row - read.from + (selection.indices[row] ?? 0) - rowStart;
        }
      }
      count += to - from;
    },
    inRun: (row) => (offsets === undefined ? row : rowStart + (offsets[row - rowStart] ?? 0)),
    inPiece: (row) =>
      offsets === undefined ? row : rowStart + firstAtLeast(offsets.subarray(0, count), row - rowStart),
  };
}
