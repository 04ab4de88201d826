import type { TextTensors } from "../columnar/tensor.js";

export const noTexts: TextTensors = { inputs: [], outputs: [] };

// What takes the place of a tensor of texts that is passed as numbers (onnx-texts.ts): the texts that differ, and for
// each of its own which one that is. A tensor may be an input and an output.

export const inputEntries = (name: string): string => `infer-batch/entries for ${name}`;
export const inputPlaces = (name: string): string => `infer-batch/places for ${name}`;
export const outputEntries = (name: string): string => `infer-batch/entries of ${name}`;
export const outputPlaces = (name: string): string => `infer-batch/places of ${name}`;
export const outputShape = (name: string): string => `infer-batch/shape of ${name}`;
