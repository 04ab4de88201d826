import type { ModelSignature, TensorSignature, TensorType } from "../../../columnar/tensor.js";
import { JobError } from "../../../util/errors.js";
import type { Json } from "../ask.js";

/** TensorFlow's names of data types. */
const types: ReadonlyMap<string, TensorType> = new Map([
  ["DT_BOOL", "bool"],
  ["DT_INT8", "int8"],
  ["DT_INT16", "int16"],
  ["DT_INT32", "int32"],
  ["DT_INT64", "int64"],
  ["DT_UINT8", "uint8"],
  ["DT_UINT16", "uint16"],
  ["DT_UINT32", "uint32"],
  ["DT_UINT64", "uint64"],
  ["DT_HALF", "float16"],
  ["DT_FLOAT", "float32"],
  ["DT_DOUBLE", "float64"],
  ["DT_STRING", "string"],
]);

/** The signature that requests use if they name none. */
const standard = "serving_default";

/**
 * The signature in TensorFlow Serving's metadata; undefined if the answer has none.
 * @throws JobError MODEL_INVALID if the model has signatures, and not the one that requests use
 */
export function signatureOf({ metadata }: Json, doing: string): ModelSignature | undefined {
  const { signature_def: all } = Object(metadata) as Json;
  const { signature_def: byName } = Object(all) as Json;
  if (typeof byName !== "object" || byName === null) {
    return undefined;
  }
  const found = (byName as Json)[standard];
  if (found === undefined) {
    const names = Object.keys(byName).join(", ");
    throw new JobError("MODEL_INVALID", `${doing}: it has the signatures ${names}, and not ${standard}`, {
      hint: `save the model with a signature named ${standard}`,
    });
  }
  const { inputs, outputs } = Object(found) as Json;
  return { inputs: tensorsIn(inputs), outputs: tensorsIn(outputs) };
}

function tensorsIn(given: unknown): TensorSignature[] {
  return Object.entries(Object(given) as Json).map(([name, described]) => {
    const { dtype, tensor_shape: shape } = Object(described) as Json;
    return { name, dtype: types.get(String(dtype)) ?? String(dtype), shape: sizesOf(shape) };
  });
}

/** The sizes of a shape; of an unknown one, rows of any width. */
function sizesOf(shape: unknown): (number | null)[] {
  const { dim, unknown_rank: isUnknown } = Object(shape) as Json;
  if (isUnknown === true) {
    return [null, null];
  }
  const sizes: readonly unknown[] = Array.isArray(dim) ? dim : [];
  return sizes.map((one) => {
    const size = Number((Object(one) as Json)["size"]);
    return Number.isSafeInteger(size) && size >= 0 ? size : null;
  });
}
