import { join } from "node:path";
import { driverVersion, listGpus, signsOfGpu, visibleGpus } from "./gpus.js";
import { findLibrary, libraryFolder, type Machine, neededLibraries, type Part } from "./machine.js";

export type GpuProvider = "cuda" | "tensorrt";

/** Checks what a provider needs on this machine, in the order in which it is needed. */
export async function gpuParts(provider: GpuProvider, machine: Machine, deviceId: number): Promise<readonly Part[]> {
  const library = providerLibrary(provider, machine);
  const needs = library.state === "ok" ? await needsOf(provider, machine) : undefined;
  return [
    library,
    await driver(machine, needs),
    ...cudaParts(machine, needs),
    await cudnn(machine, needs),
    ...(provider === "tensorrt" ? [tensorRt(needs)] : []),
    await device(machine, deviceId),
  ];
}

/**
 * CUDA errors that a retry does not solve: driver, GPU and provider do not fit together, or there is no GPU of that
 * number.
 */
const lasting = /\bCUDA failure (35|101|209|222|803|804): /;

/**
 * Returns the signs that this machine has a GPU, if that GPU is why a provider failed. Empty: the machine has no GPU,
 * or something else is missing.
 * @param message of ONNX Runtime
 */
export function signsOfFailedGpu(parts: readonly Part[], message: string, machine: Machine): readonly string[] {
  const missing = parts.filter(({ state }) => state === "missing");
  const failed = missing.length > 0 ? missing.every(({ cause }) => cause === "device") : / failure /.test(message);
  if (!failed || lasting.test(message)) {
    return [];
  }
  const hasLibrary = !missing.some(({ name }) => name === driverName);
  return signsOfGpu(machine, { hasLibrary });
}

type Needs = ReadonlyMap<string, string | undefined>;

async function needsOf(provider: GpuProvider, machine: Machine): Promise<Needs | undefined> {
  // TensorRT leaves operators that it does not support to CUDA, and uses CUDA's libraries.
  const names = provider === "cuda" ? ["cuda"] : ["cuda", "tensorrt"];
  const all = new Map<string, string | undefined>();
  for (const name of names) {
    const path = join(libraryFolder(machine), `libonnxruntime_providers_${name}.so`);
    const needed = await neededLibraries(machine, path);
    if (needed === undefined) {
      return undefined;
    }
    for (const [library, where] of needed) {
      all.set(library, where);
    }
  }
  return all;
}

const install = 'the four lines under "Install CUDA" in docs/gpu.md';

function providerLibrary(provider: GpuProvider, machine: Machine): Part {
  const name = "provider library";
  if (machine.platform !== "linux/x64") {
    const found = `onnxruntime-node has CUDA for Linux on x64 only; this is ${machine.platform.replace("/", " ")}`;
    return { name, state: "missing", found, remedy: "score on a Linux machine with an x64 processor" };
  }
  const folder = libraryFolder(machine);
  const there = machine.list(folder);
  const wanted = ["shared", "cuda", ...(provider === "tensorrt" ? ["tensorrt"] : [])];
  const absent = wanted.map((one) => `libonnxruntime_providers_${one}.so`).filter((file) => !there.includes(file));
  // pip writes it above onnxruntime/capi, where the libraries are.
  const version = machine
    .list(join(folder, "../.."))
    .map((entry) => /^onnxruntime_gpu-(.+)\.dist-info$/.exec(entry)?.[1])
    .find((found) => found !== undefined);
  if (version !== undefined && version !== machine.runtime.version) {
    const found = `${folder} is for onnxruntime-node ${version}, not ${machine.runtime.version}`;
    return { name, state: "missing", found, remedy: `make the folder again: ${install}` };
  }
  if (absent.length === 0) {
    return { name, state: "ok", found: join(folder, `libonnxruntime_providers_${provider}.so`) };
  }
  return {
    name,
    state: "missing",
    found: `${absent.join(", ")} not in ${folder} (the npm package does not have them)`,
    remedy: `${install}; or the image of the target gpu`,
  };
}

/** The oldest driver for each major version of CUDA. See CUDA's release notes, "minor version compatibility". */
const leastDriver: Readonly<Record<string, number>> = { "11": 450, "12": 525, "13": 580 };

const driverName = "NVIDIA driver";

async function driver(machine: Machine, needs: Needs | undefined): Promise<Part> {
  const name = driverName;
  const version = driverVersion(machine);
  const library = needs?.get("libcuda.so.1") ?? (await findLibrary(machine, "libcuda.so.1"));
  const remedy =
    "install NVIDIA's driver; in a container, start it with GPUs: docker run --gpus all, nvidia.com/gpu in Kubernetes";
  if (library === undefined) {
    const kernel =
      version === undefined ? "" : `; the kernel has driver ${version}, but the container was not given it`;
    return { name, state: "missing", found: `libcuda.so.1 is nowhere${kernel}`, remedy, cause: "device" };
  }
  if (version === undefined) {
    return { name, state: "unknown", found: `${library}; there is no /proc/driver/nvidia/version`, remedy };
  }
  const major = cudaMajor(needs);
  const least = major === undefined ? undefined : leastDriver[major];
  return least !== undefined && Number.parseInt(version, 10) < least
    ? {
        name,
        state: "missing",
        found: `${version} is too old for CUDA ${major}`,
        remedy: `install driver ${least} or later`,
      }
    : { name, state: "ok", found: `${version}, ${library}` };
}

function cudaMajor(needs: Needs | undefined): string | undefined {
  for (const library of needs?.keys() ?? []) {
    const [, major] = /^libcu(?:dart|blas)\.so\.(\d+)$/.exec(library) ?? [];
    if (major !== undefined) {
      return major;
    }
  }
  return undefined;
}

const cudaLibrary = /^lib(cudart|cublas|cublasLt|cufft|curand|cusparse|cusolver|nvrtc|nvJitLink)\.so\.\d+$/;

function cudaParts(machine: Machine, needs: Needs | undefined): Part[] {
  const major = cudaMajor(needs);
  if (needs === undefined) {
    const found = "the needed version is unknown without the provider library and ldd";
    return [{ name: "CUDA", state: "unknown", found }];
  }
  const wanted = [...needs].filter(([library]) => cudaLibrary.test(library));
  const absent = wanted.filter(([, where]) => where === undefined).map(([library]) => library);
  const others = [...needs].filter(([library, where]) => where === undefined && !known.test(library));
  const name = `CUDA ${major ?? ""}`.trim();
  const search = machine.env["LD_LIBRARY_PATH"];
  return [
    absent.length === 0
      ? { name, state: "ok", found: wanted.map(([, where]) => where).join(", ") }
      : {
          name,
          state: "missing",
          found: `${absent.join(", ")} nowhere (LD_LIBRARY_PATH ${search === undefined ? "is not set" : `is ${search}`})`,
          remedy: `install CUDA ${major}'s runtime libraries, or name their folder in LD_LIBRARY_PATH before the start`,
        },
    ...others.map(([library]): Part => {
      return { name: library, state: "missing", found: "nowhere", remedy: "install the package that has it" };
    }),
  ];
}

/** Libraries that are parts of their own. */
const known = new RegExp(`${cudaLibrary.source}|^libcuda\\.so\\.1$|^libcudnn|^libnv(infer|onnxparser)`);

/** Checks cuDNN, which a provider needs to load, or only for some operators, such as convolutions. */
async function cudnn(machine: Machine, needs: Needs | undefined): Promise<Part> {
  const [needed] = [...(needs ?? [])].find(([library]) => library.startsWith("libcudnn.")) ?? [];
  const library = needed ?? "libcudnn.so.9";
  const where = needs?.get(library) ?? (await findLibrary(machine, library));
  if (where !== undefined) {
    return { name: "cuDNN", state: "ok", found: where };
  }
  return {
    name: "cuDNN",
    state: needed === undefined ? "optional" : "missing",
    found: `${library} is nowhere`,
    remedy: "install cuDNN 9 for this CUDA, or name its folder in LD_LIBRARY_PATH; models with convolutions need it",
  };
}

function tensorRt(needs: Needs | undefined): Part {
  const name = "TensorRT";
  if (needs === undefined) {
    return { name, state: "unknown", found: "the needed version is unknown without the provider library" };
  }
  const absent = [...needs].filter(([library, where]) => library.startsWith("libnv") && where === undefined);
  return absent.length === 0
    ? {
        name,
        state: "ok",
        found: [...needs]
          .flatMap(([library, where]) => (library.startsWith("libnvinfer") && where !== undefined ? [where] : []))
          .join(", "),
      }
    : {
        name,
        state: "missing",
        found: `${absent.map(([library]) => library).join(", ")} nowhere`,
        remedy: "install TensorRT 10 for this CUDA; `cuda` does without",
      };
}

async function device(machine: Machine, deviceId: number): Promise<Part> {
  const name = "GPUs";
  const gpus = await listGpus(machine);
  const visible = visibleGpus(machine) ?? gpus.length;
  const chosen = machine.env["CUDA_VISIBLE_DEVICES"];
  const listed = gpus.map((gpu) => (gpu.memory === undefined ? gpu.name : `${gpu.name} (${gpu.memory})`)).join(", ");
  const found = [listed, chosen === undefined ? "" : `CUDA_VISIBLE_DEVICES=${chosen}`].filter((text) => text !== "");
  if (visible === 0) {
    const none = gpus.length > 0 ? "the process sees none of them" : "none";
    return {
      name,
      state: "missing",
      found: [none, ...found].join("; "),
      remedy: "give the container a GPU, or unset CUDA_VISIBLE_DEVICES",
      cause: "device",
    };
  }
  return deviceId < visible
    ? { name, state: "ok", found: found.join("; ") }
    : {
        name,
        state: "missing",
        found: [`there is no device ${deviceId}: ${visible} can be seen, from 0`, ...found].join("; "),
        remedy: `take engine.device_id from 0 to ${visible - 1}`,
      };
}
