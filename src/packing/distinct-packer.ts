import type { DistinctRows } from "./distinct-rows.js";
import { createPacker, type Packer, type PackerOptions } from "./packer.js";
import type { RowReuse } from "./row-reuse.js";
import { createRowStore, type RowStore } from "./row-store.js";
import { createStage } from "./stage.js";

export interface DistinctPackerOptions extends PackerOptions {
  /** The distinct rows of the span that is packed: the packer records there which rows repeat. */
  readonly distinct: () => DistinctRows;
  /** Finds rows that repeat. Default: one with the usual limits. */
  readonly store?: RowStore;
  /** Which rows of the span that is packed take stored predictions. Default: none does. */
  readonly reuse?: () => RowReuse | undefined;
}

/**
 * Packs each row of a span that is like none before it and takes no stored prediction. All rows are packed once to be compared as the model would see
 * them, and those that are new a second time, for the model. Batches number their rows by distinctIndex.
 */
export function createDistinctPacker({
  distinct,
  store = createRowStore(),
  reuse,
  onFault,
  ...options
}: DistinctPackerOptions): Packer {
  const packer = createPacker({ ...options, onFault() {} }); // the comparison has reported them
  const stage = createStage(options.contract, onFault);
  let span: DistinctRows | undefined;
  return {
    ...packer,
    *push(batch, { from, to, row }) {
      const rows = distinct();
      if (rows !== span) {
        store.clear();
        span = rows;
      }
      for (let at = from; at < to; at += stage.rows) {
        const range = { from: at, to: Math.min(to, at + stage.rows), row: row + (at - from) };
        const before = rows.rowCount;
        stage.pack(batch, range, (tensors) => {
          const count = range.to - range.from;
          store.add(tensors, count, rows, reuse?.()?.take(tensors, range.from, count));
        });
        for (const run of newRuns(rows, before)) {
          const distinctIndex = rows.indices[run.from] ?? 0;
          const shift = range.from - before;
          yield* packer.push(batch, { from: run.from + shift, to: run.to + shift, row: rows.rowStart + distinctIndex });
        }
      }
    },
  };
}

/** Neighbouring rows of a span, from row `from` on, that are like none before them. */
function newRuns(rows: DistinctRows, from: number): { from: number; to: number }[] {
  const runs: { from: number; to: number }[] = [];
  const { indices, rowCount } = rows;
  for (let row = from; row < rowCount; row += 1) {
    if (rows.firstAt(indices[row] as number) !== row) {
      continue;
    }
    const last = runs.at(-1);
    if (last?.to === row) {
      last.to += 1;
    } else {
      runs.push({ from: row, to: row + 1 });
    }
  }
  return runs;
}
