import type { Provider } from "../../spec/engine-spec.js";
import { withoutSource } from "../onnx/runtime-text.js";

/** A fault of the device, read from the text of an ONNX Runtime error, which has no codes. */
export type DeviceFault =
  /** The device has no memory left. */
  | { readonly kind: "memory" }
  /** The provider cannot run on this machine: a library, the driver or the device is missing. */
  | { readonly kind: "missing"; readonly provider: Provider }
  /** The device or its driver failed; no row caused it. */
  | { readonly kind: "broken" };

/** An execution provider that this machine cannot run. The caller decides whether another one will do. */
export class ProviderFault extends Error {
  readonly provider: Provider;

  constructor(provider: Provider, message: string) {
    super(message);
    this.provider = provider;
  }
}

// core/framework/bfc_arena.cc; CUDA, cuBLAS and cuDNN by the names of their status codes; the C++ allocator.
const memory =
  /Failed to allocate memory for requested buffer|free memory block despite calling Extend|smaller than requested bytes of|out of memory|STATUS_(\w+_)?ALLOC(ATION)?_FAILED|std::bad_alloc|bad allocation/i;
// core/session/provider_bridge_ort.cc
const notLoaded = /AppendExecutionProvider_(Cuda|TensorRT): Failed to load shared library/;
// core/providers/cuda/cuda_call.cc: "CUDA failure 100: no CUDA-capable device is detected ; GPU=0 ; hostname=…"
const callFailed = /\b(CUDA|CUBLAS|CUDNN|CUFFT|CURAND|CUSPARSE) failure -?\d+: /;

/** Reads the fault from the error of a session that could not be opened with these providers. */
export function openingFault(message: string, providers: readonly Provider[]): DeviceFault | undefined {
  const [, library] = notLoaded.exec(message) ?? [];
  if (library !== undefined) {
    return { kind: "missing", provider: library === "Cuda" ? "cuda" : "tensorrt" };
  }
  const fault = runningFault(message);
  const [first] = providers;
  // A provider that fails while a session is opened cannot be used at all.
  return fault?.kind === "broken" && first !== undefined
    ? { kind: "missing", provider: providers.includes("cuda") ? "cuda" : first }
    : fault;
}

/** Reads the fault from the error of a batch; undefined if it is about rows. */
export function runningFault(message: string): DeviceFault | undefined {
  if (memory.test(message)) {
    return { kind: "memory" };
  }
  return callFailed.test(message) ? { kind: "broken" } : undefined;
}

/** Shortens a message with files, lines and C++ types to "CUDA failure 100: no CUDA-capable device is detected". */
export function shortFault(message: string): string {
  const [said] = /\b[A-Z]+ failure -?\d+: [^;]*/.exec(message) ?? [];
  const [buffer] = /Failed to allocate memory for requested buffer of size \d+/.exec(message) ?? [];
  return (said ?? buffer ?? withoutSource(message)).trim();
}
