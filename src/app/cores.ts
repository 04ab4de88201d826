import { availableParallelism } from "node:os";
import { dirname, join } from "node:path";
import { addressSpaceBytes, threadsWithin } from "./address-space.js";
import { type ReadText, readText } from "./read-text.js";

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
