import { lstat, mkdir, readdir, readFile, rm, writeFile } from "node:fs/promises";
import { basename, dirname, join, relative } from "node:path";
import { type FileSystem, nodeFileSystem } from "#src/stores/disk.js";
import type { Luck } from "./luck.js";

interface FileNode {
  readonly kind: "file";
  synced: Buffer;
  /** Bytes that a failed sync has dropped: syncing again does not bring them back. */
  dropped: Buffer | undefined;
}

interface FolderNode {
  readonly kind: "folder";
  synced: ReadonlyMap<string, Node>;
}

type Node = FileNode | FolderNode;

const emptyFile = (): FileNode => ({ kind: "file", synced: Buffer.alloc(0), dropped: undefined });

type Survivors = Map<string, Buffer | Survivors>;

interface Nodes {
  sync(path: string): Promise<void>;
  /** A sync that failed. */
  drop(path: string): Promise<void>;
  /** Does `work`, which takes these names away; an inode whose last name went may come again as another file. */
  forgetting(paths: readonly string[], work: () => Promise<void>): Promise<void>;
  survive(luck: Luck): Promise<Survivors>;
  /** What is there now is what was flushed. */
  reset(): Promise<void>;
}

function createNodes(root: string): Nodes {
  const known = new Map<bigint, Node>();
  const top: FolderNode = { kind: "folder", synced: new Map() };

  const nodeAt = async (path: string): Promise<Node> => {
    if (path === root) {
      return top;
    }
    const stats = await lstat(path, { bigint: true });
    const node = known.get(stats.ino) ?? (stats.isDirectory() ? { kind: "folder", synced: new Map() } : emptyFile());
    known.set(stats.ino, node);
    return node;
  };
  const namesOf = async (path: string): Promise<Map<string, Node>> => {
    const names = new Map<string, Node>();
    for (const name of (await readdir(path)).toSorted()) {
      names.set(name, await nodeAt(join(path, name)));
    }
    return names;
  };
  const surviveFolder = async (folder: FolderNode, path: string | undefined, lucky: Lucky): Promise<Survivors> => {
    const live = path === undefined ? new Map<string, Node>() : await namesOf(path);
    const survivors: Survivors = new Map();
    for (const name of new Set([...folder.synced.keys(), ...live.keys()])) {
      const before = folder.synced.get(name);
      const now = live.get(name);
      // Of a folder that is gone with all its names, only what was flushed can come back.
      const node = before === now || path === undefined ? before : lucky.name(name) === "old" ? before : now;
      const at = path === undefined || node !== now ? undefined : join(path, name);
      if (node?.kind === "folder") {
        survivors.set(name, await surviveFolder(node, at, lucky));
      } else if (node !== undefined) {
        survivors.set(name, await lucky.bytes(node, at));
      }
    }
    return survivors;
  };
  return {
    async sync(path) {
      const node = await nodeAt(path);
      if (node.kind === "folder") {
        node.synced = await namesOf(path);
        return;
      }
      const bytes = await readFile(path);
      if (node.dropped?.equals(bytes) !== true) {
        node.synced = bytes;
      }
    },
    async drop(path) {
      const node = await nodeAt(path);
      if (node.kind === "file") {
        node.dropped = await readFile(path);
      }
    },
    async forgetting(paths, work) {
      const gone: bigint[] = [];
      for (const path of paths) {
        const stats = await lstat(path, { bigint: true }).catch(() => undefined);
        if (stats !== undefined && (stats.isDirectory() || stats.nlink === 1n)) {
          await nodeAt(path);
          gone.push(stats.ino);
        }
      }
      await work();
      for (const ino of gone) {
        known.delete(ino);
      }
    },
    survive: (luck) => surviveFolder(top, root, oncePerFile(luck)),
    async reset() {
      known.clear();
      const settle = async (path: string, folder: FolderNode): Promise<void> => {
        folder.synced = await namesOf(path);
        for (const [name, node] of folder.synced) {
          if (node.kind === "folder") {
            await settle(join(path, name), node);
          } else {
            node.synced = await readFile(join(path, name));
          }
        }
      };
      await settle(root, top);
    },
  };
}

interface Lucky {
  readonly name: Luck["name"];
  readonly bytes: (node: FileNode, path: string | undefined) => Promise<Buffer>;
}

/** A file with two names holds the same bytes under both. */
function oncePerFile({ name, bytes }: Luck): Lucky {
  const decided = new Map<FileNode, Buffer>();
  return {
    name,
    async bytes(node, path) {
      const current = path === undefined ? node.synced : await readFile(path);
      const left = decided.get(node) ?? (current.equals(node.synced) ? current : bytes(node.synced, current));
      decided.set(node, left);
      return left;
    },
  };
}

/**
 * A file system over a real folder that knows what was flushed. LevelDB's idea: at a power failure everything
 * that was not flushed may be lost: the bytes of a file until the file was synced, a name (made, linked, renamed,
 * removed) until the folder that holds it was. Any of it may also survive, in any order: that is what `Luck` says.
 * Files that DuckDB writes are seen too, since names and bytes are compared with the folder when they matter.
 */
export interface LossyDisk {
  readonly fs: FileSystem;
  /** Each call so far, as "link part-00000". */
  readonly calls: readonly string[];
  /** What becomes of the n-th call from now on, counted from 0. */
  faultAt(call: number, fault: Fault): void;
  /** Stops at the next call of this kind, as `calls` has it. */
  stopBefore(call: RegExp): void;
  /** Stops at the call after the next of this kind. */
  stopAfter(call: RegExp): void;
  /** The process is gone: the next attempt sees all that it did, and the disk still may lose what was not synced. */
  kill(): void;
  /** What the folder holds now was flushed: for one that was filled by others. */
  settle(): Promise<void>;
  /** The machine is gone: rewrites the folder to what survived. */
  losePower(luck: Luck): Promise<void>;
}

/**
 * `stop`: this call and all after it throw and do nothing. `fail`: it fails and does nothing; a sync that fails has
 * dropped what it was to write, for good. `late`: it does its work and fails. `short`: half of a text is written.
 */
export type Fault = { readonly kind: "stop" } | { readonly kind: "fail" | "late" | "short"; readonly errno: string };

/**
 * @param root an empty folder that is there for good; all calls are below it
 * @param refused what this file system cannot do, such as "link"
 */
export function lossyDisk(root: string, refused: readonly string[] = []): LossyDisk {
  const nodes = createNodes(root);
  const calls: string[] = [];
  const faults = new Map<number, Fault>();
  let stopped = false;
  let stopAt: RegExp | undefined;
  let lastCall: RegExp | undefined;
  let last: Promise<unknown> = Promise.resolve();

  const restart = (): void => {
    faults.clear();
    stopAt = undefined;
    lastCall = undefined;
    stopped = false;
  };
  /** One call at a time, so that what the model knows and what the folder holds never part. */
  const call = <T>(op: string, path: string, work: () => Promise<T>, other: Partial<Spoilt> = {}): Promise<T> => {
    const perform = async (): Promise<T> => {
      const kind = `${op} ${kindOf(root, path)}`;
      stopped ||= stopAt?.test(kind) === true || lastCall?.test(calls.at(-1) ?? "") === true;
      const fault = stopped ? { kind: "stop" as const } : faults.get(calls.length);
      if (fault?.kind === "stop") {
        stopped = true;
        throw new Error(`the machine is off: ${op} ${path}`);
      }
      calls.push(kind);
      if (refused.includes(op)) {
        throw systemError("EPERM", op, path);
      }
      switch (fault?.kind) {
        case undefined:
          return await work();
        case "fail":
          await other.fail?.();
          break;
        case "late":
          await work();
          break;
        case "short":
          await other.short?.();
          break;
      }
      throw systemError(fault.errno, op, path);
    };
    const done = last.then(perform);
    last = done.catch(() => undefined);
    return done;
  };
  return {
    fs: fileSystemOver(nodes, call),
    calls,
    faultAt(at, fault) {
      faults.set(calls.length + at, fault);
    },
    stopBefore(kind) {
      stopAt = kind;
    },
    stopAfter(kind) {
      lastCall = kind;
    },
    kill: restart,
    settle: () => nodes.reset(),
    async losePower(luck) {
      await last;
      const survivors = await nodes.survive(luck);
      await rm(root, { recursive: true });
      await writeTree(root, survivors);
      await nodes.reset();
      restart();
    },
  };
}

interface Spoilt {
  readonly fail: () => Promise<void>;
  readonly short: () => Promise<void>;
}

type Call = <T>(op: string, path: string, work: () => Promise<T>, other?: Partial<Spoilt>) => Promise<T>;

function fileSystemOver(nodes: Nodes, call: Call): FileSystem {
  const real = nodeFileSystem;
  return {
    mkdir: (path) => call("mkdir", path, () => real.mkdir(path)),
    readdir: (path) => call("readdir", path, () => real.readdir(path)),
    readText: (path) => call("readText", path, () => real.readText(path)),
    writeText: (path, text) =>
      call("writeText", path, () => real.writeText(path, text), {
        short: () => real.writeText(path, text.slice(0, Math.floor(text.length / 2))),
      }),
    stat: (path) => call("stat", path, () => real.stat(path)),
    digest: (path) => call("digest", path, () => real.digest(path)),
    sync: (path) => call("sync", path, () => nodes.sync(path), { fail: () => nodes.drop(path) }),
    link: (from, to) => call("link", to, () => real.link(from, to)),
    rename: (from, to) => call("rename", to, () => nodes.forgetting([to], () => real.rename(from, to))),
    unlink: (path) => call("unlink", path, () => nodes.forgetting([path], () => real.unlink(path))),
    removeFolder: (path) =>
      call("removeFolder", path, async () => {
        const names = await readdir(path, { recursive: true }).catch(() => []);
        const paths = [path, ...names.map((name) => join(path, name))];
        await nodes.forgetting(paths, () => real.removeFolder(path));
      }),
  };
}

async function writeTree(path: string, tree: Survivors): Promise<void> {
  await mkdir(path);
  for (const [name, value] of tree) {
    if (value instanceof Map) {
      await writeTree(join(path, name), value);
    } else {
      await writeFile(join(path, name), value);
    }
  }
}

/** What a path is, without what differs from one attempt to the next. */
export function kindOf(root: string, path: string): string {
  if (dirname(path).endsWith("/tmp")) {
    return `tmp/${basename(path).replace(/\..*$/, "")}`;
  }
  const name = basename(path).replace(/^((?:part|rejects)-\d+|[a-z]+(?:-link)?)\..*$/, "$1");
  return relative(root, join(dirname(path), name)) || ".";
}

function systemError(errno: string, op: string, path: string): Error {
  return Object.assign(new Error(`${errno}: injected, ${op} '${path}'`), { code: errno, syscall: op, path });
}
