import type { TextTensors } from "../columnar/tensor.js";

/** The value of a model without text tensors. */
export const noTexts: TextTensors = { inputs: [], outputs: [] };

// A text tensor that is passed as numbers (texts.ts) is replaced by its distinct values and, for each of its elements, an
// index into them. A tensor may be both an input and an output.

/** The name of an input's distinct values: string [distinct]. */
export const inputValues = (name: string): string => `infer-batch/entries for ${name}`;
/** The name of an input's indices: int64, in the input's shape. */
export const inputIndices = (name: string): string => `infer-batch/places for ${name}`;
/** The name of an output's distinct values: string [distinct]. */
export const outputValues = (name: string): string => `infer-batch/entries of ${name}`;
/** The name of an output's indices: int64 [elements]. */
export const outputIndices = (name: string): string => `infer-batch/places of ${name}`;
/** The name of an output's shape: int64 [dimensions]. */
export const outputShape = (name: string): string => `infer-batch/shape of ${name}`;
