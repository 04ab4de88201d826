import { join } from "node:path";
import type { Machine } from "./machine.js";

export interface Gpu {
  readonly name: string;
  /** "81,559 MiB", where the driver's own tool says it. */
  readonly memory: string | undefined;
}

const proc = "/proc/driver/nvidia";

/** The version of NVIDIA's kernel module: "570.124.06"; undefined where it is not loaded. */
export function driverVersion({ readText }: Pick<Machine, "readText">): string | undefined {
  // "NVRM version: NVIDIA UNIX x86_64 Kernel Module  570.124.06  Wed …", or "… Open Kernel Module for x86_64  570…"
  return /^NVRM version:.*?\s(\d+\.\d+(?:\.\d+)?)\s/m.exec(readText(`${proc}/version`) ?? "")?.[1];
}

/** Those of the machine, or of the container, in the driver's order. */
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

/** GPUs that CUDA will number from 0 in this process; undefined where nothing tells how many. */
export function visibleGpus(machine: Pick<Machine, "env" | "list">): number | undefined {
  const chosen = machine.env["CUDA_VISIBLE_DEVICES"];
  if (chosen !== undefined) {
    const ids = chosen.split(",").map((id) => id.trim());
    const end = ids.findIndex((id) => id === "" || id.startsWith("-")); // what is behind does not count
    return end === -1 ? ids.length : end;
  }
  const nodes = machine.list("/dev").filter((name) => /^nvidia\d+$/.test(name)).length;
  const count = nodes > 0 ? nodes : machine.list(`${proc}/gpus`).length;
  return count === 0 ? undefined : count;
}

/** Values of NVIDIA_VISIBLE_DEVICES that name no GPU. NVIDIA's images have `all`, with and without one. */
const namesNoGpu = /^(void|none|all|\s*)$/;

/**
 * What says that this process was given a GPU, whether or not it can be used: the device plug-in's variable, device
 * files, and the kernel's driver. None where CUDA_VISIBLE_DEVICES hides all. `hasLibrary`: libcuda is there; without
 * it, the kernel's driver is that of a host whose GPUs this container was not given.
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

/** The device of a worker: those of one machine take its GPUs in turn. */
export function deviceOf(
  given: number | "worker",
  worker: { readonly index: number },
  machine: Pick<Machine, "env" | "list">,
): number {
  return given === "worker" ? worker.index % Math.max(1, visibleGpus(machine) ?? worker.index + 1) : given;
}

/** What changes when GPUs or driver do. Reads files only: it takes no time. */
export function gpuIdentity(machine: Pick<Machine, "env" | "list" | "readText">): string {
  const gpus = informationOf(machine).map((text) => /^GPU UUID:\s*(.+)$/m.exec(text)?.[1] ?? text);
  return [driverVersion(machine) ?? "", machine.env["CUDA_VISIBLE_DEVICES"] ?? "", ...gpus].join("\n");
}
