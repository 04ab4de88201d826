import type { MessagePort } from "node:worker_threads";
import type { ModelSignature, TextTensors } from "../../columnar/tensor.js";
import type { Provider } from "../../spec/engine-spec.js";
import type { EngineRequest, EngineResponse } from "../port.js";

/** What the main thread and a session's worker say to each other. */
export interface WorkerSettings {
  readonly modelPath: string;
  readonly texts: TextTensors;
  readonly providers: readonly Provider[];
  /** Of CUDA and TensorRT. */
  readonly deviceId: number;
  /** Where the first provider computes: "cpu", "cuda:0". */
  readonly device: string;
  readonly intraOpThreads: number;
  /** Where ONNX Runtime writes what each of its calls took. */
  readonly profile?: { readonly folder: string; readonly session: number } | undefined;
}

/** How a session's profile is called, before what ONNX Runtime adds to it: its times count from `startedMs` of 1970. */
export function profilePrefix({ folder, session }: NonNullable<WorkerSettings["profile"]>, startedMs: number): string {
  return `${folder}/session-${session}-${Math.round(startedMs * 1000)}`;
}

/** The session, and when its times begin in milliseconds from 1970; undefined for other names. */
export function parseProfileName(name: string): { readonly session: number; readonly startedMs: number } | undefined {
  const [, session, startedUs] = /^session-(\d+)-(\d+)_.*\.json$/.exec(name) ?? [];
  return session === undefined ? undefined : { session: Number(session), startedMs: Number(startedUs) / 1000 };
}

export type ToWorker =
  | { readonly kind: "open"; readonly settings: WorkerSettings }
  | ({ readonly kind: "run"; readonly id: number } & EngineRequest)
  /** Units are read and scored for whoever has the other end of the port. */
  | { readonly kind: "units"; readonly port: MessagePort }
  | { readonly kind: "close" };

export type FromWorker =
  | { readonly kind: "ready"; readonly signature: ModelSignature }
  | { readonly kind: "refused"; readonly message: string }
  | ({ readonly id: number } & Exclude<EngineResponse, { kind: "exhausted" }>);
