import { defaultMemory } from "#src/job/machine.js";
import { mebibytes, memoryBudget } from "#src/base/memory-budget.js";
import { showBytes } from "#src/base/shown-numbers.js";
import { expect, test } from "vitest";

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
