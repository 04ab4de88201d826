import type { ModelTraits, ServedModel, TokenizerFacts } from "../binding/model-facts.js";
import type { DeclaredSignature } from "../binding/signatures.js";
import type { TextTensors } from "../../columns/tensor.js";
import type { ModelOrigin } from "../../run/plan/plan.js";

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
  /** The tokenizers of its inputs; absent: it has none. */
  readonly tokenizers?: readonly TokenizerFile[] | undefined;
  /** @throws JobError MODEL_CHANGED when a file behind the digest was touched since */
  check(): Promise<void>;
}

export interface TokenizerFile {
  readonly path: string;
  /** The path or URI as the spec has it. */
  readonly uri: string;
  /** The version that the URI resolves to; absent: it has no versions. */
  readonly version?: string | undefined;
  /** The digest in hexadecimal digits. */
  readonly sha256: string;
  readonly facts: TokenizerFacts;
}

/** A model that an engine can be opened for: a file on this machine, or a model on a server. */
export type Model = ModelFile | ServedModel;

/** The model that a spec names. */
export interface FoundModel extends Omit<ResolvedModel, "file"> {
  readonly model: Model;
}

export interface ResolvedModel {
  readonly file: ModelFile;
  /** A commit, a version in a registry or of an object, or an ETag, to which the URI resolves; absent: unknown. */
  readonly version?: string | undefined;
  /** The inputs and outputs that a registry declares. */
  readonly signature?: DeclaredSignature | undefined;
  readonly origin?: ModelOrigin | undefined;
}

/** A model that a plan, or `model.sha256`, fixes. */
export interface ModelPin {
  readonly sha256: string;
  /** The version to fetch; absent: the one that the URI resolves to now. */
  readonly version?: string | undefined;
}

/** A kind of place that models come from: a disk, a store, a registry. */
export interface ModelSource extends Disposable {
  /**
   * Finds the model that `uri` names, and brings it to this machine.
   * @param pinned if the cache of this machine has a model with this digest, it is returned without a request.
   * Otherwise the pinned version is fetched. The returned model may have another digest
   * @throws JobError FILE_MISSING if there is no such model or version, PERMISSION, MODEL_INVALID, MODEL_CHANGED,
   * NETWORK, OBJECT_STORE, DISK
   */
  resolve(uri: string, pinned?: ModelPin): Promise<ResolvedModel>;
}
