import { execFile } from "node:child_process";
import { readdirSync, readFileSync } from "node:fs";
import { homedir } from "node:os";
import { join } from "node:path";
import { promisify } from "node:util";
import { runtimeFolder, runtimeVersion } from "../runtime-folder.js";

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

/** The library that onnxruntime-node loads on Linux. */
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

/** Finds a library by name as the dynamic loader does; undefined if it is missing. See ld.so(8). */
export async function findLibrary(machine: Machine, name: string): Promise<string | undefined> {
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

/**
 * Returns the libraries that a library needs, each with the path that the dynamic loader finds, or undefined if it is
 * missing. undefined: this machine has no `ldd`.
 */
export async function neededLibraries(
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
  /** What to do about it. */
  readonly remedy?: string | undefined;
  /** Why a part is missing. device: the machine has a GPU, and it or its driver has failed. */
  readonly cause?: "device";
}

/** Describes the missing parts for an error; undefined if none is missing. */
export function missingText(parts: readonly Part[]): string | undefined {
  const missing = parts.filter(({ state }) => state === "missing");
  return missing.length === 0 ? undefined : missing.map(({ name, found }) => `${name}: ${found}`).join("; ");
}

interface Gpu {
  readonly name: string;
  /** The memory, "81,559 MiB", if the driver's tool reports it. */
  readonly memory: string | undefined;
}

const proc = "/proc/driver/nvidia";

/** Returns the version of NVIDIA's kernel module ("570.124.06"); undefined if it is not loaded. */
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

/** Returns how many GPUs CUDA numbers from 0 in this process; undefined if that is unknown. */
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
 * Returns the signs that this process was given a GPU, usable or not: the variable of the device plug-in, device files,
 * and the kernel driver. Empty if CUDA_VISIBLE_DEVICES hides all GPUs.
 * @param hasLibrary whether libcuda exists; without it, the kernel driver belongs to a host whose GPUs this container
 * was not given
 */
export function signsOfGpu(
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
