import type { Provider } from "../../job/jobfile/engine-spec.js";

/** A fault of the device, read from the text of an ONNX Runtime error, which has no codes. */
type DeviceFault =
  /** The device has no memory left. */
  | { readonly kind: "memory" }
  /** The provider cannot run on this machine: a library, the driver or the device is missing. */
  | { readonly kind: "missing"; readonly provider: Provider }
  /** The device or its driver failed; no row caused it. */
  | { readonly kind: "broken" };

/** An execution provider that this machine cannot run. The caller decides whether another one will do. */
export class ProviderFault extends Error {
  readonly provider: Provider;
  /** The driver crashed or did not answer, which another attempt may not meet. */
  readonly driverFailed: boolean;

  constructor(provider: Provider, message: string, { driverFailed = false } = {}) {
    super(message);
    this.provider = provider;
    this.driverFailed = driverFailed;
  }
}

// core/framework/bfc_arena.cc; CUDA, cuBLAS and cuDNN by the names of their status codes; the C++ allocator.
const memory =
  /Failed to allocate memory for requested buffer|free memory block despite calling Extend|smaller than requested bytes of|out of memory|STATUS_(\w+_)?ALLOC(ATION)?_FAILED|std::bad_alloc|bad allocation/i;
// core/session/provider_bridge_ort.cc
const notLoaded = /AppendExecutionProvider_(Cuda|TensorRT): Failed to load shared library/;
// core/providers/cuda/cuda_call.cc: "CUDA failure 100: no CUDA-capable device is detected ; GPU=0 ; hostname=…"
const callFailed = /\b(CUDA|CUBLAS|CUDNN|CUFFT|CURAND|CUSPARSE) failure -?\d+: /;
// core/providers/webgpu/webgpu_context.cc: there is no GPU, or no driver that WebGPU can use.
const noAdapter = /Failed to get a WebGPU (?:adapter|device)/;
// core/providers/webgpu: the GPU does not have a type that the model uses.
const noType = /requires (\w+) but the device does not support it/;
// js/node: "no available backend found. ERR: [coreml] backend not found."
const notBuilt = /\[(webgpu|coreml|dml)\] backend not found/;
// Dawn, limits of the device and Vulkan: fewer rows may fit.
const webGpuMemory =
  /exceeds the max buffer size limit|\[Invalid Buffer[^\]]*\] is invalid due to a previous error|larger than the maximum (?:storage )?buffer binding size|exceeds max compute workgroups per dimension|VK_ERROR_OUT_OF_(?:DEVICE|HOST)_MEMORY|Failed to download data from buffer/i;
const deviceLost = /\b(?:WebGPU )?device (?:is|was) lost\b|\bdevice lost\b|VK_ERROR_DEVICE_LOST/i;

/** Reads the fault from the error of a session that could not be opened with these providers. */
export function openingFault(message: string, providers: readonly Provider[]): DeviceFault | undefined {
  const [, absent] = notBuilt.exec(message) ?? [];
  if (absent !== undefined) {
    return { kind: "missing", provider: absent as Provider };
  }
  if (noAdapter.test(message) || noType.test(message)) {
    return { kind: "missing", provider: "webgpu" };
  }
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
  if (memory.test(message) || webGpuMemory.test(message)) {
    return { kind: "memory" };
  }
  return callFailed.test(message) || deviceLost.test(message) ? { kind: "broken" } : undefined;
}

/** Shortens a message with files, lines and C++ types to "CUDA failure 100: no CUDA-capable device is detected". */
export function shortFault(message: string): string {
  const [said] = /\b[A-Z]+ failure -?\d+: [^;]*/.exec(message) ?? [];
  const [adapter] = /Failed to get a WebGPU \w+: [^\n]*/.exec(message) ?? [];
  const [buffer] = /Failed to allocate memory for requested buffer of size \d+/.exec(message) ?? [];
  return (said ?? adapter ?? buffer ?? withoutSource(message)).trim();
}

/** Removes the places in ONNX Runtime's source, and the C++ functions after them, from a message. */
export function withoutSource(message: string): string {
  let text = message.replace(/^\[ONNXRuntimeError\] : \d+ : \w+ : /, "");
  for (let place = sourcePlace.exec(text); place !== null; place = sourcePlace.exec(text)) {
    const from = place.index + place[0].length;
    text = text.slice(0, place.index) + text.slice(functionEnd(text, from));
  }
  return text.trim();
}

/** Matches "/onnxruntime_src/onnxruntime/core/graph/model.cc:202 ". */
const sourcePlace = /\/\S*\.(?:cc|cpp|cxx|cu|cuh|h|hpp):\d+ /;
/** Matches "void onnxruntime::Model::Load", up to the parameters. */
const functionHead = /^[\w:<>,&*~ ]*\w::[\w:<>,&*~ ]+$/;

/** Returns the index after a function with its parameters; `from` if there is none. */
function functionEnd(text: string, from: number): number {
  const open = text.indexOf("(", from);
  if (open < 0 || !functionHead.test(text.slice(from, open))) {
    return from;
  }
  let depth = 0;
  for (let at = open; at < text.length; at += 1) {
    const letter = text[at] ?? "";
    if ("(<[".includes(letter)) {
      depth += 1;
    } else if (")>]".includes(letter)) {
      depth -= 1;
    } else if (letter === " " && depth === 0 && !/^ (?:const|noexcept|\[with) ?/.test(text.slice(at, at + 10))) {
      return at + 1;
    }
  }
  return text.length;
}

/** What to do without the locale of text models. C.utf8 has the same rules for the case of letters. */
export const installLocale =
  "install it: apt-get install locales && localedef -i en_US -f UTF-8 en_US.UTF-8; or, without being root: mkdir locale && ln -s /usr/lib/locale/C.utf8 locale/en_US.utf8 && export LOCPATH=$PWD/locale";

/** Returns why ONNX Runtime refuses a model, and a hint for its author; names the versions if they do not fit. */
export function modelRefusal(message: string): { readonly found: string; readonly hint: string } {
  const said = withoutSource(message);
  const [, opset, domain, newest] =
    /Opset (\d+) is under development.* domain (\S+) is till opset (\d+)/.exec(said) ?? [];
  if (opset !== undefined) {
    return {
      found: `it needs opset ${opset} of ${domain}; this ONNX Runtime has opsets up to ${newest}`,
      hint: `export it with opset ${newest} or lower (torch.onnx.export: opset_version; skl2onnx: target_opset), or convert it with onnx.version_converter`,
    };
  }
  const [, version, most] = /Unsupported model IR version: (\d+), max supported IR version: (\d+)/.exec(said) ?? [];
  if (version !== undefined) {
    return {
      found: `it has IR version ${version}; this ONNX Runtime reads IR versions up to ${most}`,
      hint: `save it with an older version of the onnx package, or set model.ir_version = ${most} before onnx.save`,
    };
  }
  const [, locale] = /Failed to construct locale with name:([\w.@-]+)/.exec(said) ?? [];
  if (locale !== undefined) {
    return {
      found: `it changes the case of texts by the rules of the locale ${locale}, which this machine does not have`,
      hint: installLocale,
    };
  }
  return { found: said, hint: "check it with Python: onnxruntime.InferenceSession(path)" };
}
