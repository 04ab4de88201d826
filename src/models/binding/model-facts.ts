import { isRecord } from "../../base/guards.js";
import type { ModelSignature, Tensor } from "../../columns/tensor.js";
import { JobError } from "../../base/errors.js";

/** The columns that a model takes as one input, in its order, and what says so. */
export interface FeatureOrder {
  readonly names: readonly string[];
  /** Where the names are, as messages show it. */
  readonly from: string;
}

/**
 * Keys under which people keep the names: ONNX has no place of its own for them, and the converters of scikit-learn,
 * LightGBM, XGBoost and CatBoost write none. The first four are what these libraries call them.
 */
const usualKeys = [
  "feature_names_in_",
  "feature_names",
  "feature_name",
  "feature_names_",
  "feature_columns",
  "features",
];

/** The order in the metadata of a model's file; undefined: it has none. */
export function orderInMetadata(metadata: ReadonlyMap<string, string>): FeatureOrder | undefined {
  const key = usualKeys.find((name) => metadata.has(name));
  const names = key === undefined ? [] : parseFeatureNames(metadata.get(key) ?? "");
  return names.length === 0 ? undefined : { names, from: `${key} in the model's metadata` };
}

/** Reads names: a list in JSON, alone or under a usual key, a name a line, or names with commas between them. */
export function parseFeatureNames(text: string): readonly string[] {
  const json = parsed(text);
  const list = isRecord(json) && !Array.isArray(json) ? usualKeys.map((key) => json[key]).find(Array.isArray) : json;
  if (Array.isArray(list)) {
    return list.every((name) => typeof name === "string") ? list : [];
  }
  return json === undefined
    ? text
        .split(/\r?\n|,/)
        .map((name) => name.trim())
        .filter((name) => name !== "")
    : [];
}

function parsed(text: string): unknown {
  try {
    return JSON.parse(text);
  } catch {
    return undefined;
  }
}

/** What is known of a model from its file, apart from its inputs and outputs. */
export interface ModelTraits {
  /** Outputs that are no tensors, with their ONNX types: "seq(map(int64,tensor(float)))". */
  readonly otherOutputs: readonly { readonly name: string; readonly type: string }[];
  /** The model's operators that compute a scale from all values of a batch, each once. */
  readonly batchScales: readonly string[];
  /** It has decision trees that may be compiled: not where it has external data, since compiling reads its file alone. */
  readonly hasTrees: boolean;
  /** The order of its columns, if its metadata has it. */
  readonly features: FeatureOrder | undefined;
}

/** What to do for an output that is no tensor. A classifier's map of probabilities is made by a ZipMap, a sequence is not. */
export function tensorRemedy({ otherOutputs }: ModelTraits, output: string | undefined): string {
  const type = otherOutputs.find(({ name }) => name === output)?.type ?? "map(";
  return type.includes("map(")
    ? "export the model with zipmap=False (skl2onnx: options={'zipmap': False}), or take the ZipMap out of the file, as docs/models.md shows"
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

/** A model on a server, as the server describes it. */
export interface ServedModel {
  /** The model as messages name it: "churn on http://triton:8000". */
  readonly name: string;
  /** Hex digest of protocol, name, version and signature. The model's own bytes are not known. */
  readonly sha256: string;
  readonly traits: ModelTraits;
  readonly served: ServedFacts;
  /** Whether servers had the model when an unfinished run was planned. One that lacks it now may still be loading it. */
  readonly isPlanned: boolean;
}

export interface ServedFacts {
  readonly signature: ModelSignature;
  /** undefined: the server names none. */
  readonly version: string | undefined;
  /** Whether requests can ask for the version. Otherwise only the answers name it. */
  readonly isVersionInPath: boolean;
  /** Whether tensors are sent as bytes. Otherwise they are sent as JSON. */
  readonly isBinary: boolean;
  /** Rows of a request, at most; undefined: the server names no limit. */
  readonly mostRows: number | undefined;
}

/** Traits of a model whose file is not known. */
export const unknownTraits: ModelTraits = {
  otherOutputs: [],
  batchScales: [],
  hasTrees: false,
  features: undefined,
};

/** What bindings need to know of a tokenizer's file. */
export interface TokenizerFacts {
  /** Hex digest of the file. */
  readonly sha256: string;
  /** The length to which the file truncates texts; undefined: it does not. */
  readonly maxTokens: number | undefined;
  /** The side on which longer texts are cut. */
  readonly cut: "left" | "right";
  /** The id of the padding token; undefined: the file has none. */
  readonly padId: number | undefined;
  /** The side on which padding is added. */
  readonly side: "left" | "right";
}

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
