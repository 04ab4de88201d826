import type { FoundModel, ModelFile } from "../../models/port.js";
import { JobError, reworded } from "../../util/errors.js";

/** A model on this machine. */
export interface ComparedModel extends FoundModel {
  readonly model: ModelFile;
  /** Whether an option names it: else it is the model of the spec. */
  readonly isGiven: boolean;
}

/**
 * Binds a model as the spec says. The bindings are those of the spec's own model, and must not be changed for one that an
 * option names.
 * @throws JobError CONTRACT with a hint that says where a model has bindings of its own
 */
export async function bindingCompared<T>({ isGiven }: ComparedModel, work: () => Promise<T>): Promise<T> {
  try {
    return await work();
  } catch (error) {
    if (isGiven && error instanceof JobError && error.code === "CONTRACT") {
      throw reworded(error, {
        hint: "compare binds each model by model.inputs and model.outputs of the spec; for a model with other inputs or outputs: name it under challenger, with inputs and outputs of its own, and each run compares the two",
      });
    }
    throw error;
  }
}
