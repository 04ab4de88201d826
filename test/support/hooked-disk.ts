import { type FileSystem, nodeFileSystem } from "#src/stores/disk.js";
import { kindOf } from "./lossy-disk.js";

/** Called around each call of one attempt, with its number from 0 and its name as "link part-00000". */
export interface Hooks {
  readonly before?: (at: number, call: string) => Promise<void>;
  readonly after?: (at: number, call: string) => Promise<void>;
}

/** The real file system; one attempt's calls can be held, so that others go on meanwhile, as after a SIGSTOP. */
export function hookedDisk(root: string, { before, after }: Hooks): FileSystem {
  let calls = 0;
  const call = async <T>(op: string, path: string, work: () => Promise<T>): Promise<T> => {
    const at = calls;
    calls += 1;
    const name = `${op} ${kindOf(root, path)}`;
    await before?.(at, name);
    try {
      return await work();
    } finally {
      await after?.(at, name);
    }
  };
  const real = nodeFileSystem;
  return {
    mkdir: (path) => call("mkdir", path, () => real.mkdir(path)),
    readdir: (path) => call("readdir", path, () => real.readdir(path)),
    readText: (path) => call("readText", path, () => real.readText(path)),
    writeText: (path, text) => call("writeText", path, () => real.writeText(path, text)),
    stat: (path) => call("stat", path, () => real.stat(path)),
    digest: (path) => call("digest", path, () => real.digest(path)),
    sync: (path) => call("sync", path, () => real.sync(path)),
    link: (from, to) => call("link", to, () => real.link(from, to)),
    rename: (from, to) => call("rename", to, () => real.rename(from, to)),
    unlink: (path) => call("unlink", path, () => real.unlink(path)),
    removeFolder: (path) => call("removeFolder", path, () => real.removeFolder(path)),
  };
}
