import type { WorkerPort } from "../util/worker-port.js";
import type { ModelSignature, NamedTensor, Tensor } from "../columnar/tensor.js";

/** One `session.run`. The tensors' buffers go to the engine and are detached here. */
export interface EngineRequest {
  readonly inputs: readonly NamedTensor[];
  /** Names of the tensors wanted. */
  readonly outputs: readonly string[];
}

export type EngineResponse =
  | {
      readonly kind: "done";
      /** In the order asked for; the shapes are those that came, not those that the model declares. */
      readonly outputs: readonly Tensor[];
      /** Milliseconds that it took, without what it waited for its turn. */
      readonly ms: number;
      /** Tensors of the request, to be filled anew. */
      readonly inputs: readonly NamedTensor[];
    }
  /** The model refused the batch: some row of it, or all. */
  | { readonly kind: "failed"; readonly message: string; readonly inputs: readonly NamedTensor[] }
  /** There was no memory for the batch. Fewer rows may fit, once the engine is renewed. */
  | { readonly kind: "exhausted"; readonly message: string; readonly inputs: readonly NamedTensor[] };

/** A loaded model on some hardware. */
export interface Engine extends AsyncDisposable {
  readonly signature: ModelSignature;
  /** The first execution provider of those in use. */
  readonly provider: string;
  /** Where that one computes, as messages name it: "cpu", "cuda:0". */
  readonly device: string;
  /** Those that were asked for before it and that this machine cannot run. */
  readonly missing: readonly string[];
  /** Batches that it works on at once, when all of its sessions are open: one is from the beginning. */
  readonly sessions: number;
  /** When they are. @throws JobError MODEL_INVALID, MEMORY, MODEL_CHANGED */
  opened(): Promise<void>;
  /** Batches worth having under way at once: more than that only wait. */
  readonly concurrency: number;
  /**
   * Calls may overlap and are served in no particular order.
   * @throws JobError DEVICE when the device fails
   */
  run(request: EngineRequest): Promise<EngineResponse>;
  /**
   * A port to each of the engine's workers, which read units and score their rows there, between the calls of `run`.
   * undefined: a device computes, which should not wait for that. The ports end when the engine is renewed or closed.
   */
  readonly unitPorts?: (() => readonly WorkerPort[]) | undefined;
  /**
   * Gives all memory back to the device, and loads the model anew. Calls under way are answered before; calls that
   * come meanwhile wait.
   * @throws JobError MEMORY when the model does not fit any more
   */
  renew(): Promise<void>;
}
