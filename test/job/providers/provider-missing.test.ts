import { providerMissing } from "#src/job/providers.js";
import { gpuParts } from "#src/models/devices.js";
import type { JobError } from "#src/base/errors.js";
import { expect, test } from "vitest";
import { type MachineFacts, goodMachine, lddText, libraries, machineOf } from "../../support/machine.js";

const { files = {}, names = {}, programs = {} } = goodMachine;
const notLoaded = "OrtSessionOptionsAppendExecutionProvider_Cuda: Failed to load shared library";
const noDevice = "CUDA failure 100: no CUDA-capable device is detected";

async function errorOn(facts: MachineFacts, message: string, device = 0): Promise<JobError> {
  const machine = machineOf(facts);
  const parts = await gpuParts("cuda", machine, device);
  return providerMissing({
    doing: "opening execution provider cuda",
    parts,
    message,
    machine,
    asked: ["cuda"],
    advice: "look at the driver",
  });
}

/** The image for GPUs: all that CUDA needs but the driver and the device, which the machine gives. */
const image: MachineFacts = {
  env: { NVIDIA_VISIBLE_DEVICES: "all" },
  names: { [libraries]: names[libraries] ?? [] },
  programs: { ldd: lddText({ "libcudart.so.13": "/cuda", "libcuda.so.1": "" }) },
};
const withDriver = {
  files: { "/proc/driver/nvidia/version": files["/proc/driver/nvidia/version"] ?? "" },
  programs: { ldd: lddText({ "libcudart.so.13": "/cuda", "libcuda.so.1": "/lib" }) },
};

test.each<[string, MachineFacts, string, string]>([
  [
    "the device plug-in named a GPU, and the pod has no driver",
    { ...image, env: { NVIDIA_VISIBLE_DEVICES: "GPU-1" } },
    notLoaded,
    "NVIDIA driver: libcuda.so.1 is nowhere; GPUs: none; this machine has a GPU (NVIDIA_VISIBLE_DEVICES is GPU-1), which fails",
  ],
  [
    "the GPU fell off the bus",
    { ...image, ...withDriver, env: { NVIDIA_VISIBLE_DEVICES: "MIG-2" } },
    noDevice,
    `${noDevice}; GPUs: none; this machine has a GPU (NVIDIA_VISIBLE_DEVICES is MIG-2, the kernel has driver 580.65.06), which fails`,
  ],
  [
    "a device file is there, and CUDA finds no device",
    { ...image, ...withDriver, names: { ...image.names, "/dev": ["nvidia0", "nvidiactl"] } },
    noDevice,
    `${noDevice}; this machine has a GPU (there is /dev/nvidia0, the kernel has driver 580.65.06), which fails`,
  ],
  [
    "all is there, and the GPU is sick",
    goodMachine,
    "CUDA failure 999: unknown error",
    "CUDA failure 999: unknown error; this machine has a GPU (there is /dev/nvidia0, the kernel has driver 580.65.06), which fails",
  ],
])("a GPU that fails is 75, and the message says why one is expected: %s", async (_what, facts, said, why) => {
  const error = await errorOn(facts, said);

  expect(error).toMatchObject({ exitCode: 75, code: "DEVICE" });
  expect(error.message).toBe(`opening execution provider cuda: ${why}`);
});

test.each<[string, MachineFacts, string, number?]>([
  ["no GPU at all", { ...image, env: {} }, notLoaded],
  ["NVIDIA's image on a machine without a GPU", image, notLoaded],
  ["a container that is to have none", { ...image, env: { NVIDIA_VISIBLE_DEVICES: "void" } }, notLoaded],
  ["a container without GPUs on a host that has some", { ...image, files: withDriver.files }, notLoaded],
  ["GPUs that are hidden", { ...goodMachine, env: { CUDA_VISIBLE_DEVICES: "-1" } }, noDevice],
  ["a device_id that is none", goodMachine, "CUDA failure 101: invalid device ordinal", 2],
  ["an old driver", goodMachine, "CUDA failure 35: CUDA driver version is insufficient for CUDA runtime version"],
  [
    "a GPU without CUDA's libraries",
    { ...goodMachine, programs: { ...programs, ldd: lddText({ "libcudart.so.13": "", "libcuda.so.1": "/lib" }) } },
    notLoaded,
  ],
  [
    "a failing GPU and no provider library",
    { ...image, env: { NVIDIA_VISIBLE_DEVICES: "GPU-1" }, names: {} },
    notLoaded,
  ],
])("a machine that can never run CUDA ends a run with 64: %s", async (_what, facts, said, device) => {
  const error = await errorOn(facts, said, device);

  expect(error, error.message).toMatchObject({ exitCode: 64, code: "PROVIDER_MISSING" });
});
