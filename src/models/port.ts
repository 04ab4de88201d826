import type { ModelTraits } from "../binding/model-traits.js";
import type { ModelSignature, TextTensors } from "../columnar/tensor.js";

/** A model file on this machine, and the digest of every byte that its predictions depend on. */
export interface ModelFile {
  readonly path: string;
  /** The model as messages name it: the path, or the URI that it was fetched from. */
  readonly name: string;
  /** Hex; of the file alone, or of a list of digests when the model has external data. */
  readonly sha256: string;
  /** The size of the file and of its external data. */
  readonly sizeBytes: number;
  /** Inputs and outputs of texts that an engine may pass as numbers. */
  readonly texts: TextTensors;
  readonly traits: ModelTraits;
  /** @throws JobError MODEL_CHANGED when a file behind the digest was touched since */
  check(): Promise<void>;
}

/** The model that a URI leads to. */
export interface ResolvedModel {
  readonly file: ModelFile;
  /** The version that an alias stands for now, where models have versions. */
  readonly version?: string;
  /** The inputs and outputs that a registry declares. */
  readonly signature?: ModelSignature;
}

/** A kind of place that models come from: a disk, a store, a registry. */
export interface ModelSource extends Disposable {
  /**
   * Finds the model that `uri` names, and brings it to this machine.
   * @param sha256 the digest that the spec asks for, or that the plan of an unfinished run pins. If this machine has a
   * copy with that digest, it is used and the URI is not resolved. The returned model may have another digest
   * @throws JobError FILE_MISSING, PERMISSION, MODEL_INVALID, MODEL_CHANGED, OBJECT_STORE, DISK
   */
  resolve(uri: string, sha256: string | undefined): Promise<ResolvedModel>;
}
