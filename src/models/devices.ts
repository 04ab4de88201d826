import { execFile } from "node:child_process";
import { readdirSync, readFileSync } from "node:fs";
import { homedir } from "node:os";
import { join } from "node:path";
import { promisify } from "node:util";
import type { Provider } from "../job/jobfile/engine-spec.js";
import { assertNever } from "../base/errors.js";
import { runtimeFolder, runtimeVersion } from "./runtime-folder.js";

/** The parts of a machine that show whether a GPU can be used. */
export interface Machine {
  /** The platform as onnxruntime-node names its folders: "linux/x64". */
  readonly platform: string;
  readonly env: Readonly<Record<string, string | undefined>>;
  readonly home: string;
  /** The installed onnxruntime-node. */
  readonly runtime: { readonly folder: string; readonly version: string };
  /** Reads a text file; undefined if it is missing or cannot be read. */
  readText(path: string): string | undefined;
  /** Lists a folder; empty if it is missing. */
  list(folder: string): readonly string[];
  /** Runs a program and returns its output; undefined if it is missing or takes too long. */
  run(program: string, args: readonly string[]): Promise<string | undefined>;
}

const longestMs = 20_000;

export function thisMachine(): Machine {
  return {
    platform: `${process.platform}/${process.arch}`,
    env: process.env,
    home: homedir(),
    runtime: { folder: runtimeFolder(), version: runtimeVersion },
    readText(path) {
      try {
        return readFileSync(path, "utf8");
      } catch {
        return undefined; // what cannot be read is not there, as far as this program is concerned: doctor says so
      }
    },
    list(folder) {
      try {
        return readdirSync(folder).toSorted();
      } catch {
        return []; // the same
      }
    },
    async run(program, args) {
      try {
        const { stdout, stderr } = await promisify(execFile)(program, args, { timeout: longestMs });
        return `${stdout}${stderr}`;
      } catch {
        return undefined; // the program is not there, or fails: doctor says so
      }
    },
  };
}

/** Returns the folder of onnxruntime-node's own libraries for this platform. */
export function packageFolder({ runtime, platform }: Pick<Machine, "runtime" | "platform">): string {
  return join(runtime.folder, "bin/napi-v6", platform);
}

const runtimeLibrary = "libonnxruntime.so.1";

/**
 * Returns the folder that ONNX Runtime's library is loaded from. It looks for the libraries of providers there. The loader
 * searches LD_LIBRARY_PATH before the folder of the package, whose path is a RUNPATH.
 */
export function libraryFolder(machine: Machine): string {
  return libraryPath(machine).find((folder) => machine.list(folder).includes(runtimeLibrary)) ?? packageFolder(machine);
}

function libraryPath({ env }: Pick<Machine, "env">): string[] {
  return (env["LD_LIBRARY_PATH"] ?? "").split(":").filter((folder) => folder !== "");
}

/** As the dynamic loader does: see ld.so(8). */
async function findLibrary(machine: Machine, name: string): Promise<string | undefined> {
  const given = libraryPath(machine).find((folder) => machine.list(folder).includes(name));
  if (given !== undefined) {
    return join(given, name);
  }
  // "	libcuda.so.1 (libc6,x86-64) => /lib/x86_64-linux-gnu/libcuda.so.1"
  const known = (await machine.run("/sbin/ldconfig", ["-p"])) ?? "";
  const line = known.split("\n").find((candidate) => candidate.trim().startsWith(`${name} (`));
  const usual = ["/lib64", "/usr/lib64", "/lib", "/usr/lib"].find((folder) => machine.list(folder).includes(name));
  return line?.split(" => ")[1]?.trim() ?? (usual === undefined ? undefined : join(usual, name));
}

/** undefined: this machine has no `ldd`; for a library: the dynamic loader does not find it. */
async function neededLibraries(
  machine: Machine,
  path: string,
): Promise<ReadonlyMap<string, string | undefined> | undefined> {
  const said = await machine.run("ldd", [path]);
  return said === undefined ? undefined : parseLdd(said);
}

/** "	libcudart.so.12 => /usr/local/cuda/lib64/libcudart.so.12 (0x…)", "	libcudnn.so.9 => not found" */
function parseLdd(said: string): Map<string, string | undefined> {
  const found = new Map<string, string | undefined>();
  for (const line of said.split("\n")) {
    const [, name, where] = /^\s*(\S+) => (not found|\S+)/.exec(line) ?? [];
    if (name !== undefined) {
      found.set(name, where === "not found" ? undefined : where);
    }
    // "…/libc.so.6: version `GLIBC_2.38' not found (required by …)"
    const [, version] = /version `(\S+)' not found/.exec(line) ?? [];
    if (version !== undefined) {
      found.set(version, undefined);
    }
  }
  return found;
}

/** A part of the machine or the installation that a provider needs. */
export interface Part {
  readonly name: string;
  /** optional: missing, and not every model needs it. */
  readonly state: "ok" | "missing" | "optional" | "unknown";
  readonly found: string;
  readonly remedy?: string | undefined;
  /** Why a part is missing. device: the machine has a GPU, and it or its driver has failed. */
  readonly cause?: "device";
}

/** Describes the missing parts for an error; undefined if none is missing. */
export function missingText(parts: readonly Part[]): string | undefined {
  const absent = parts.filter(({ state }) => state === "missing");
  return absent.length === 0 ? undefined : absent.map(({ name, found }) => `${name}: ${found}`).join("; ");
}

interface Gpu {
  readonly name: string;
  /** The memory, "81,559 MiB", if the driver's tool reports it. */
  readonly memory: string | undefined;
}

const proc = "/proc/driver/nvidia";

/** Returns the version of NVIDIA's kernel module ("570.124.06"); undefined if it is not loaded. @public so that tests see it */
export function driverVersion({ readText }: Pick<Machine, "readText">): string | undefined {
  // "NVRM version: NVIDIA UNIX x86_64 Kernel Module  570.124.06  Wed …", or "… Open Kernel Module for x86_64  570…"
  return /^NVRM version:.*?\s(\d+\.\d+(?:\.\d+)?)\s/m.exec(readText(`${proc}/version`) ?? "")?.[1];
}

/** Lists the GPUs of the machine or container in the order of the driver. */
export async function listGpus(machine: Machine): Promise<readonly Gpu[]> {
  const said = await machine.run("nvidia-smi", ["--query-gpu=name,memory.total", "--format=csv,noheader"]);
  const lines = (said ?? "").split("\n").filter((line) => /, [\d.]+ \w+$/.test(line));
  if (lines.length > 0) {
    return lines.map((line) => {
      const [name = "", memory] = line.split(", ");
      return { name, memory };
    });
  }
  return informationOf(machine).map((text) => ({
    name: /^Model:\s*(.+)$/m.exec(text)?.[1] ?? "unknown",
    memory: undefined,
  }));
}

function informationOf({ list, readText }: Pick<Machine, "list" | "readText">): string[] {
  return list(`${proc}/gpus`).map((bus) => readText(join(proc, "gpus", bus, "information")) ?? "");
}

/** Returns how many GPUs CUDA numbers from 0 in this process; undefined if that is unknown. @public so that tests see it */
export function visibleGpus(machine: Pick<Machine, "env" | "list">): number | undefined {
  const chosen = machine.env["CUDA_VISIBLE_DEVICES"];
  if (chosen !== undefined) {
    const ids = chosen.split(",").map((id) => id.trim());
    const end = ids.findIndex((id) => id === "" || id.startsWith("-")); // CUDA ignores the rest
    return end === -1 ? ids.length : end;
  }
  const nodes = machine.list("/dev").filter((name) => /^nvidia\d+$/.test(name)).length;
  const count = nodes > 0 ? nodes : machine.list(`${proc}/gpus`).length;
  return count === 0 ? undefined : count;
}

/** Values of NVIDIA_VISIBLE_DEVICES that name no GPU. NVIDIA's images set `all`, with and without a GPU. */
const namesNoGpu = /^(void|none|all|\s*)$/;

/**
 * Returns the signs that this process was given a GPU, usable or not. Empty if CUDA_VISIBLE_DEVICES hides all GPUs.
 * @param hasLibrary whether libcuda exists; without it, the kernel driver belongs to a host whose GPUs this container
 * was not given
 */
function signsOfGpu(
  machine: Pick<Machine, "env" | "list" | "readText">,
  { hasLibrary }: { readonly hasLibrary: boolean },
): string[] {
  const { env, list } = machine;
  if (env["CUDA_VISIBLE_DEVICES"] !== undefined && visibleGpus(machine) === 0) {
    return [];
  }
  const given = env["NVIDIA_VISIBLE_DEVICES"] ?? "";
  const node = list("/dev").find((name) => /^nvidia(\d+|ctl)$/.test(name));
  const version = hasLibrary ? driverVersion(machine) : undefined;
  return [
    ...(namesNoGpu.test(given) ? [] : [`NVIDIA_VISIBLE_DEVICES is ${given}`]),
    ...(node === undefined ? [] : [`there is /dev/${node}`]),
    ...(version === undefined ? [] : [`the kernel has driver ${version}`]),
  ];
}

/** Returns the GPU of a worker: the workers of a machine take its GPUs in turn. */
export function deviceOf(
  given: number | "worker",
  worker: { readonly index: number },
  machine: Pick<Machine, "env" | "list">,
): number {
  return given === "worker" ? worker.index % Math.max(1, visibleGpus(machine) ?? worker.index + 1) : given;
}

/** Returns a text that changes with the GPUs or the driver. Reads files only, so that it is fast. */
export function gpuIdentity(machine: Pick<Machine, "env" | "list" | "readText">): string {
  const gpus = informationOf(machine).map((text) => /^GPU UUID:\s*(.+)$/m.exec(text)?.[1] ?? text);
  return [driverVersion(machine) ?? "", machine.env["CUDA_VISIBLE_DEVICES"] ?? "", ...gpus].join("\n");
}

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
      return [platformPart("CoreML", /^darwin\//, "score on macOS, or list another provider", machine)];
    case "dml":
      return [platformPart("DirectML", /^win32\//, "score on Windows, or list another provider", machine)];
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

/** @param platforms those for which the npm package of ONNX Runtime has the provider */
function platformPart(name: string, platforms: RegExp, remedy: string, { platform, runtime }: Machine): Part {
  return platforms.test(platform)
    ? ok(name, `in onnxruntime-node ${runtime.version}`)
    : missing(name, `onnxruntime-node ${runtime.version} has none for ${platform.replace("/", " ")}`, remedy);
}

async function webGpuParts(machine: Machine): Promise<readonly Part[]> {
  const library = platformPart("WebGPU", withWebGpu, "score on Linux x64, macOS or Windows", machine);
  if (library.state !== "ok" || !machine.platform.startsWith("linux/")) {
    return [library];
  }
  const drivers = vulkanDrivers(machine);
  const ofNvidia = drivers.state === "ok" && /nvidia/i.test(drivers.found) ? [await openGlLoaders(machine)] : [];
  return [library, await vulkanLoader(machine), drivers, ...ofNvidia, await graphics(machine)];
}

/** As the README of ONNX Runtime 1.30 lists them. */
const withWebGpu = /^(linux\/x64|darwin\/(arm64|x64)|win32\/(x64|arm64))$/;

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

/** CUDA errors that a retry does not solve: driver, GPU and provider do not fit, or there is no GPU of that number. */
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
