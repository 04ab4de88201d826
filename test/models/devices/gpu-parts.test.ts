import { describe, expect, test } from "vitest";
import {
  deviceOf,
  driverVersion,
  gpuIdentity,
  gpuParts,
  type GpuProvider,
  missingText,
  partsOf,
  visibleGpus,
} from "#src/models/devices.js";
import { goodMachine, lddText, libraries, type MachineFacts, machineOf } from "../../support/machine.js";

/** "provider library missing: …", a line for each part that is not ok. */
async function faultsOf(facts: MachineFacts, provider: GpuProvider = "cuda", device = 0): Promise<string[]> {
  const parts = await gpuParts(provider, machineOf(facts), device);
  return parts.flatMap(({ name, state, found }) => (state === "ok" ? [] : [`${name} ${state}: ${found}`]));
}

const { files = {}, names = {}, programs = {} } = goodMachine;
const withLdd = (found: Readonly<Record<string, string>>): MachineFacts => ({
  ...goodMachine,
  programs: { ...programs, ldd: lddText(found) },
});

describe("a machine with GPUs", () => {
  test("a machine with GPUs lacks no part, and its parts are shown", async () => {
    const parts = await gpuParts("cuda", machineOf(goodMachine), 1);
    expect(parts.map(({ name, state, found }) => `${name} ${state}: ${found}`)).toEqual([
      `provider library ok: ${libraries}/libonnxruntime_providers_cuda.so`,
      "NVIDIA driver ok: 580.65.06, /lib/x86_64-linux-gnu/libcuda.so.1",
      "CUDA 13 ok: /usr/local/cuda/lib64/libcublasLt.so.13, /usr/local/cuda/lib64/libcublas.so.13, /usr/local/cuda/lib64/libcurand.so.10, /usr/local/cuda/lib64/libcudart.so.13",
      "cuDNN ok: /lib/x86_64-linux-gnu/libcudnn.so.9",
      "GPUs ok: NVIDIA L4 (23034 MiB), NVIDIA L4 (23034 MiB)",
    ]);
  });

  test("a machine with GPUs lacks TensorRT if TensorRT is asked for", async () => {
    expect(await faultsOf(goodMachine, "tensorrt")).toEqual([
      `provider library missing: libonnxruntime_providers_tensorrt.so not in ${libraries} (the npm package does not have them)`,
      "CUDA unknown: the needed version is unknown without the provider library and ldd",
      "TensorRT unknown: the needed version is unknown without the provider library",
    ]);
  });

  test("a machine with GPUs has the providers beside the ONNX Runtime in LD_LIBRARY_PATH, unless its version differs", async () => {
    const folder = "/opt/cuda/onnxruntime/capi";
    const [shared, cuda] = ["libonnxruntime_providers_shared.so", "libonnxruntime_providers_cuda.so"];
    const copied: MachineFacts = {
      ...goodMachine,
      env: { LD_LIBRARY_PATH: `/other:${folder}` },
      names: { ...names, [folder]: ["libonnxruntime.so.1", shared, cuda] },
    };
    const withVersion = (version: string): MachineFacts => ({
      ...copied,
      names: { ...copied.names, "/opt/cuda": ["numpy", `onnxruntime_gpu-${version}.dist-info`] },
    });
    expect((await gpuParts("cuda", machineOf(withVersion("1.30.0")), 0))[0]).toMatchObject({
      state: "ok",
      found: `${folder}/${cuda}`,
    });
    expect(await faultsOf(withVersion("1.29.0"))).toContain(
      `provider library missing: ${folder} is for onnxruntime-node 1.29.0, not 1.30.0`,
    );
  });

  test("a machine with two GPUs has no third one", async () => {
    expect(await faultsOf(goodMachine, "cuda", 2)).toEqual([
      "GPUs missing: there is no device 2: 2 can be seen, from 0; NVIDIA L4 (23034 MiB), NVIDIA L4 (23034 MiB)",
    ]);
  });

  test("a machine with GPUs has those that CUDA_VISIBLE_DEVICES leaves", async () => {
    const hidden = { ...goodMachine, env: { CUDA_VISIBLE_DEVICES: "-1" } };
    expect(await faultsOf(hidden)).toEqual([
      "GPUs missing: the process sees none of them; NVIDIA L4 (23034 MiB), NVIDIA L4 (23034 MiB); CUDA_VISIBLE_DEVICES=-1",
    ]);
  });
});

describe("what is missing is named", () => {
  test("a missing part is named for the npm package without CUDA files", async () => {
    const cpu: MachineFacts = { ...goodMachine, names: { ...names, [libraries]: ["libonnxruntime.so.1"] } };
    const [library] = await gpuParts("cuda", machineOf(cpu), 0);
    expect(library).toMatchObject({
      state: "missing",
      found: `libonnxruntime_providers_shared.so, libonnxruntime_providers_cuda.so not in ${libraries} (the npm package does not have them)`,
      remedy: expect.stringContaining("Install CUDA") as string,
    });
  });

  test("a missing part is named for a machine without driver library and module", async () => {
    const ldd = lddText({ "libcudart.so.13": "/cuda", "libcuda.so.1": "" });
    const bare = { programs: { ldd }, names: { [libraries]: names[libraries] ?? [] } };
    expect(await faultsOf(bare)).toEqual([
      "NVIDIA driver missing: libcuda.so.1 is nowhere",
      "cuDNN optional: libcudnn.so.9 is nowhere",
      "GPUs missing: none",
    ]);
  });

  test("a missing part is named for a container that was started without GPUs", async () => {
    const ldd = lddText({ "libcudart.so.13": "/cuda", "libcuda.so.1": "" });
    const version = "/proc/driver/nvidia/version"; // the kernel is the host's
    const apart = { files: { [version]: files[version] ?? "" }, names: { [libraries]: names[libraries] ?? [] } };
    expect(await faultsOf({ ...apart, programs: { ldd } })).toEqual([
      "NVIDIA driver missing: libcuda.so.1 is nowhere; the kernel has driver 580.65.06, but the container was not given it",
      "cuDNN optional: libcudnn.so.9 is nowhere",
      "GPUs missing: none",
    ]);
  });

  test("a missing part is named for a driver that is too old for the provider's CUDA", async () => {
    const version = "NVRM version: NVIDIA UNIX x86_64 Kernel Module  550.54.15  Tue Mar  5 22:23:56 UTC 2024\n";
    const old = { ...goodMachine, files: { ...files, "/proc/driver/nvidia/version": version } };
    expect(await faultsOf(old)).toEqual(["NVIDIA driver missing: 550.54.15 is too old for CUDA 13"]);
    const older = withLdd({ "libcudart.so.12": "/cuda", "libcuda.so.1": "/lib" });
    expect(await faultsOf({ ...older, files: old.files })).toEqual([]);
  });

  test("a missing part is named for another version of CUDA", async () => {
    const other = withLdd({ "libcublasLt.so.12": "", "libcudart.so.12": "", "libcuda.so.1": "/lib", "libz.so.1": "" });
    expect(await faultsOf({ ...other, env: { LD_LIBRARY_PATH: "/usr/local/cuda-13/lib64" } })).toEqual([
      "CUDA 12 missing: libcublasLt.so.12, libcudart.so.12 nowhere (LD_LIBRARY_PATH is /usr/local/cuda-13/lib64)",
      "libz.so.1 missing: nowhere",
    ]);
  });

  test("a missing part is named for a machine without cuDNN only if the provider needs it to load", async () => {
    const without = { ...programs, "/sbin/ldconfig": "\tlibcudnn.so.8 (libc6,x86-64) => /lib/libcudnn.so.8\n" };
    expect(await faultsOf({ ...goodMachine, programs: without })).toEqual(["cuDNN optional: libcudnn.so.9 is nowhere"]);
    const needing = lddText({ "libcudart.so.12": "/cuda", "libcuda.so.1": "/lib", "libcudnn.so.9": "" });
    expect(await faultsOf({ ...goodMachine, programs: { ...without, ldd: needing } })).toEqual([
      "cuDNN missing: libcudnn.so.9 is nowhere",
    ]);
  });

  test("a missing part is named for an ONNX Runtime without CUDA", async () => {
    const [library] = await gpuParts("cuda", machineOf({ platform: "linux/arm64" }), 0);
    expect(library?.found).toBe("onnxruntime-node has CUDA for Linux on x64 only; this is linux arm64");
  });

  test("missing parts are named in one line for an error", async () => {
    const parts = await gpuParts("cuda", machineOf({ ...goodMachine, names: { ...names, [libraries]: [] } }), 7);
    expect(missingText(parts)).toBe(
      `provider library: libonnxruntime_providers_shared.so, libonnxruntime_providers_cuda.so not in ${libraries} (the npm package does not have them); GPUs: there is no device 7: 2 can be seen, from 0; NVIDIA L4 (23034 MiB), NVIDIA L4 (23034 MiB)`,
    );
    expect(missingText(await gpuParts("cuda", machineOf(goodMachine), 0))).toBeUndefined();
  });
});

test.each([
  ["coreml", "darwin/arm64", "linux/x64"],
  ["dml", "win32/x64", "darwin/arm64"],
  ["webgpu", "darwin/x64", "linux/arm64"],
] as const)("%s is on %s, and not on %s", async (provider, there, elsewhere) => {
  const stateOn = async (platform: string): Promise<unknown> =>
    (await partsOf(provider, machineOf({ platform }), 0)).map(({ state }) => state);
  expect([await stateOn(there), await stateOn(elsewhere)]).toEqual([["ok"], ["missing"]]);
});

describe("devices", () => {
  test.each([
    [undefined, 2],
    ["0", 1],
    ["GPU-1,GPU-2,MIG-3", 3],
    ["0,-1,1", 1],
    ["", 0],
  ])("CUDA_VISIBLE_DEVICES=%s shows %i", (chosen, count) => {
    const env = chosen === undefined ? {} : { CUDA_VISIBLE_DEVICES: chosen };
    expect(visibleGpus(machineOf({ ...goodMachine, env }))).toBe(count);
  });

  test("workers use the devices in turn", () => {
    const machine = machineOf(goodMachine);
    expect([0, 1, 2, 3].map((index) => deviceOf("worker", { index }, machine))).toEqual([0, 1, 0, 1]);
    expect(deviceOf("worker", { index: 3 }, machineOf({}))).toBe(3); // the number of GPUs is unknown
    expect(deviceOf(1, { index: 3 }, machine)).toBe(1);
  });

  test("the identity of a device depends on the driver, the GPU and the visible devices", () => {
    const others: MachineFacts[] = [
      goodMachine,
      { ...goodMachine, files: { ...files, "/proc/driver/nvidia/version": "NVRM version: X  1.2  y\n" } },
      { ...goodMachine, files: { ...files, "/proc/driver/nvidia/gpus/0000:65:00.0/information": "GPU UUID: GPU-3" } },
      { ...goodMachine, env: { CUDA_VISIBLE_DEVICES: "1" } },
    ];
    expect(new Set(others.map((facts) => gpuIdentity(machineOf(facts)))).size).toBe(others.length);
  });

  test("devices have no driver where its module is not loaded", () => {
    expect(driverVersion(machineOf({}))).toBeUndefined();
    expect(driverVersion(machineOf(goodMachine))).toBe("580.65.06");
  });
});

const loaders = async (facts: MachineFacts): Promise<unknown> =>
  (await partsOf("webgpu", machineOf(facts), 0)).find(({ name }) => name === "OpenGL loaders");

test("NVIDIA's Vulkan driver needs a library of OpenGL's loaders, and doctor says which packages bring them", async () => {
  const driver = "/usr/share/vulkan/icd.d";
  const withDriver = { ...goodMachine, names: { ...names, [driver]: ["nvidia_icd.json"] } };
  expect(await loaders(withDriver)).toEqual({
    name: "OpenGL loaders",
    state: "missing",
    found: "libEGL.so.1 and libGLX.so.0 are nowhere; NVIDIA's Vulkan driver needs them",
    remedy: "apt-get install libegl1 libgl1 libgles2 libopengl0",
  });
  const folder = "/usr/lib64";
  const libraryOf = { ...withDriver, names: { ...withDriver.names, [folder]: ["libEGL.so.1"] } };
  expect(await loaders(libraryOf)).toEqual({ name: "OpenGL loaders", state: "ok", found: `${folder}/libEGL.so.1` });
  expect(await loaders({ ...goodMachine, names: { ...names, [driver]: ["radeon_icd.json"] } })).toBeUndefined();
});
