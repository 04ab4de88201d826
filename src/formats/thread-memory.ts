import { decodedInputs, type DecodedBinding, inputWidth, type Projection } from "../binding/contract.js";
import { bytesPerValue, type ColumnType } from "../columnar/types.js";
import { assertNever } from "../util/errors.js";

/**
 * What decoding may hold for each thread that there could be. A thread that decodes holds a page of each column, mostly
 * of 128 Ki values: 100 MB where there are 200 columns of floats.
 */
const decodingBytesPerThread = 64 * 1024 * 1024;
const pageValues = 128 * 1024;
/** Longer ones are texts, lists and the like, whose pages have fewer. */
const mostValueBytes = 8;

/** Fewer than `threads` where each holds more than its part. */
export function decodingThreads(threads: number, projection: Projection): number {
  const fitting = Math.floor((threads * decodingBytesPerThread) / (rowBytes(projection) * pageValues));
  return Math.max(1, Math.min(threads, fitting));
}

/** What a row of the columns that are read takes, about; texts and lists are guessed. */
export function rowBytes(projection: Projection): number {
  const carried = projection.passthrough.map(({ source }) => valueBytes(source.type));
  const features = decodedInputs(projection).map((binding) => featureBytes(binding, projection));
  return [...carried, ...features].reduce((sum, bytes) => sum + bytes, 1);
}

function featureBytes(binding: DecodedBinding, projection: Projection): number {
  switch (binding.kind) {
    case "matrix":
      return binding.columns.reduce((sum, { type }) => sum + valueBytes(type), 0);
    case "text":
      return valueBytes(binding.column.type);
    case "list":
    case "padded":
      return inputWidth(binding, projection) * valueBytes(elementOf(binding.column.type));
    default:
      return assertNever(binding);
  }
}

function elementOf(type: ColumnType): ColumnType {
  return typeof type === "object" && type.kind === "list" ? elementOf(type.element) : type;
}

function valueBytes(type: ColumnType): number {
  return Math.min(mostValueBytes, bytesPerValue(type));
}
