import type { Machine } from "#src/models/devices.js";

export interface MachineFacts {
  readonly platform?: string;
  readonly env?: Machine["env"];
  /** Texts by path. */
  readonly files?: Readonly<Record<string, string>>;
  /** Names of files without text, by folder. */
  readonly names?: Readonly<Record<string, readonly string[]>>;
  /** What programs say, by their name. */
  readonly programs?: Readonly<Record<string, string | undefined>>;
}

const runtimeFolder = "/app/node_modules/onnxruntime-node";
export const libraries = `${runtimeFolder}/bin/napi-v6/linux/x64`;

/** A machine that is not there. */
export function machineOf({
  platform = "linux/x64",
  env = {},
  files = {},
  names = {},
  programs = {},
}: MachineFacts): Machine {
  return {
    platform,
    env,
    home: "/root",
    runtime: { folder: runtimeFolder, version: "1.30.0" },
    readText: (path) => files[path],
    list: (folder) => names[folder] ?? [],
    run: (program) => Promise.resolve(programs[program]),
  };
}

/** The libraries that a provider needs, as `ldd` shows them; "" is not found. */
export function lddText(found: Readonly<Record<string, string>>): string {
  const lines = Object.entries(found).map(([name, where]) =>
    where === "" ? `\t${name} => not found` : `\t${name} => ${where}/${name} (0x00007f1c2a000000)`,
  );
  return ["\tlinux-vdso.so.1 (0x00007ffd4f1f2000)", ...lines, "\t/lib64/ld-linux-x86-64.so.2 (0x00007f)", ""].join(
    "\n",
  );
}

const proc = "/proc/driver/nvidia";

/** Two GPUs with all that ONNX Runtime's CUDA needs. */
export const goodMachine: MachineFacts = {
  files: {
    [`${proc}/version`]:
      "NVRM version: NVIDIA UNIX Open Kernel Module for x86_64  580.65.06  Release Build  (dvs-builder)\nGCC version: gcc\n",
    [`${proc}/gpus/0000:17:00.0/information`]: "Model: \t\t NVIDIA L4\nGPU UUID: \t GPU-1\n",
    [`${proc}/gpus/0000:65:00.0/information`]: "Model: \t\t NVIDIA L4\nGPU UUID: \t GPU-2\n",
  },
  names: {
    "/dev": ["nvidia0", "nvidia1", "nvidiactl", "nvidia-uvm"],
    [`${proc}/gpus`]: ["0000:17:00.0", "0000:65:00.0"],
    [libraries]: [
      "libonnxruntime.so.1",
      "libonnxruntime_providers_cuda.so",
      "libonnxruntime_providers_shared.so",
      "onnxruntime_binding.node",
    ],
  },
  programs: {
    ldd: lddText({
      "libcublasLt.so.13": "/usr/local/cuda/lib64",
      "libcublas.so.13": "/usr/local/cuda/lib64",
      "libcurand.so.10": "/usr/local/cuda/lib64",
      "libcudart.so.13": "/usr/local/cuda/lib64",
      "libcuda.so.1": "/lib/x86_64-linux-gnu",
      "libstdc++.so.6": "/lib/x86_64-linux-gnu",
    }),
    "/sbin/ldconfig":
      "2 libs found in cache `/etc/ld.so.cache'\n\tlibcudnn.so.9 (libc6,x86-64) => /lib/x86_64-linux-gnu/libcudnn.so.9\n\tlibcuda.so.1 (libc6,x86-64) => /lib/x86_64-linux-gnu/libcuda.so.1\n",
    "nvidia-smi": "NVIDIA L4, 23034 MiB\nNVIDIA L4, 23034 MiB\n",
  },
};
