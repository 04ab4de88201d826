import { chmod, chown, mkdir, readdir, rm, writeFile } from "node:fs/promises";
import { join } from "node:path";
import { describe, expect, test } from "vitest";
import { expectFinished } from "../../../support/crash.js";
import { goldenRows } from "../../../support/golden.js";
import { scratch, scratchFolder, writeSpec } from "../../../support/job.js";
import { mayMount, type SmallDisk, smallDisk } from "../../../support/mounts.js";
import { faultsAtAnyMoment, listing, partNames } from "../../../support/output.js";
import { leaveUnfinished, runSpec } from "../../../support/score.js";
import { fixtureNamed } from "../../../support/world.js";

const fixture = fixtureNamed("diabetes-mlp");
const commitRows = 50;

async function jobOn(folder: string, path: string): Promise<{ spec: string; out: string }> {
  const spec = await writeSpec(folder, fixture, { commit_rows: commitRows, output: { parquet: { path } } });
  return { spec, out: path };
}

async function onSmallDisk(
  options: string,
  work: (job: { spec: string; out: string; disk: SmallDisk }) => Promise<void>,
): Promise<void> {
  await using folder = await scratchFolder();
  await using disk = await smallDisk(join(folder.path, "disk"), options);
  await work({ ...(await jobOn(folder.path, join(disk.path, "out"))), disk });
}

describe.skipIf(!mayMount)("a real file system", () => {
  test("a disk that is full in the middle of a run ends it with 75; with more space the same command finishes it", async () => {
    await onSmallDisk("size=32k", async ({ spec, out, disk }) => {
      const golden = await goldenRows(fixture);

      const { code, stderr } = await runSpec(spec);

      expect(code, stderr).toBe(75);
      expect(stderr).toMatch(
        /error: writing .*part-0000\d\..*: the disk is full \(ENOSPC\)\n {2}hint: free some space/,
      );
      expect(await faultsAtAnyMoment(out, { golden, commitRows })).toEqual([]);
      const committed = await partNames(out);
      expect(committed.length).toBeGreaterThan(0);
      const before = (await listing(out)).length;
      expect((await runSpec(spec)).code).toBe(75);
      expect((await listing(out)).length, "an attempt in vain leaves nothing behind").toBeLessThanOrEqual(before);

      disk.remount("size=4m");
      const { summary } = await runSpec(spec);
      expect(summary).toMatchObject({ status: "complete", spans_resumed: committed.length });
      await expectFinished(out, { golden });
    });
  });

  test("a disk that is full before there is a plan ends the run with 75", async () => {
    await onSmallDisk("size=8k", async ({ spec, out, disk }) => {
      await writeFile(join(disk.path, "full"), Buffer.alloc(4096));

      const { code, stderr } = await runSpec(spec);

      expect(code, stderr).toBe(75);
      expect(stderr).toContain("the disk is full (ENOSPC)");
      await rm(join(disk.path, "full"));
      disk.remount("size=4m");
      expect((await runSpec(spec)).summary).toMatchObject({ status: "complete" });
      expect((await readdir(out)).filter((name) => name.endsWith(".parquet"))).toHaveLength(9);
    });
  });

  test("a disk without free inodes ends the run with 75", async () => {
    await onSmallDisk("nr_inodes=14,size=4m", async ({ spec, out, disk }) => {
      const { code, stderr } = await runSpec(spec);
      expect(code, stderr).toBe(75);
      expect(stderr).toContain("the disk is full (ENOSPC)");
      disk.remount("nr_inodes=1000");
      expect((await runSpec(spec)).summary).toMatchObject({ status: "complete" });
      await expectFinished(out, { golden: await goldenRows(fixture) });
    });
  });

  test("a read-only file system is refused with 64, and nothing is changed", async () => {
    await onSmallDisk("size=4m", async ({ spec, out, disk }) => {
      await leaveUnfinished(spec, out, (span) => span < 4);
      disk.remount("ro");
      const before = await listing(out);

      const { code, stderr } = await runSpec(spec);

      expect(code, stderr).toBe(64);
      expect(stderr).toContain("the file system is read-only (EROFS)\n  hint: choose another output.parquet.path");
      expect(await listing(out)).toEqual(before);
    });
  });

  test("a file system that was made read-only after the run was finished is no error", async () => {
    await onSmallDisk("size=4m", async ({ spec, disk }) => {
      await runSpec(spec);
      disk.remount("ro");
      expect((await runSpec(spec)).summary).toMatchObject({ status: "already_complete" });
    });
  });
});

const isRoot = process.getuid?.() === 0;
const nobody = 65_534;

describe.skipIf(!isRoot)("a folder that this user may not write to", () => {
  test("a folder that this user may not write to is refused with 64, and nothing is changed", async () => {
    const { spec, out } = await jobOn(scratch.path, join(scratch.path, "out"));
    await mkdir(out);
    await chmod(scratch.path, 0o755);

    const { code, stderr } = await runSpec(spec, { uid: nobody });

    expect(code, stderr).toBe(64);
    expect(stderr).toMatch(/permission denied \(EACCES\)\n {2}hint: let this user write there/);
    expect(await readdir(out)).toEqual([]);
  });

  test("a folder above the output that this user may not write to is no error", async () => {
    const { spec, out } = await jobOn(scratch.path, join(scratch.path, "closed/out"));
    await mkdir(out, { recursive: true });
    await chown(out, nobody, nobody);
    await chmod(join(scratch.path, "closed"), 0o711);
    await chmod(scratch.path, 0o755);

    const { code, stderr } = await runSpec(spec, { uid: nobody });

    expect(code, stderr).toBe(0);
    await expectFinished(out, { golden: await goldenRows(fixture) });
  });
});
