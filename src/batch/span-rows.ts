import { JobError } from "../errors.js";
import type { Contract, OutputBinding } from "./contract.js";
import {
  allocate,
  copyValues,
  type NamedColumn,
  type OutputRows,
  type RecordBatch,
  type Tensor,
  type Values,
} from "./types.js";

/** The output of one span, filled as its rows are read and scored, in whatever order the batches end. */
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
  /** All rows, once each was carried and predicted. */
  finish(): OutputRows;
}

/** An output column that is being filled. */
type Growing = { -readonly [K in keyof NamedColumn]: NamedColumn[K] };

function growing({ column, type }: { column: string; type: NamedColumn["type"] }, length: number): Growing {
  return { name: column, type, width: 1, data: allocate(type, length), valid: undefined };
}

export interface SpanRowsOptions {
  readonly contract: Contract;
  /** Rows [rowStart, rowEnd) of the run. */
  readonly span: { readonly rowStart: number; readonly rowEnd: number };
  /** A prediction of this row is NaN or infinite; throws to end the run. */
  readonly onNotFinite: (column: string, row: number, value: number) => void;
}

export function createSpanRows({ contract, span, onNotFinite }: SpanRowsOptions): SpanRows {
  const length = span.rowEnd - span.rowStart;
  const carried = contract.passthrough.map((binding) => growing(binding, length));
  const predicted = contract.outputs.map((binding) => growing(binding, length));
  const isCarried = new Uint8Array(length);
  const isPredicted = new Uint8Array(length);
  return {
    carry(batch, { from, to, row }) {
      for (const [index, target] of carried.entries()) {
        // Input matrices come first in a record batch.
        const source = batch.columns[contract.inputs.length + index];
        if (source === undefined) {
          throw new RangeError(`a record batch of ${batch.columns.length} columns lacks ${target.name}`);
        }
        const at = row - span.rowStart;
        copyValues(target.data, at, source.data, from, to);
        if (source.valid !== undefined) {
          target.valid ??= new Uint8Array(length).fill(1);
          target.valid.set(source.valid.subarray(from, to), at);
        }
      }
      markOnce(isCarried, row - span.rowStart, to - from);
    },
    predict(outputs, { rowStart, rowCount, packedRows }) {
      const at = rowStart - span.rowStart;
      markOnce(isPredicted, at, rowCount);
      for (const [index, binding] of contract.outputs.entries()) {
        const target = predicted[index];
        const tensor = outputs.get(binding.tensor);
        if (target === undefined || tensor === undefined) {
          throw new RangeError(`the engine gave no tensor ${binding.tensor}`);
        }
        pick(binding, tensor, packedRows, { target: target.data, at, rowCount });
        const bad = firstNotFinite(target.data, at, at + rowCount);
        if (bad !== undefined) {
          onNotFinite(binding.column, span.rowStart + bad, Number(target.data[bad]));
        }
      }
    },
    finish() {
      // The last line of defence against a batch that was dropped, or came twice in the place of another.
      if (isCarried.includes(0) || isPredicted.includes(0)) {
        throw new Error(
          `row ${span.rowStart + Math.max(isCarried.indexOf(0), isPredicted.indexOf(0))} was not carried or not predicted`,
        );
      }
      return { rowCount: length, columns: [...carried, ...predicted] };
    },
  };
}

/** Each row of a span comes once: twice would be as wrong as never. */
function markOnce(seen: Uint8Array, at: number, rowCount: number): void {
  if (at < 0 || at + rowCount > seen.length || seen.subarray(at, at + rowCount).includes(1)) {
    throw new RangeError(`rows ${at} to ${at + rowCount} of a span of ${seen.length} came twice or are not of it`);
  }
  seen.fill(1, at, at + rowCount);
}

/** Copies one value a row out of a tensor [packedRows], [packedRows, 1] or [packedRows, K]. */
function pick(
  binding: OutputBinding,
  tensor: Tensor,
  packedRows: number,
  { target, at, rowCount }: { target: Values; at: number; rowCount: number },
): void {
  const width = tensor.dims.length === 1 ? 1 : (tensor.dims[1] ?? 0);
  const element = binding.kind === "element" ? binding.element : 0;
  const fits =
    tensor.dims[0] === packedRows &&
    tensor.dims.length <= 2 &&
    (binding.kind === "element" ? element < width : width === 1);
  if (!fits || tensor.dtype !== binding.type) {
    throw new JobError(
      "MODEL_FAILED",
      `running the model: output \`${binding.tensor}\` came as ${tensor.dtype} [${tensor.dims.join(",")}] for a batch of ${packedRows} rows`,
      { hint: "each output must hold one row for each row of the batch, as its signature says" },
    );
  }
  if (width === 1) {
    copyValues(target, at, tensor.data, 0, rowCount);
    return;
  }
  // One loop for all types: TypeScript cannot see that the two arrays agree.
  const source = tensor.data as Float64Array;
  const values = target as Float64Array;
  for (let row = 0, from = element; row < rowCount; row += 1, from += width) {
    values[at + row] = source[from] as number;
  }
}

function firstNotFinite(values: Values, from: number, to: number): number | undefined {
  if (!(values instanceof Float32Array || values instanceof Float64Array)) {
    return undefined;
  }
  for (let index = from; index < to; index += 1) {
    if (!Number.isFinite(values[index])) {
      return index;
    }
  }
  return undefined;
}
