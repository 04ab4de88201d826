import type { DuckDBDataChunk } from "@duckdb/node-api";
import { type DecodedBinding, decodedInputs, type Projection } from "../../binding/contract.js";
import { selectRows } from "../../packing/select-rows.js";
import { tensorElement } from "../../columnar/tensor.js";
import type { DecodedInput, RecordBatch } from "../../columnar/types.js";
import { readColumn, readScalars, readMatrix } from "../../duckdb/read-vector.js";
import { JobError } from "../../util/errors.js";
import type { SliceRequest } from "../port.js";

/** Rows come in file order without a gap, whatever DuckDB's threads do: a batch starts where the last one ended. */
export function checkRowNumbers(chunk: DuckDBDataChunk, expected: number, slice: SliceRequest): void {
  const numbers = readScalars(chunk, 0, "int64").data;
  const first = Number(numbers[0]);
  const last = Number(numbers[chunk.rowCount - 1]);
  if (first !== expected || last !== expected + chunk.rowCount - 1 || last >= slice.rowEnd) {
    throw new JobError(
      "SHARD_CORRUPT",
      `reading ${slice.file.path}: rows ${first}..${last} came where row ${expected} and the ${chunk.rowCount - 1} after it were expected`,
      { hint: "the file's row groups do not agree with its footer; write the shard again" },
    );
  }
}

/** `numbers`: columns before those that the projection asks for. */
export function recordBatch(chunk: DuckDBDataChunk, projection: Projection, numbers = 1): RecordBatch {
  const { passthrough, expressions } = projection;
  const inputs = decodedInputs(projection);
  const first = expressions === null ? numbers : numbers + 1;
  const batch = {
    rowCount: chunk.rowCount,
    inputs: inputs.map((binding, index) => readInput(chunk, index + first, binding)),
    carried: passthrough.map(({ source }, index) => readColumn(chunk, index + first + inputs.length, source.type)),
  };
  return expressions === null ? batch : selectRows(batch, readStates(chunk, numbers), projection);
}

function readStates(chunk: DuckDBDataChunk, index: number): Uint16Array {
  const { data } = readScalars(chunk, index, "uint16");
  if (!(data instanceof Uint16Array)) {
    throw new TypeError("states of rows are 16-bit numbers");
  }
  return data;
}

function readInput(chunk: DuckDBDataChunk, index: number, binding: DecodedBinding): DecodedInput {
  if (binding.kind === "text") {
    const column = readColumn(chunk, index, "utf8");
    if (column.kind !== "bytes") {
      throw new TypeError("a text column is read as bytes");
    }
    return column;
  }
  const element = binding.dtype === "float16" ? "float64" : tensorElement(binding.dtype);
  if (binding.kind === "padded") {
    const column = readColumn(chunk, index, { kind: "list", element });
    if (column.kind !== "list") {
      throw new TypeError("a column of lists is read as lists");
    }
    return column;
  }
  const width = binding.kind === "list" ? binding.width : binding.columns.length;
  return width === 1 && binding.kind === "matrix"
    ? readScalars(chunk, index, element)
    : readMatrix(chunk, index, element, width);
}
