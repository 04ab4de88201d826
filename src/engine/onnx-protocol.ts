import type { ModelSignature } from "../batch/tensor.js";
import type { EngineRequest, EngineResponse } from "./port.js";

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
  | ({ readonly id: number } & EngineResponse);
