import { join } from "node:path";
import type { Provider } from "../../spec/engine-spec.js";
import { assertNever } from "../../util/errors.js";
import { gpuParts } from "./gpu-parts.js";
import { listGpus } from "./gpus.js";
import { findLibrary, type Machine, type Part } from "./machine.js";

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
    ? { name, state: "ok", found: `in onnxruntime-node ${runtime.version}` }
    : {
        name,
        state: "missing",
        found: `onnxruntime-node has none for ${platform.replace("/", " ")}`,
        remedy: `score on ${system === "darwin" ? "macOS" : "Windows"}, or list another provider`,
      };
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
    ? { name, state: "ok", found: `in onnxruntime-node ${runtime.version}` }
    : {
        name,
        state: "missing",
        found: `onnxruntime-node ${runtime.version} has none for ${platform.replace("/", " ")}`,
        remedy: "score on Linux x64, macOS or Windows",
      };
}

const driverAdvice =
  "apt-get install libvulkan1 mesa-vulkan-drivers for GPUs of AMD and Intel; NVIDIA's driver has its own, which a container gets with NVIDIA_DRIVER_CAPABILITIES=all";

async function vulkanLoader(machine: Machine): Promise<Part> {
  const name = "Vulkan loader";
  const library = "libvulkan.so.1";
  const found = await findLibrary(machine, library);
  return found === undefined
    ? {
        name,
        state: "missing",
        found: `${library} is nowhere`,
        remedy: `install it and a Vulkan driver: ${driverAdvice}`,
      }
    : { name, state: "ok", found };
}

/** Finds the drivers as the Vulkan loader does (its LoaderDriverInterface.md, "Driver Discovery"). */
function vulkanDrivers(machine: Machine): Part {
  const name = "Vulkan drivers";
  const { env, home } = machine;
  const given = env["VK_DRIVER_FILES"] ?? env["VK_ICD_FILENAMES"];
  if (given !== undefined && given !== "") {
    const present = given.split(":").filter((path) => machine.readText(path) !== undefined);
    return present.length > 0
      ? { name, state: "ok", found: present.join(", ") }
      : {
          name,
          state: "missing",
          found: `VK_DRIVER_FILES or VK_ICD_FILENAMES is ${given}, where nothing can be read`,
          remedy: "unset the variable, or let it name the manifest of a driver",
        };
  }
  const roots = ["/etc", "/usr/local/share", "/usr/share", "/usr/local/etc", join(home, ".local/share")];
  const manifests = roots
    .map((root) => join(root, "vulkan/icd.d"))
    .flatMap((folder) => machine.list(folder).map((file) => join(folder, file)))
    .filter((path) => path.endsWith(".json"));
  return manifests.length > 0
    ? { name, state: "ok", found: manifests.join(", ") }
    : { name, state: "missing", found: "none in /etc, /usr/share or /usr/local (vulkan/icd.d)", remedy: driverAdvice };
}

/** NVIDIA's Vulkan driver is a library of its OpenGL driver, and has no `vkCreateInstance` if both loaders are missing. */
async function openGlLoaders(machine: Machine): Promise<Part> {
  const name = "OpenGL loaders";
  const libraries = ["libEGL.so.1", "libGLX.so.0"];
  const found = (await Promise.all(libraries.map((library) => findLibrary(machine, library)))).filter(
    (path) => path !== undefined,
  );
  return found.length > 0
    ? { name, state: "ok", found: found.join(", ") }
    : {
        name,
        state: "missing",
        found: `${libraries.join(" and ")} are nowhere; NVIDIA's Vulkan driver needs them`,
        remedy: "apt-get install libegl1 libgl1 libgles2 libopengl0",
      };
}

/** A driver may compute on the CPU, so that a machine without a GPU is no fault. */
async function graphics(machine: Machine): Promise<Part> {
  const nodes = machine.list("/dev/dri").filter((file) => file.startsWith("renderD"));
  const gpus = (await listGpus(machine)).map((gpu) => gpu.name);
  const found = [...gpus, ...nodes.map((node) => `/dev/dri/${node}`)];
  return found.length > 0
    ? { name: "GPUs", state: "ok", found: found.join(", ") }
    : { name: "GPUs", state: "unknown", found: "neither nvidia-smi nor /dev/dri shows one" };
}
