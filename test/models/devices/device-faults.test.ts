import { describe, expect, test } from "vitest";
import { openingFault, runningFault, shortFault } from "#src/models/onnx/faults.js";

/** As ONNX Runtime said it, where somebody told it in public; file names and numbers as they were. */
const bfcArena =
  "Non-zero status code returned while running FusedMatMul node. Name:'MatMul_92_FusedMatMulAndScale' Status Message: /onnxruntime_src/onnxruntime/core/framework/bfc_arena.cc:331 void* onnxruntime::BFCArena::AllocateRawInternal(size_t, bool) Failed to allocate memory for requested buffer of size 8388608000";
const cudaCall = (failure: string, call: string): string =>
  `/onnxruntime_src/onnxruntime/core/providers/cuda/cuda_call.cc:121 std::conditional_t<THRW, void, onnxruntime::common::Status> onnxruntime::CudaCall(ERRTYPE, const char*, const char*, ERRTYPE, const char*, const char*, int) [with ERRTYPE = cudaError; bool THRW = true] ${failure} ; GPU=0 ; hostname=host ; file=/onnxruntime_src/onnxruntime/core/providers/cuda/cuda_stream_handle.cc ; line=175 ; expr=${call};`;
const streamOutOfMemory = cudaCall("CUDA failure 2: out of memory", "cudaStreamCreateWithFlags(&stream, 1)");
const noDevice = cudaCall("CUDA failure 100: no CUDA-capable device is detected", "cudaSetDevice(info_.device_id)");
const oldDriver = cudaCall(
  "CUDA failure 35: CUDA driver version is insufficient for CUDA runtime version",
  "cudaSetDevice(info_.device_id)",
);
const illegalAddress = cudaCall("CUDA failure 700: an illegal memory access was encountered", "cudaMemcpyAsync()");

/** As WebGPU says it, over SwiftShader. */
const tooLargeBuffer =
  "WebGPU validation failed. Buffer size (1677721600) exceeds the max buffer size limit (1073741824).\n - While calling [Device].CreateBuffer([BufferDescriptor]).";
const invalidBuffer =
  "WebGPU validation failed. [Invalid Buffer (unlabeled)] is invalid due to a previous error.\n - While validating entries[2] against { binding: 2, visibility: ShaderStage::Compute }";
const noAdapter =
  "/onnxruntime_src/onnxruntime/core/providers/webgpu/webgpu_context.cc:136 onnxruntime::webgpu::WebGpuContext::Initialize(const onnxruntime::webgpu::WebGpuContextConfig&)::<lambda()> adapter_result.status == wgpu::RequestAdapterStatus::Success was false. Failed to get a WebGPU adapter: No supported adapters\n\n";

describe("a batch that failed", () => {
  test.each([
    ["the arena cannot grow", bfcArena],
    ["a call gets no memory", streamOutOfMemory],
    ["cuBLAS gets no memory", cudaCall("CUBLAS failure 3: CUBLAS_STATUS_ALLOC_FAILED", "cublasCreate()")],
    ["cuDNN gets no memory", cudaCall("CUDNN failure 4002: CUDNN_STATUS_INTERNAL_ERROR_DEVICE_ALLOCATION_FAILED", "x")],
    ["the arena is in pieces", "Failed to find a free memory block despite calling Extend. rounded_bytes=512"],
    ["the arena has a limit", "Available memory of 1048576 is smaller than requested bytes of 4194304"],
    ["the CPU's allocator gives nothing", "std::bad_alloc"],
    ["WebGPU has no buffer of this size", tooLargeBuffer],
    ["WebGPU uses a buffer that it did not get", invalidBuffer],
    ["Vulkan has none", "vkAllocateMemory failed with VK_ERROR_OUT_OF_DEVICE_MEMORY"],
  ])("a batch that failed for memory: %s", (_what, message) => {
    expect(runningFault(message)).toEqual({ kind: "memory" });
  });

  test.each([
    ["an illegal access", illegalAddress],
    ["an error that cannot be corrected", cudaCall("CUDA failure 214: uncorrectable ECC error encountered", "x")],
    ["cuDNN", cudaCall("CUDNN failure 5000: CUDNN_STATUS_EXECUTION_FAILED", "cudnnConvolutionForward()")],
    ["WebGPU's device is gone", "WebGPU device lost (2): VK_ERROR_DEVICE_LOST"],
  ])("a batch that failed for the device: %s", (_what, message) => {
    expect(runningFault(message)).toEqual({ kind: "broken" });
  });

  test.each([
    "Non-zero status code returned while running Gather node. Name:'' Status Message: indices element out of data bounds, idx=99 must be within the inclusive range [-10,9]",
    "Got invalid dimensions for input: x for the following indices\n index: 1 Got: 3 Expected: 4",
  ])("a batch that failed for its rows: %s", (message) => {
    expect(runningFault(message)).toBeUndefined();
  });
});

describe("a session that could not be opened", () => {
  test.each([
    ["cuda", "OrtSessionOptionsAppendExecutionProvider_Cuda: Failed to load shared library"],
    ["tensorrt", "OrtSessionOptionsAppendExecutionProvider_TensorRT: Failed to load shared library"],
    ["cuda", noDevice],
    ["cuda", oldDriver],
    ["webgpu", noAdapter],
    ["webgpu", "Program Relu requires f16 but the device does not support it."],
    ["coreml", "no available backend found. ERR: [coreml] backend not found."],
  ])("a session that could not be opened for want of %s", (provider, message) => {
    expect(openingFault(message, ["tensorrt", "cuda", "cpu"])).toEqual({ kind: "missing", provider });
  });

  test("an error that opens no session is attributed to memory or to the model", () => {
    expect(openingFault(bfcArena, ["cuda"])).toEqual({ kind: "memory" });
    expect(openingFault("Load model from x.onnx failed:Protobuf parsing failed.", ["cuda", "cpu"])).toBeUndefined();
  });
});

test("a device fault is reported without files and types", () => {
  expect(shortFault(noDevice)).toBe("CUDA failure 100: no CUDA-capable device is detected");
  expect(shortFault(bfcArena)).toBe("Failed to allocate memory for requested buffer of size 8388608000");
  expect(shortFault("std::bad_alloc")).toBe("std::bad_alloc");
});

test("a message of WebGPU is shown without the place in its source", () => {
  expect(shortFault(noAdapter)).toBe("Failed to get a WebGPU adapter: No supported adapters");
});
