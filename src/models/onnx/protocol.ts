import type { MessagePort } from "node:worker_threads";
import type { ModelSignature, TextTensors } from "../../columns/tensor.js";
import type { Provider } from "../../job/jobfile/engine-spec.js";
import type { RpcProtocol } from "../../base/rpc.js";
import type { EngineRequest, EngineResponse, Operators, TreesState } from "../engine.js";
import type { TokenizerPlace } from "../tokens.js";

/** What a session is opened with. */
export interface WorkerSettings {
  readonly modelPath: string;
  readonly texts: TextTensors;
  readonly providers: readonly Provider[];
  /** The device number for CUDA, TensorRT and DirectML. */
  readonly deviceId: number;
  /** Where the first provider computes: "cpu", "cuda:0". */
  readonly device: string;
  readonly intraOpThreads: number;
  readonly tokenizers: readonly TokenizerPlace[];
  /** The model has trees that may be compiled: the digest of its file, and its size. */
  readonly trees?: { readonly sha256: string; readonly sizeBytes: number } | undefined;
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

/** A session that is open, or why it cannot be opened. */
export type Opened =
  | { readonly kind: "ready"; readonly signature: ModelSignature; readonly operators: Operators }
  | {
      readonly kind: "refused";
      readonly message: string;
      /** The tokenizer that cannot be loaded; absent: the model cannot be loaded. */
      readonly tokenizer?: string | undefined;
    };

/** The number of rows that a session will get, and its time for a row. */
export interface ExpectedRows {
  readonly rows: number;
  readonly rowMs: number;
}

/** The response of a session, which cannot distinguish a device without memory from other failures. */
export type SessionResponse = Exclude<EngineResponse, { kind: "exhausted" }>;

/** Between the main thread and the thread of a session. */
export interface SessionProtocol extends RpcProtocol {
  calls: {
    open: { request: WorkerSettings; result: Opened };
    run: { request: EngineRequest; result: SessionResponse };
    /** Answered once the session has compiled its trees, if that pays. */
    expect: { request: ExpectedRows; result: undefined };
  };
  toServer: {
    /** The thread reads and scores units for the other end of the port. */
    units: MessagePort;
    /** The thread ends when it has answered the calls before. */
    close: undefined;
  };
  toClient: { trees: TreesState };
}
