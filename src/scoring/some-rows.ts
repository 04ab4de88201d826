import type { Contract } from "../binding/contract.js";
import { rowState, selectRows } from "../packing/select-rows.js";
import type { RecordBatch } from "../columnar/types.js";
import type { DecodedRows } from "./read-ranges.js";
import type { SoughtRows } from "./reuse.js";

/** Leaves rows out, as if `input.where` had. @param isScored by the run's number of a row; undefined: all stay */
export async function* onlyRows(
  pieces: AsyncIterable<DecodedRows>,
  contract: Pick<Contract, "passthrough">,
  isScored: ((row: number) => boolean) | undefined,
): AsyncGenerator<DecodedRows> {
  for await (const piece of pieces) {
    yield isScored === undefined ? piece : { ...piece, batch: someRows(piece, contract, isScored) };
  }
}

function someRows(
  { rowStart, batch }: DecodedRows,
  contract: Pick<Contract, "passthrough">,
  isScored: (row: number) => boolean,
): RecordBatch {
  const { selection, rowCount } = batch;
  const states = new Uint16Array(rowCount);
  for (let row = 0; row < rowCount; row += 1) {
    const inRun = rowStart + (selection?.indices[row] ?? row);
    states[row] = isScored(inRun) ? rowState.kept : rowState.filtered;
  }
  for (const { row, expression } of selection?.failed ?? []) {
    if (states[row] === rowState.kept) {
      states[row] = rowState.kept + 1 + expression;
    }
  }
  const { selection: _before, ...whole } = batch;
  const left = selectRows(whole, states, contract);
  if (selection === undefined || left.selection === undefined) {
    return left;
  }
  const indices = left.selection.indices.map((row) => selection.indices[row] ?? row);
  return { ...left, selection: { ...left.selection, readCount: selection.readCount, indices } };
}

/** Rows [from, to) of those that a batch was made from. */
export function soughtRows(
  { rowStart, batch }: Pick<DecodedRows, "rowStart" | "batch">,
  from: number,
  to: number,
): SoughtRows {
  const { selection } = batch;
  return {
    rowStart: rowStart + from,
    rowEnd: rowStart + to,
    present: () =>
      selection === undefined
        ? Float64Array.from({ length: to - from }, (_, index) => rowStart + from + index)
        : Float64Array.from(selection.indices.filter((row) => row >= from && row < to)).map((row) => rowStart + row),
  };
}
