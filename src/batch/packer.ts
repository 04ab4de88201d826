import type { Contract, InputBinding } from "./contract.js";
import { type Column, copyValues, type RecordBatch, type Tensor } from "./types.js";

/** Why a value cannot be a feature. `missing`: NULL, or a value that its cast turned into NULL. */
export type RowFault = { readonly reason: "missing" | "not_finite"; readonly column: string; readonly row: number };

/** Rows [rowStart, rowStart + rowCount) of the run, packed for one call of the model. */
export interface FeatureBatch {
  readonly rowStart: number;
  /** Rows that count; a fixed batch may be padded beyond them. */
  readonly rowCount: number;
  readonly inputs: readonly (Tensor & { readonly name: string })[];
}

/** Cuts record batches of any length into batches of a fixed one. */
export interface Packer {
  /** Rows a batch: the size asked for, or the model's own. */
  readonly batchRows: number;
  /**
   * Copies rows [from, to) of a record batch whose columns start with one for each input binding. `row` is
   * the run's number of row `from`. Yields each batch that became full.
   */
  push(batch: RecordBatch, range: { from: number; to: number; row: number }): Generator<FeatureBatch>;
  /** The rows that are left, padded with zeros where the model's batch is fixed. */
  flush(): FeatureBatch | undefined;
  /** Takes back buffers that a finished batch no longer needs. */
  recycle(buffers: readonly ArrayBuffer[]): void;
}

export interface PackerOptions {
  readonly contract: Contract;
  readonly batchRows: number;
  /** Called for the first value of a batch that cannot be scored; throws to end the run. */
  readonly onFault: (fault: RowFault) => void;
}

export function createPacker({ contract, batchRows: wanted, onFault }: PackerOptions): Packer {
  const batchRows = contract.fixedBatchRows ?? wanted;
  const pool = bufferPool();
  /** One an input; empty between batches. */
  let targets: readonly Float32Array<ArrayBuffer>[] = [];
  let filled = 0;
  let firstRow = 0;
  const flush = (): FeatureBatch | undefined => {
    if (filled === 0) {
      return undefined;
    }
    const rows = contract.fixedBatchRows ?? filled;
    const inputs = contract.inputs.map((binding, index) => tensorOf(binding, targets[index], { filled, rows }));
    const batch = { rowStart: firstRow, rowCount: filled, inputs };
    targets = [];
    filled = 0;
    return batch;
  };
  return {
    batchRows,
    flush,
    *push(batch, { from, to, row }) {
      for (let at = from; at < to; ) {
        if (filled === 0) {
          targets = contract.inputs.map(({ columns }) => pool.take(batchRows * columns.length));
          firstRow = row + (at - from);
        }
        const rows = Math.min(to - at, batchRows - filled);
        for (const [index, target] of targets.entries()) {
          const range = { from: at, to: at + rows, row: row + (at - from) };
          copyRows(target, filled, { binding: contract.inputs[index], column: batch.columns[index], range }, onFault);
        }
        at += rows;
        filled += rows;
        const full = filled === batchRows ? flush() : undefined;
        if (full !== undefined) {
          yield full;
        }
      }
    },
    recycle(buffers) {
      pool.giveBack(buffers);
    },
  };
}

interface RowRange {
  readonly from: number;
  readonly to: number;
  /** The run's number of row `from`. */
  readonly row: number;
}

type OnFault = PackerOptions["onFault"];

function copyRows(
  target: Float32Array<ArrayBuffer>,
  filled: number,
  { binding, column, range }: { binding: InputBinding | undefined; column: Column | undefined; range: RowRange },
  onFault: OnFault,
): void {
  if (binding === undefined || column === undefined) {
    throw new RangeError("a record batch has fewer columns than the contract has inputs");
  }
  const { width } = column;
  const at = filled * width;
  const end = at + (range.to - range.from) * width;
  checkMissing(column, binding, range, onFault);
  copyValues(target, at, column.data, range.from * width, range.to * width);
  checkFinite(target.subarray(at, end), binding, range.row, onFault);
}

function tensorOf(
  binding: InputBinding,
  target: Float32Array<ArrayBuffer> | undefined,
  { filled, rows }: { filled: number; rows: number },
): Tensor & { name: string } {
  const width = binding.columns.length;
  if (target === undefined) {
    throw new RangeError(`input ${binding.input} was not packed`);
  }
  target.fill(0, filled * width, rows * width);
  return { name: binding.input, dtype: binding.dtype, dims: [rows, width], data: target.subarray(0, rows * width) };
}

function checkMissing({ valid, width }: Column, binding: InputBinding, range: RowRange, onFault: OnFault): void {
  const found = valid?.indexOf(0, range.from * width) ?? -1;
  if (found >= 0 && found < range.to * width) {
    const row = range.row + Math.floor(found / width) - range.from;
    onFault({ reason: "missing", column: binding.columns[found % width]?.name ?? "", row });
  }
}

/**
 * A sum of float32 values cannot overflow in float64, so it is finite exactly when every value is. Four
 * sums: one would wait for its own last addition.
 */
function checkFinite(values: Float32Array, binding: InputBinding, row: number, onFault: OnFault): void {
  let a = 0;
  let b = 0;
  let c = 0;
  let d = 0;
  const whole = values.length & ~3;
  for (let index = 0; index < whole; index += 4) {
    a += values[index] as number;
    b += values[index + 1] as number;
    c += values[index + 2] as number;
    d += values[index + 3] as number;
  }
  for (let index = whole; index < values.length; index += 1) {
    a += values[index] as number;
  }
  if (Number.isFinite(a + b + c + d)) {
    return;
  }
  const found = values.findIndex((value) => !Number.isFinite(value));
  const width = binding.columns.length;
  onFault({
    reason: "not_finite",
    column: binding.columns[found % width]?.name ?? "",
    row: row + Math.floor(found / width),
  });
}

interface BufferPool {
  take(length: number): Float32Array<ArrayBuffer>;
  giveBack(buffers: readonly ArrayBuffer[]): void;
}

/** Buffers come back from the engine and are filled again, so that a run allocates only its first few. */
function bufferPool(): BufferPool {
  const bySize = new Map<number, ArrayBuffer[]>();
  return {
    take(length) {
      const buffer = bySize.get(length * Float32Array.BYTES_PER_ELEMENT)?.pop();
      return buffer === undefined ? new Float32Array(length) : new Float32Array(buffer);
    },
    giveBack(buffers) {
      for (const buffer of buffers) {
        const same = bySize.get(buffer.byteLength) ?? [];
        same.push(buffer);
        bySize.set(buffer.byteLength, same);
      }
    },
  };
}
