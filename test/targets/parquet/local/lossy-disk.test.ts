import { mkdir, readdir, readFile, writeFile } from "node:fs/promises";
import { join } from "node:path";
import { describe, expect, test } from "vitest";
import { scratch, scratchFolder } from "../../../support/job.js";
import { type LossyDisk, lossyDisk } from "../../../support/lossy-disk.js";
import { allLost, bytesLost, type Luck, namesLost } from "../../../support/luck.js";

type Work = (disk: LossyDisk, root: string) => Promise<void>;

async function leftBy(lucks: readonly Luck[], work: Work): Promise<object[]> {
  return await Promise.all(lucks.map((luck) => leftAfter(work, luck)));
}

async function leftAfter(work: Work, luck: Luck): Promise<object> {
  await using folder = await scratchFolder();
  const root = join(folder.path, "disk");
  await mkdir(root);
  const disk = lossyDisk(root);
  await work(disk, root);
  await disk.losePower(luck);
  const names = await readdir(root, { recursive: true, withFileTypes: true });
  const files = names.filter((entry) => entry.isFile()).map((entry) => join(entry.parentPath, entry.name));
  const texts = files
    .toSorted()
    .map(async (path) => [path.slice(root.length + 1), await readFile(path, "utf8")] as const);
  return Object.fromEntries(await Promise.all(texts));
}

describe("a disk that loses what was not synced", () => {
  test("the lossy disk forgets a file whose name or bytes were not synced", async () => {
    const left = await leftBy([allLost, bytesLost], async ({ fs }: LossyDisk, root: string) => {
      await fs.writeText(join(root, "bytes"), "b");
      await fs.sync(join(root, "bytes"));
      await fs.writeText(join(root, "neither"), "n");
    });
    expect(left).toEqual([{}, { bytes: "b", neither: "" }]);
  });

  test("the lossy disk keeps a file with synced bytes in a synced folder, under each synced name", async () => {
    const left = await leftBy([allLost, bytesLost], async ({ fs }: LossyDisk, root: string) => {
      await fs.writeText(join(root, "a"), "text");
      await fs.sync(join(root, "a"));
      await fs.link(join(root, "a"), join(root, "b"));
      await fs.sync(root);
      await fs.link(join(root, "a"), join(root, "c"));
      await fs.unlink(join(root, "a"));
    });
    expect(left).toEqual([
      { a: "text", b: "text" },
      { b: "text", c: "text" },
    ]);
  });

  test("the lossy disk restores files that were renamed over, and folders that were removed", async () => {
    const left = await leftBy([allLost, bytesLost], async ({ fs }: LossyDisk, root: string) => {
      await fs.mkdir(join(root, "d"));
      for (const name of ["old", "new", "d/inside"]) {
        await fs.writeText(join(root, name), name);
        await fs.sync(join(root, name));
      }
      await fs.sync(join(root, "d"));
      await fs.sync(root);
      await fs.rename(join(root, "new"), join(root, "old"));
      await fs.removeFolder(join(root, "d"));
    });
    expect(left).toEqual([{ old: "old", new: "new", "d/inside": "d/inside" }, { old: "new" }]);
  });

  test("the lossy disk loses a folder with all that was synced in it when its own name was not", async () => {
    const left = await leftBy([allLost, bytesLost], async ({ fs }: LossyDisk, root: string) => {
      await fs.mkdir(join(root, "d"));
      await fs.writeText(join(root, "d/f"), "f");
      await fs.sync(join(root, "d/f"));
      await fs.sync(join(root, "d"));
    });
    expect(left).toEqual([{}, { "d/f": "f" }]);
  });

  test("the lossy disk sees files that another program writes", async () => {
    const left = await leftBy([allLost, namesLost], async ({ fs }: LossyDisk, root: string) => {
      await writeFile(join(root, "theirs"), "1");
      await fs.sync(join(root, "theirs"));
      await fs.sync(root);
      await writeFile(join(root, "theirs"), "12");
    });
    expect(left).toEqual([{ theirs: "1" }, { theirs: "12" }]);
  });

  test("the lossy disk does not restore the bytes of a sync that failed", async () => {
    const left = await leftBy([allLost], async (disk: LossyDisk, root: string) => {
      await disk.fs.writeText(join(root, "a"), "text");
      disk.faultAt(0, { kind: "fail", errno: "EIO" });
      await expect(disk.fs.sync(join(root, "a"))).rejects.toThrow("EIO");
      await disk.fs.sync(join(root, "a"));
      await disk.fs.sync(root);
    });
    expect(left).toEqual([{ a: "" }]);
  });

  test("the lossy disk cuts a write short, fails before or after the work, and stops for good", async () => {
    const root = join(scratch.path, "disk");
    await mkdir(root);
    const disk = lossyDisk(root);
    disk.faultAt(0, { kind: "short", errno: "ENOSPC" });
    disk.faultAt(1, { kind: "fail", errno: "EIO" });
    disk.faultAt(2, { kind: "late", errno: "EIO" });
    disk.faultAt(3, { kind: "stop" });

    await expect(disk.fs.writeText(join(root, "a"), "text")).rejects.toMatchObject({ code: "ENOSPC" });
    await expect(disk.fs.link(join(root, "a"), join(root, "b"))).rejects.toMatchObject({ code: "EIO" });
    await expect(disk.fs.link(join(root, "a"), join(root, "c"))).rejects.toMatchObject({ code: "EIO" });
    await expect(disk.fs.unlink(join(root, "a"))).rejects.toThrow("off");
    await expect(disk.fs.unlink(join(root, "a"))).rejects.toThrow("off");

    expect((await readdir(root)).toSorted()).toEqual(["a", "c"]);
    expect(await readFile(join(root, "a"), "utf8")).toBe("te");
  });
});
