import type { FeaturePart } from "../../checks/profile/features.js";
import { createBufferPool } from "../../columns/loops/buffer-pool.js";
import { type Contract, type InputBinding, decodedInputs, maskedInput } from "../../models/binding/contract.js";
import { type BatchRows, type InputTarget, type RowFault, createInputTarget } from "./input-target.js";
import {
  type DerivedInput,
  type NamedTensor,
  type Tensor,
  type Tokenizing,
  fillOnes,
  numericBuffers,
  tensorElement,
} from "../../columns/tensor.js";
import type { RecordBatch } from "../../columns/types.js";
import type { HashedUnit } from "./feature-hasher.js";
import { allocate, copyValues } from "../../columns/values.js";

/** The outputs of one call of the model. */
export interface Predictions {
  readonly rowCount: number;
  /** The tensors, in the order asked for. */
  readonly outputs: readonly Tensor[];
  /** Rows of the tensors, with the padding. */
  readonly packedRows: number;
  /** Milliseconds inside the engine. */
  readonly ms: number;
  /** Whether the model's compiled trees computed them. */
  readonly byTrees?: boolean | undefined;
}

/** Rows that may have been scored where they were decoded: all of them were good then, and `inputs` are none. */
export interface ReadBatch extends RecordBatch {
  /** Predictions for all rows of the batch, in order; with `hashed`, for those that take no stored one. */
  readonly predictions?: readonly Predictions[] | undefined;
  /** The hashes of rows that a worker scored; undefined: the run does not hash rows. */
  readonly hashed?: HashedUnit | undefined;
  /** The measured features of rows that a worker scored, a part for each span; undefined: features are not profiled. */
  readonly features?: readonly FeaturePart[] | undefined;
}

/** Rows [rowStart, rowStart + rowCount) of the run, packed for one call of the model. */
export interface FeatureBatch {
  readonly rowStart: number;
  /** Rows that count; a fixed batch may be padded beyond them. */
  readonly rowCount: number;
  /** Rows with the padding. */
  readonly packedRows: number;
  readonly inputs: readonly NamedTensor[];
}

/** Cuts record batches of any length into batches of those lengths that are asked for. */
export interface Packer {
  /**
   * Copies rows [from, to) of a record batch. `row` is the run's number of row `from`. Yields each batch that
   * became full. The rows of all calls until
   * `flush` are consecutive.
   */
  push(batch: RecordBatch, range: BatchRows): Generator<FeatureBatch>;
  /** The rows that are left, padded with zeros where the model's batch is fixed. */
  flush(): FeatureBatch | undefined;
  /** Takes back the tensors of a scored batch, whose memory is used again. */
  recycle(inputs: readonly NamedTensor[]): void;
}

export interface PackerOptions {
  readonly contract: Contract;
  /** Rows of the next batch, where the model does not say. */
  readonly batchRows: () => number;
  /** Called for values that cannot be scored, at least one of each such row; throws to end the run, or takes the row out. */
  readonly onFault: (fault: RowFault) => void;
}

export function createPacker({ contract, batchRows: wanted, onFault }: PackerOptions): Packer {
  const pool = createBufferPool();
  const sources = sourcesOf(contract);
  let batchRows = 0;
  /** One an input; empty between batches. */
  let targets: readonly InputTarget[] = [];
  let [filled, firstRow] = [0, 0];
  const options = { nanAllowed: contract.missing === "nan", take: (bytes: number) => pool.take(bytes), onFault };
  const flush = (): FeatureBatch | undefined => {
    if (filled === 0) {
      return undefined;
    }
    const packedRows = contract.fixedBatchRows ?? filled;
    const inputs = tensorsOf(targets, filled, packedRows);
    const batch = { rowStart: firstRow, rowCount: filled, packedRows, inputs };
    targets = [];
    filled = 0;
    return batch;
  };
  return {
    flush,
    *push({ inputs }, { from, to, row }) {
      requireNext(row, filled === 0 ? row : firstRow + filled);
      for (let at = from; at < to; ) {
        if (filled === 0) {
          const size = contract.fixedBatchRows ?? wanted();
          if (size !== batchRows) {
            pool.clear();
            batchRows = size;
          }
          targets = contract.inputs.map((binding) => createInputTarget(binding, contract, { ...options, batchRows }));
          firstRow = row + (at - from);
        }
        const rows = Math.min(to - at, batchRows - filled);
        const range = { from: at, to: at + rows, row: row + (at - from) };
        for (const [index, target] of targets.entries()) {
          target.copy(inputs[sources[index] ?? -1], range, filled);
        }
        at += rows;
        filled += rows;
        const full = filled === batchRows ? flush() : undefined;
        if (full !== undefined) {
          yield full;
        }
      }
    },
    recycle(inputs) {
      pool.release(numericBuffers(inputs));
    },
  };
}

/** A batch is of rows that follow on each other. */
function requireNext(row: number, due: number): void {
  if (row !== due) {
    throw new RangeError(`row ${row} came where row ${due} was due`);
  }
}

/** Inputs that shrink, and have the same limit, are as wide as the longest row in any of them. */
function tensorsOf(targets: readonly InputTarget[], filled: number, rows: number): NamedTensor[] {
  const widths = new Map<number, number>();
  for (const { shrinks } of targets) {
    if (shrinks !== undefined) {
      // No model takes rows of no element.
      widths.set(shrinks.limit, Math.max(1, shrinks.longest, widths.get(shrinks.limit) ?? 0));
    }
  }
  return targets.map((target) =>
    target.tensor(filled, rows, target.shrinks === undefined ? undefined : widths.get(target.shrinks.limit)),
  );
}

/** For each input, its index among the decoded ones: a mask is made from the lists of another input. */
export function sourcesOf(contract: Contract): number[] {
  const decoded = decodedInputs(contract);
  return contract.inputs.map((binding) =>
    decoded.indexOf(binding.kind === "mask" ? maskedInput(contract, binding.of) : binding),
  );
}

/**
 * Rows [from, to) of a batch as a batch of their own, copied: for finding the row that makes a model fail.
 * `inputs` hold the whole batch, also after its buffers were transferred.
 */
export function sliceBatch(
  { rowStart, packedRows }: FeatureBatch,
  inputs: readonly NamedTensor[],
  { from, to, fixedBatchRows }: { from: number; to: number; fixedBatchRows: number | null },
): FeatureBatch {
  const rows = fixedBatchRows ?? to - from;
  return {
    rowStart: rowStart + from,
    rowCount: to - from,
    packedRows: rows,
    inputs: inputs.map((input) => sliceTensor(input, packedRows, { from, to, rows })),
  };
}

/** Rows [from, to) of a tensor, copied. */
export function sliceRows<T extends Tensor>(tensor: T, from: number, to: number): T {
  return sliceTensor(tensor, tensor.dims[0] ?? 0, { from, to, rows: to - from });
}

function sliceTensor<T extends Tensor>(
  tensor: T,
  packedRows: number,
  { from, to, rows }: { from: number; to: number; rows: number },
): T {
  const dims = [rows, ...tensor.dims.slice(1)];
  if (tensor.dtype === "string") {
    const { offsets, bytes } = tensor.data;
    const [start, end] = [offsets[from] ?? 0, offsets[to] ?? 0];
    const own = new Uint32Array(rows + 1).fill(end - start); // rows after the last are empty texts
    own.set(offsets.subarray(from, to).map((offset) => offset - start));
    return { ...tensor, dims, data: { offsets: own, bytes: bytes.slice(start, end) } };
  }
  const width = tensor.data.length / packedRows;
  const data = allocate(tensorElement(tensor.dtype), rows * width);
  copyValues(data, 0, tensor.data, from * width, to * width);
  return { ...tensor, dims, data };
}

/** Inputs of a batch of zeros and empty texts. */
export function blankInputs(contract: Contract, rows: number): NamedTensor[] {
  return contract.inputs.flatMap((binding): NamedTensor[] =>
    binding.kind === "text" && binding.tokens !== undefined
      ? blankTokens(binding.input, binding.tokens, rows)
      : [blankInput(binding, contract, rows)],
  );
}

/** Tokens of a blank text: most texts are much shorter than the longest that a model takes. */
const blankWidth = 64;

/** Texts of as many tokens as a usual text has, without padding: batches of blank rows tell how long a model takes. */
function blankTokens(
  input: string,
  { dtype, width: most, shrink, masks, types }: Tokenizing,
  rows: number,
): NamedTensor[] {
  const width = shrink ? Math.min(most, blankWidth) : most;
  const blank = ({ input: name, dtype: type }: DerivedInput, value: 0 | 1): NamedTensor => {
    const data = allocate(tensorElement(type), rows * width);
    if (value === 1) {
      fillOnes(data, type);
    }
    return { name, dtype: type, dims: [rows, width], data };
  };
  return [blank({ input, dtype }, 0), ...masks.map((mask) => blank(mask, 1)), ...types.map((one) => blank(one, 0))];
}

function blankInput(binding: InputBinding, contract: Contract, rows: number): NamedTensor {
  return createInputTarget(binding, contract, {
    batchRows: rows,
    nanAllowed: true,
    take: (bytes) => new ArrayBuffer(bytes),
    onFault() {},
  }).tensor(0, rows);
}
