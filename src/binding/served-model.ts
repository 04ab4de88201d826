import type { ModelSignature } from "../columnar/tensor.js";
import type { ModelTraits } from "./model-traits.js";

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
  producer: "",
  otherOutputs: [],
  batchScales: [],
  hasTrees: false,
  features: undefined,
};
