import { join } from "node:path";
import type { Machine } from "./machine.js";

export interface Gpu {
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
