import { execFileSync } from "node:child_process";
import { mkdtempSync, rmSync } from "node:fs";
import { mkdir } from "node:fs/promises";
import { tmpdir } from "node:os";
import { join } from "node:path";

/** A file system in memory of a few KiB. */
export interface SmallDisk extends AsyncDisposable {
  readonly path: string;
  /** `size=64k`, `ro`, `rw`: the options of mount. */
  remount(options: string): void;
}

/** Mounts one at `path`, which is made. */
export async function smallDisk(path: string, options: string): Promise<SmallDisk> {
  await mkdir(path);
  mount(["-t", "tmpfs", "-o", options, "tmpfs", path]);
  return {
    path,
    remount(changed) {
      mount(["-o", `remount,${changed}`, path]);
    },
    async [Symbol.asyncDispose]() {
      execFileSync("umount", [path], { stdio: "ignore" });
    },
  };
}

function mount(args: readonly string[]): void {
  execFileSync("mount", args, { stdio: "ignore" });
}

/** Whether this user may mount here. */
export const mayMount = ((): boolean => {
  const folder = mkdtempSync(join(tmpdir(), "infer-batch-mount-"));
  try {
    mount(["-t", "tmpfs", "-o", "size=4k", "tmpfs", folder]);
    execFileSync("umount", [folder], { stdio: "ignore" });
    return true;
  } catch {
    return false;
  } finally {
    rmSync(folder, { recursive: true, force: true });
  }
})();
