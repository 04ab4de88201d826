import { expect, test } from "vitest";
import { JobError } from "#src/base/errors.js";
import { mebibytes, memoryBudget } from "#src/base/memory-budget.js";
import { showBytes } from "#src/base/shown-numbers.js";
import { defaultMemory, finalError, usableCores } from "#src/job/machine.js";

const machine = mebibytes(64 * 1024);
const manyCores = 10_000; // more than limit the budget here
const memoryWith = (files: Readonly<Record<string, string>>): number =>
  defaultMemory(manyCores, machine, (path) => files[path]) / mebibytes(1);

test.each([
  ["no control groups", {}, 16 * 1024],
  ["no limit (v2)", { "/proc/self/cgroup": "0::/\n", "/sys/fs/cgroup/memory.max": "max\n" }, 16 * 1024],
  ["a limit (v2)", { "/proc/self/cgroup": "0::/\n", "/sys/fs/cgroup/memory.max": "536870912\n" }, 128],
  [
    "the least limit of the groups above",
    {
      "/proc/self/cgroup": "0::/kubepods/pod1/box\n",
      "/sys/fs/cgroup/kubepods/pod1/box/memory.max": "max\n",
      "/sys/fs/cgroup/kubepods/pod1/memory.max": "1073741824\n",
    },
    256,
  ],
  [
    "a limit (v1)",
    {
      "/proc/self/cgroup": "4:memory:/docker/1\n",
      "/sys/fs/cgroup/memory/memory.limit_in_bytes": "1073741824\n", // as a container sees its own group
    },
    256,
  ],
  [
    "no limit (v1)",
    {
      "/proc/self/cgroup": "4:memory:/\n",
      "/sys/fs/cgroup/memory/memory.limit_in_bytes": "9223372036854771712\n",
    },
    16 * 1024,
  ],
])("the budget is a quarter of the memory with %s", (_, files, expected) => {
  expect(memoryWith(files)).toBe(expected);
});

test.each([
  [2, 512, 128],
  [2, 64 * 1024, 512],
  [16, 64 * 1024, 1408],
  [16, 1024, 256],
  [1, 128, 64],
])("with %i cores and %i MiB the budget is %i MiB", (cores, usable, expected) => {
  expect(defaultMemory(cores, mebibytes(usable), () => undefined)).toBe(mebibytes(expected));
});

test("the parts of a budget that are filled at the same time are not more than the whole", () => {
  const { bytes, openPagesBytes, heldBytes, pieceBytes } = memoryBudget(mebibytes(512));
  const spans = 3 * pieceBytes; // one open, two being committed
  expect(openPagesBytes + heldBytes + spans).toBeLessThanOrEqual(bytes);
});

test.each([
  [512, "0.5 KiB"],
  [mebibytes(512), "512 MiB"],
  [mebibytes(1536), "1.5 GiB"],
])("%i bytes are shown as %s", (bytes, shown) => {
  expect(showBytes(bytes)).toBe(shown);
});

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

function failsToClose(): AsyncDisposable {
  return { [Symbol.asyncDispose]: () => Promise.reject(new Error("closing failed")) };
}

test("a command ends with its first error, even if closing a resource fails after that", async () => {
  const first = new JobError("PERMISSION", "spooling to /spool: it cannot be written to");
  const thrown: unknown = await (async () => {
    await using outer = failsToClose();
    await using inner = failsToClose();
    throw outer === inner ? undefined : first;
  })().catch((error: unknown) => error);
  expect(thrown).not.toBe(first);
  expect(finalError(thrown)).toBe(first);
  expect(finalError(first)).toBe(first);
});
