import type { ModelSignature, Tensor } from "../batch/types.js";
import type { EngineRequest } from "./port.js";

/** What the main thread and a session's worker say to each other. */
export interface WorkerSettings {
  readonly modelPath: string;
  readonly providers: readonly string[];
  readonly intraOpThreads: number;
}

export type ToWorker = ({ readonly kind: "run"; readonly id: number } & EngineRequest) | { readonly kind: "close" };

export type FromWorker =
  | { readonly kind: "ready"; readonly signature: ModelSignature }
  | { readonly kind: "refused"; readonly message: string }
  | {
      readonly kind: "done";
      readonly id: number;
      readonly outputs: readonly Tensor[];
      readonly buffers: readonly ArrayBuffer[];
    }
  | {
      readonly kind: "failed";
      readonly id: number;
      readonly message: string;
      readonly buffers: readonly ArrayBuffer[];
    };
