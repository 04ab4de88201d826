import { execFileSync } from "node:child_process";
import { chmod, chown, cp, mkdir, readdir, symlink, writeFile } from "node:fs/promises";
import { join } from "node:path";
import { expect, test } from "vitest";
import { JobError } from "#src/base/errors.js";
import { checkSpool, openSpool, type Spool, type SpoolOptions, withSpoolErrors } from "#src/base/spool.js";
import { projectFolder } from "../support/cli.js";
import { scratch } from "../support/job.js";

const isRoot = process.getuid?.() === 0;
const nobody = 65_534;

function spoolAt(root: string, use: SpoolOptions["use"] = "in"): Spool {
  return openSpool({ root, use, writer: "here.1.a", isDead: () => false, maxBytes: 1 });
}

async function refusal(work: Promise<unknown>): Promise<{ code: string; message: string; hint: string | undefined }> {
  const error: unknown = await work.catch((caught: unknown) => caught);
  if (!(error instanceof JobError)) {
    throw new Error(`expected a JobError, got ${String(error)}`);
  }
  const { code, message, hint } = error;
  return { code, message, hint };
}

test.skipIf(!isRoot)("root refuses to spool to a folder of another user, who could replace files there", async () => {
  const root = join(scratch.path, "spool");
  await mkdir(root);
  await chown(root, nobody, nobody);

  for (const [use, key] of [
    ["in", "input.spool.path"],
    ["out", "output.parquet.spool.path"],
  ] as const) {
    expect(await refusal(spoolAt(root, use).prepare())).toEqual({
      code: "PERMISSION",
      message: `spooling to ${root}: it belongs to another user (${nobody})`,
      hint: `set ${key} to another folder; a missing one is created`,
    });
  }
  expect(await readdir(root)).toEqual([]);
  await spoolAt(join(root, "own")).prepare(); // as on a volume of another user
  expect(await readdir(join(root, "own"))).toEqual(["here.1.a.in"]);
});

test.skipIf(!isRoot)("a user other than root spools to a volume that root owns, such as an emptyDir", async () => {
  await chmod(scratch.path, 0o755);
  const modules = join(scratch.path, "dist"); // the checkout may be unreadable to others
  for (const file of ["base/errors.js", "base/spool.js"]) {
    await cp(join(projectFolder, "dist", file), join(modules, file));
  }
  for (const [mode, name] of [
    [0o777, "emptyDir"],
    [0o2777, "emptyDir with fsGroup"],
    [0o1777, "tmpfs"],
  ] as const) {
    const root = join(scratch.path, name);
    await mkdir(root);
    await chmod(root, mode);
    const code = `import { openSpool } from ${JSON.stringify(join(modules, "base/spool.js"))};
      const options = { root: ${JSON.stringify(root)}, use: "in", writer: "here.1.a", isDead: () => false, maxBytes: 1 };
      await openSpool(options).prepare();`;
    execFileSync(process.execPath, ["--input-type=module", "-e", code], { uid: nobody, gid: nobody });
    expect(await readdir(root), name).toEqual(["here.1.a.in"]);
  }
});

test("each spool of a process has a folder of its own, which goes when it is closed or its process is dead", async () => {
  const spools = ["out", "out", "rows", "out"].map((use) => spoolAt(scratch.path, use as SpoolOptions["use"]));
  for (const spool of spools) {
    await spool.prepare();
    await writeFile(spool.newPath(), "");
  }
  const [first, second, rows, third] = spools;
  expect((await readdir(scratch.path)).toSorted()).toEqual([
    "here.1.a.out",
    "here.1.a.out.2",
    "here.1.a.out.3",
    "here.1.a.rows",
  ]);
  await second?.[Symbol.asyncDispose]();
  await rows?.[Symbol.asyncDispose]();
  expect(await readdir(first?.folder ?? "")).toHaveLength(1);
  expect(await readdir(third?.folder ?? "")).toHaveLength(1);
  expect((await readdir(scratch.path)).toSorted()).toEqual(["here.1.a.out", "here.1.a.out.3"]);

  const later = { root: scratch.path, use: "in", writer: "here.2.b", maxBytes: 1 } as const;
  await openSpool({ ...later, isDead: (name) => name.startsWith("here.1.") }).prepare();
  expect(await readdir(scratch.path)).toEqual(["here.2.b.in"]);
});

const full = (): Promise<never> => Promise.reject(Object.assign(new Error("full"), { code: "ENOSPC" }));

test("a spool whose disk is full names the key of the spec that sets its folder", async () => {
  expect(await refusal(withSpoolErrors(spoolAt("/spool", "in"), full))).toEqual({
    code: "DISK",
    message: "spooling to /spool/here.1.a.in: the disk is full (ENOSPC)",
    hint: "set input.spool.path to another folder, or lower input.spool.max_mb",
  });
  expect(await refusal(withSpoolErrors(spoolAt("/spool", "out"), full))).toMatchObject({
    hint: "set output.parquet.spool.path to another folder with space for two parts",
  });
});

test("a spool whose folder cannot be made is refused, by the check that makes nothing too, and closing it does not fail", async () => {
  const file = join(scratch.path, "file");
  await writeFile(file, "");
  await symlink("/nonexistent/folder", join(scratch.path, "link"));
  for (const [root, code, found] of [
    [file, "USAGE", "it, or a folder above it, is a file"],
    [join(file, "below/it"), "USAGE", "it, or a folder above it, is a file"],
    [join(scratch.path, "link"), "DISK", "it cannot be written to (ENOENT)"],
    ["/proc/none/spool", "DISK", "it cannot be written to (ENOENT)"], // where Node's recursive mkdir never ends
  ] as const) {
    const spool = spoolAt(root);
    expect(await refusal(spool.prepare()), root).toMatchObject({ code, message: expect.stringContaining(found) });
    await spool[Symbol.asyncDispose]();
    if (!root.startsWith("/proc")) {
      expect(await refusal(checkSpool({ root, use: "in" })), root).toMatchObject({ code });
    }
  }
  await checkSpool({ root: join(scratch.path, "a/b"), use: "in" });
  expect((await readdir(scratch.path)).toSorted()).toEqual(["file", "link"]);
});
