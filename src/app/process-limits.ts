import { readFileSync } from "node:fs";
import { availableParallelism } from "node:os";
import { dirname, join } from "node:path";
import { JobError } from "../util/errors.js";

/** Reads a text file; undefined if there is none. */
export type ReadText = (path: string) => string | undefined;

function readText(path: string): string | undefined {
  try {
    return readFileSync(path, "utf8");
  } catch {
    return undefined; // not Linux, or no permission
  }
}

const gib = 1024 ** 3;
/**
 * What a process with one scoring thread needs; V8 and native libraries reserve far more than they use. Measured: 1.95
 * GiB.
 */
const leastBytes = 2 * gib;
/**
 * What a process needs without scoring threads, and what each adds. Measured: 1.95 GiB with 1, 3.9 with 4, 6.0 with 8,
 * 10.2 with 16.
 */
const baseBytes = 1.5 * gib;
const threadBytes = 0.625 * gib;

/** Returns the address space that `ulimit -v` leaves this process, in bytes; infinite if there is no limit. */
export function addressSpaceBytes(read: ReadText = readText): number {
  const [, bytes] = /^Max address space +(\d+) /m.exec(read("/proc/self/limits") ?? "") ?? [];
  return bytes === undefined ? Number.POSITIVE_INFINITY : Number(bytes);
}

/** Returns how many scoring threads fit into an address space; at least 1. */
function threadsWithin(bytes: number): number {
  return Math.max(1, Math.floor((bytes - baseBytes) / threadBytes));
}

/** Whether a thread can be started. V8 aborts the process (133, 134) if it gets no address space for one. */
export function hasRoomForThreads(bytes = addressSpaceBytes()): boolean {
  return bytes >= leastBytes;
}

/** Must be called before a thread is started. @throws JobError USAGE if `ulimit -v` leaves too little address space */
export function refuseSmallAddressSpace(bytes = addressSpaceBytes()): void {
  if (!hasRoomForThreads(bytes)) {
    const found = (bytes / gib).toFixed(1);
    throw new JobError(
      "USAGE",
      `starting threads: ulimit -v leaves ${found} GiB of addresses, and scoring reserves at least ${leastBytes / gib} GiB`,
      {
        hint: "ulimit -v counts addresses, most of which are never used: take it away (ulimit -v unlimited), and limit memory by a control group: MemoryMax= in systemd, --memory in Docker, limits in Kubernetes",
      },
    );
  }
}

/**
 * Returns how many CPU cores this process may use: the fewest of its CPU affinity, the quotas of its control groups,
 * and the threads that `ulimit -v` allows. Before version 22, Node knows the affinity only: in a pod with 2 CPUs it
 * reports the 64 of the machine.
 */
export function usableCores(available = availableParallelism(), read: ReadText = readText): number {
  const threads = threadsWithin(addressSpaceBytes(read));
  const quotas = (read("/proc/self/cgroup") ?? "").split("\n").flatMap((line) => quotasOf(line, read));
  return Math.max(1, Math.min(available, threads, ...quotas.map((quota) => Math.ceil(quota))));
}

/** Returns the CPU quotas of the group in a line of /proc/self/cgroup and of the groups above it. See cgroups(7). */
function quotasOf(line: string, read: ReadText): number[] {
  const [, controllers, path] = /^\d+:([^:]*):(\/.*)$/.exec(line) ?? [];
  if (controllers === undefined || path === undefined) {
    return [];
  }
  if (controllers === "") {
    // Version 2: "max 100000", "200000 100000"; below /unified if both versions are mounted.
    return foldersAbove(path).flatMap((folder) =>
      ["/sys/fs/cgroup", "/sys/fs/cgroup/unified"].flatMap((root) => {
        const [quota, period] = (read(join(root, folder, "cpu.max")) ?? "").trim().split(" ");
        return ratio(quota, period);
      }),
    );
  }
  if (!controllers.split(",").includes("cpu")) {
    return [];
  }
  // Version 1: -1 means no limit. A container may see its own group at the root, whatever its name outside.
  return foldersAbove(path).flatMap((folder) => {
    const group = join("/sys/fs/cgroup", controllers, folder);
    return ratio(read(join(group, "cpu.cfs_quota_us")), read(join(group, "cpu.cfs_period_us")));
  });
}

/** "/a/b", "/a", "/" */
function foldersAbove(path: string): string[] {
  return path === "/" ? ["/"] : [path, ...foldersAbove(dirname(path))];
}

function ratio(quotaText: string | undefined, periodText: string | undefined): number[] {
  const quota = Number(quotaText);
  const period = Number(periodText);
  return quota > 0 && period > 0 ? [quota / period] : [];
}
