import { join } from "node:path";
import type { Provider } from "../../job/jobfile/engine-spec.js";
import { assertNever } from "../../base/errors.js";
import {
  driverVersion,
  findLibrary,
  libraryFolder,
  listGpus,
  type Machine,
  neededLibraries,
  type Part,
  signsOfGpu,
  visibleGpus,
} from "./machine.js";

/** Checks what a provider needs on this machine; empty if it needs nothing but onnxruntime-node. */
export async function partsOf(provider: Provider, machine: Machine, deviceId: number): Promise<readonly Part[]> {
  switch (provider) {
    case "cpu":
      return [];
    case "cuda":
    case "tensorrt":
      return await gpuParts(provider, machine, deviceId);
    case "webgpu":
      return await webGpuParts(machine);
    case "coreml":
      return [platformPart("CoreML", "darwin", machine)];
    case "dml":
      return [platformPart("DirectML", "win32", machine)];
    default:
      return assertNever(provider);
  }
}

/** The providers of `providers: auto`, in its order, that a machine has all parts for. The first GPU counts. */
export async function providersOn(machine: Machine): Promise<readonly Provider[]> {
  const found: Provider[] = [];
  for (const provider of ["cuda", "webgpu", "coreml", "dml", "cpu"] as const) {
    const parts = await partsOf(provider, machine, 0);
    if (parts.every(({ state }) => state !== "missing")) {
      found.push(provider);
    }
  }
  return found;
}

function platformPart(name: string, system: string, { platform, runtime }: Machine): Part {
  return platform.startsWith(`${system}/`)
    ? ok(name, `in onnxruntime-node ${runtime.version}`)
    : missing(
        name,
        `onnxruntime-node has none for ${platform.replace("/", " ")}`,
        `score on ${system === "darwin" ? "macOS" : "Windows"}, or list another provider`,
      );
}

async function webGpuParts(machine: Machine): Promise<readonly Part[]> {
  const library = webGpuLibrary(machine);
  if (library.state !== "ok" || !machine.platform.startsWith("linux/")) {
    return [library];
  }
  const drivers = vulkanDrivers(machine);
  const ofNvidia = drivers.state === "ok" && /nvidia/i.test(drivers.found) ? [await openGlLoaders(machine)] : [];
  return [library, await vulkanLoader(machine), drivers, ...ofNvidia, await graphics(machine)];
}

/** Platforms for which the npm package of ONNX Runtime 1.30 has WebGPU, as its README lists them. */
const platforms: ReadonlySet<string> = new Set(["linux/x64", "darwin/arm64", "darwin/x64", "win32/x64", "win32/arm64"]);

function webGpuLibrary({ platform, runtime }: Machine): Part {
  const name = "WebGPU";
  return platforms.has(platform)
    ? ok(name, `in onnxruntime-node ${runtime.version}`)
    : missing(
        name,
        `onnxruntime-node ${runtime.version} has none for ${platform.replace("/", " ")}`,
        "score on Linux x64, macOS or Windows",
      );
}

const driverAdvice =
  "apt-get install libvulkan1 mesa-vulkan-drivers for GPUs of AMD and Intel; NVIDIA's driver has its own, which a container gets with NVIDIA_DRIVER_CAPABILITIES=all";

async function vulkanLoader(machine: Machine): Promise<Part> {
  const name = "Vulkan loader";
  const library = "libvulkan.so.1";
  const found = await findLibrary(machine, library);
  return found === undefined
    ? missing(name, `${library} is nowhere`, `install it and a Vulkan driver: ${driverAdvice}`)
    : ok(name, found);
}

/** Finds the drivers as the Vulkan loader does (its LoaderDriverInterface.md, "Driver Discovery"). */
function vulkanDrivers(machine: Machine): Part {
  const name = "Vulkan drivers";
  const { env, home } = machine;
  const given = env["VK_DRIVER_FILES"] ?? env["VK_ICD_FILENAMES"];
  if (given !== undefined && given !== "") {
    const present = given.split(":").filter((path) => machine.readText(path) !== undefined);
    return present.length > 0
      ? ok(name, present.join(", "))
      : missing(
          name,
          `VK_DRIVER_FILES or VK_ICD_FILENAMES is ${given}, where nothing can be read`,
          "unset the variable, or let it name the manifest of a driver",
        );
  }
  const roots = ["/etc", "/usr/local/share", "/usr/share", "/usr/local/etc", join(home, ".local/share")];
  const manifests = roots
    .map((root) => join(root, "vulkan/icd.d"))
    .flatMap((folder) => machine.list(folder).map((file) => join(folder, file)))
    .filter((path) => path.endsWith(".json"));
  return manifests.length > 0
    ? ok(name, manifests.join(", "))
    : missing(name, "none in /etc, /usr/share or /usr/local (vulkan/icd.d)", driverAdvice);
}

/** NVIDIA's Vulkan driver is a library of its OpenGL driver, and has no `vkCreateInstance` if both loaders are missing. */
async function openGlLoaders(machine: Machine): Promise<Part> {
  const name = "OpenGL loaders";
  const libraries = ["libEGL.so.1", "libGLX.so.0"];
  const found = (await Promise.all(libraries.map((library) => findLibrary(machine, library)))).filter(
    (path) => path !== undefined,
  );
  return found.length > 0
    ? ok(name, found.join(", "))
    : missing(
        name,
        `${libraries.join(" and ")} are nowhere; NVIDIA's Vulkan driver needs them`,
        "apt-get install libegl1 libgl1 libgles2 libopengl0",
      );
}

/** A driver may compute on the CPU, so that a machine without a GPU is no fault. */
async function graphics(machine: Machine): Promise<Part> {
  const nodes = machine.list("/dev/dri").filter((file) => file.startsWith("renderD"));
  const gpus = (await listGpus(machine)).map((gpu) => gpu.name);
  const found = [...gpus, ...nodes.map((node) => `/dev/dri/${node}`)];
  return found.length > 0
    ? ok("GPUs", found.join(", "))
    : { name: "GPUs", state: "unknown", found: "neither nvidia-smi nor /dev/dri shows one" };
}

export type GpuProvider = "cuda" | "tensorrt";

/** Checks what a provider needs on this machine, in the order in which it is needed. @public so that tests describe a machine */
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
  const absent = parts.filter(({ state }) => state === "missing");
  const failed = absent.length > 0 ? absent.every(({ cause }) => cause === "device") : / failure /.test(message);
  if (!failed || lasting.test(message)) {
    return [];
  }
  const hasLibrary = !absent.some(({ name }) => name === driverName);
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
    return missing(name, found, "score on a Linux machine with an x64 processor");
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
    return missing(name, found, `make the folder again: ${install}`);
  }
  if (absent.length === 0) {
    return { name, state: "ok", found: join(folder, `libonnxruntime_providers_${provider}.so`) };
  }
  return missing(
    name,
    `${absent.join(", ")} not in ${folder} (the npm package does not have them)`,
    `${install}; or the image of the target gpu`,
  );
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
    return missing(name, `libcuda.so.1 is nowhere${kernel}`, remedy, "device");
  }
  if (version === undefined) {
    return { name, state: "unknown", found: `${library}; there is no /proc/driver/nvidia/version`, remedy };
  }
  const major = cudaMajor(needs);
  const least = major === undefined ? undefined : leastDriver[major];
  return least !== undefined && Number.parseInt(version, 10) < least
    ? missing(name, `${version} is too old for CUDA ${major}`, `install driver ${least} or later`)
    : ok(name, `${version}, ${library}`);
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
      ? ok(name, wanted.map(([, where]) => where).join(", "))
      : missing(
          name,
          `${absent.join(", ")} nowhere (LD_LIBRARY_PATH ${search === undefined ? "is not set" : `is ${search}`})`,
          `install CUDA ${major}'s runtime libraries, or name their folder in LD_LIBRARY_PATH before the start`,
        ),
    ...others.map(([library]): Part => {
      return missing(library, "nowhere", "install the package that has it");
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
    return ok("cuDNN", where);
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
    : missing(
        name,
        `${absent.map(([library]) => library).join(", ")} nowhere`,
        "install TensorRT 10 for this CUDA; `cuda` does without",
      );
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
    return missing(
      name,
      [none, ...found].join("; "),
      "give the container a GPU, or unset CUDA_VISIBLE_DEVICES",
      "device",
    );
  }
  return deviceId < visible
    ? ok(name, found.join("; "))
    : missing(
        name,
        [`there is no device ${deviceId}: ${visible} can be seen, from 0`, ...found].join("; "),
        `take engine.device_id from 0 to ${visible - 1}`,
      );
}

function ok(name: string, found: string): Part {
  return { name, state: "ok", found };
}

function missing(name: string, found: string, remedy: string, cause?: Part["cause"]): Part {
  return { name, state: "missing", found, remedy, ...(cause && { cause }) };
}
