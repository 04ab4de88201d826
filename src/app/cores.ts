import { availableParallelism } from "node:os";
import { dirname, join } from "node:path";
import { addressSpaceBytes, threadsWithin } from "./address-space.js";
import { type ReadText, readText } from "./read-text.js";

/**
 * CPU cores that this process may keep busy: those it may run on, or what its control groups allow it, where that is
 * less. Node looks at the former only before version 22: in a pod of 2 CPUs it sees the node's 64. `ulimit -v` leaves
 * addresses for so many threads.
 */
export function usableCores(available = availableParallelism(), read: ReadText = readText): number {
  const threads = threadsWithin(addressSpaceBytes(read));
  const quotas = (read("/proc/self/cgroup") ?? "").split("\n").flatMap((line) => quotasOf(line, read));
  return Math.max(1, Math.min(available, threads, ...quotas.map((quota) => Math.ceil(quota))));
}

/** CPUs that the group of a line of /proc/self/cgroup and those above it may use. cgroups(7) */
function quotasOf(line: string, read: ReadText): number[] {
  const [, controllers, path] = /^\d+:([^:]*):(\/.*)$/.exec(line) ?? [];
  if (controllers === undefined || path === undefined) {
    return [];
  }
  if (controllers === "") {
    // Version 2: "max 100000", "200000 100000"; below /unified where both versions are mounted.
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
  // Version 1: -1 is no limit. A container may see its own group at the root, whatever it is called outside.
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
