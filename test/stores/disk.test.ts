import { mkdir, readdir, rm, writeFile } from "node:fs/promises";
import { join } from "node:path";
import { expect, test } from "vitest";
import { nodeFileSystem, openDiskStore } from "#src/stores/disk.js";
import type { Fence } from "#src/stores/store.js";
import { JobError } from "#src/base/errors.js";
import { scratchFolder } from "../support/job.js";

test("a name is not created whose scope was closed and made again, by another late attempt, while it was written", async () => {
  await using scratch = await scratchFolder();
  const root = join(scratch.path, "out");
  const store = openDiskStore({ root, fs: nodeFileSystem, writer: "late", isDead: () => false });
  let isSuperseded = false;
  const fence: Fence = {
    scope: join(root, "scope"),
    check() {
      return isSuperseded
        ? Promise.reject(new JobError("PLAN_CHANGED", "a later run was opened", { hint: "run again" }))
        : Promise.resolve();
    },
    takesBack: () => Promise.resolve(true),
  };
  const created = store.create(
    join(root, "part"),
    async (path) => {
      isSuperseded = true;
      await rm(fence.scope, { recursive: true });
      await mkdir(fence.scope);
      await writeFile(path, "rows");
    },
    fence,
  );
  await expect(created).rejects.toMatchObject({ code: "PLAN_CHANGED" });
  expect(await readdir(root, { recursive: true })).toEqual(["scope"]);
});
