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
