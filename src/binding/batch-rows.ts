import { JobError } from "../util/errors.js";
import type { Tensor } from "../columnar/tensor.js";

/** What its author does about a model that gives no row for each row of a batch. */
export const keepRows =
  "export the model so that the first dimension of each output is the batch's, and reduce over the other axes only; outputs that have it can be chosen under model.outputs";

/** The model gave an output that has not one row for each row of the batch. */
export function mixedRows(output: string, { dtype, dims }: Pick<Tensor, "dtype" | "dims">, rows: number): JobError {
  const found = `output \`${output}\` came as ${dtype} [${dims.join(",")}] for a batch of ${rows} rows`;
  return new JobError("CONTRACT", `running the model: ${found}: the model mixes the rows of a batch`, {
    hint: keepRows,
  });
}
