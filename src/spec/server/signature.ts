import { isTensorType, type ModelSignature, numericTensorTypes, type TensorSignature } from "../../columnar/tensor.js";
import { z } from "../../util/zod.js";

const types = [...numericTensorTypes, "string"].join(", ");
const error = `expected a type such as float32, "float32[10]" for 10 values in a row, or "float32[]" for any number; types are ${types}`;

/** A tensor as a spec describes it: its type, and the values of a row. */
const tensor = z
  .string({ error })
  .regex(/^[a-z0-9]+(\[\d{0,7}\])?$/, error)
  .transform(tensorOf)
  .refine(({ dtype }) => isTensorType(dtype), { error, params: { showFound: true } });

function tensorOf(given: string): Omit<TensorSignature, "name"> {
  const [, dtype = "", isList, width = ""] = /^([a-z0-9]+)(\[(\d*)\])?$/.exec(given) ?? [];
  return { dtype, shape: isList === undefined ? [null] : [null, width === "" ? null : Number(width)] };
}

const tensors = z
  .record(z.string().min(1), tensor)
  .refine((given) => Object.keys(given).length > 0, "expected at least one entry")
  .transform((given) => Object.entries(given).map(([name, { dtype, shape }]) => ({ name, dtype, shape })));

/** The inputs and outputs of a model whose server does not describe them. */
export const signature = z.strictObject({
  inputs: tensors.describe(
    "Inputs by name, in the model's order, each with the type of a row's value: float32, string, or \"float32[10]\" for a list of 10 values.",
  ),
  outputs: tensors.describe('Outputs by name, written as inputs are; "float32[]" is a list of any length.'),
}) satisfies z.ZodType<ModelSignature>;
