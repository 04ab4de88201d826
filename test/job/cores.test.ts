import { expect, test } from "vitest";
import { usableCores } from "#src/job/machine.js";

/** Cores of a machine of 64, with these files. */
const coresWith = (files: Readonly<Record<string, string>>): number => usableCores(64, (path) => files[path]);

test.each([
  ["no control groups", {}, 64],
  ["a quota of two (v2)", { "/proc/self/cgroup": "0::/\n", "/sys/fs/cgroup/cpu.max": "200000 100000\n" }, 2],
  ["no quota (v2)", { "/proc/self/cgroup": "0::/\n", "/sys/fs/cgroup/cpu.max": "max 100000\n" }, 64],
  ["half a core", { "/proc/self/cgroup": "0::/\n", "/sys/fs/cgroup/cpu.max": "50000 100000\n" }, 1],
  ["a core and a half", { "/proc/self/cgroup": "0::/\n", "/sys/fs/cgroup/cpu.max": "150000 100000\n" }, 2],
  [
    "the least of the groups above",
    {
      "/proc/self/cgroup": "0::/kubepods/pod1/box\n",
      "/sys/fs/cgroup/kubepods/pod1/box/cpu.max": "max 100000\n",
      "/sys/fs/cgroup/kubepods/pod1/cpu.max": "300000 100000\n",
      "/sys/fs/cgroup/kubepods/cpu.max": "6400000 100000\n",
    },
    3,
  ],
  [
    "a quota of four (v1)",
    {
      "/proc/self/cgroup": "4:memory:/docker/1\n3:cpu,cpuacct:/docker/1\n0::/\n",
      "/sys/fs/cgroup/cpu,cpuacct/cpu.cfs_quota_us": "400000\n", // as a container sees its own group
      "/sys/fs/cgroup/cpu,cpuacct/cpu.cfs_period_us": "100000\n",
    },
    4,
  ],
  [
    "no quota (v1)",
    {
      "/proc/self/cgroup": "1:cpu:/\n",
      "/sys/fs/cgroup/cpu/cpu.cfs_quota_us": "-1\n",
      "/sys/fs/cgroup/cpu/cpu.cfs_period_us": "100000\n",
    },
    64,
  ],
  ["what is none of it", { "/proc/self/cgroup": "nonsense\n", "/sys/fs/cgroup/cpu.max": "10 10" }, 64],
])("cores with %s", (_, files, expected) => {
  expect(coresWith(files)).toBe(expected);
});

test("cores are never more than the machine's", () => {
  const files: Record<string, string> = { "/proc/self/cgroup": "0::/\n", "/sys/fs/cgroup/cpu.max": "800000 100000\n" };
  expect(usableCores(2, (path) => files[path])).toBe(2);
  expect(usableCores()).toBeGreaterThan(0);
});
