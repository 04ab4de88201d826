// What takes the place of a tensor of texts that is passed as numbers (onnx-texts.ts).

/** The texts that differ. */
export const entriesOf = (name: string): string => `infer-batch/entries/${name}`;
/** For each text which of those it is. */
export const placesOf = (name: string): string => `infer-batch/places/${name}`;
/** Of an output, as the model makes it. */
export const shapeOf = (name: string): string => `infer-batch/shape/${name}`;
