import type { FeatureOrder } from "./feature-order.js";

/** What is known of a model from its file, apart from its inputs and outputs. */
export interface ModelTraits {
  /** The program that exported it; "" where the file does not say. */
  readonly producer: string;
  /** Outputs that are no tensors, with their ONNX types: "seq(map(int64,tensor(float)))". */
  readonly otherOutputs: readonly { readonly name: string; readonly type: string }[];
  /** The model's operators that compute a scale from all values of a batch, each once. */
  readonly batchScales: readonly string[];
  /** It has decision trees that may be compiled: not where it has external data, since compiling reads its file alone. */
  readonly hasTrees: boolean;
  /** The order of its columns, if its metadata has it. */
  readonly features: FeatureOrder | undefined;
}

/** How an output becomes a tensor, by the program that exported the model. */
const exporters: readonly { readonly producer: RegExp; readonly remedy: string }[] = [
  { producer: /skl2onnx/i, remedy: "export the model with options={'zipmap': False} (skl2onnx)" },
  { producer: /onnxmltools/i, remedy: "export the model with zipmap=False (onnxmltools)" },
  {
    producer: /catboost/i,
    remedy: "CatBoost's ONNX export has no option for it: take the ZipMap out of the file, as docs/models.md shows",
  },
];
const anyExporter =
  "export the model with zipmap=False (skl2onnx: options={'zipmap': False}), or take the ZipMap out of the file, as docs/models.md shows";

/** What to do for an output that is no tensor. A classifier's map of probabilities is made by a ZipMap, a sequence is not. */
export function tensorRemedy({ producer, otherOutputs }: ModelTraits, output: string | undefined): string {
  const type = otherOutputs.find(({ name }) => name === output)?.type ?? "map(";
  return type.includes("map(")
    ? (exporters.find((exporter) => exporter.producer.test(producer))?.remedy ?? anyExporter)
    : "export the model with one tensor in its place, whose first dimension is the batch's";
}

/** Outputs that a job would write if they were tensors, one text each: none where it names the outputs that it wants. */
export function lostOutputs(traits: ModelTraits, outputs: Readonly<Record<string, string>> | undefined): string[] {
  return outputs !== undefined
    ? []
    : traits.otherOutputs.map(
        ({ name, type }) =>
          `output \`${name}\` of the model is ${type}, no tensor, and is not written: ${tensorRemedy(traits, name)}; or name under model.outputs those that are wanted`,
      );
}

/** Why a prediction depends on the other rows of its batch; undefined: nothing in the model says so. */
export function batchDependence({ batchScales }: ModelTraits): string | undefined {
  return batchScales.length === 0
    ? undefined
    : `the model quantises by all values of a batch (${batchScales.join(", ")}): a prediction depends somewhat on the rows that are scored with it, and may differ from run to run; docs/models.md tells what to do`;
}
