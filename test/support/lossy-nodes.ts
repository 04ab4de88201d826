import { lstat, readdir, readFile } from "node:fs/promises";
import { join } from "node:path";
import type { Luck } from "./luck.js";

interface FileNode {
  readonly kind: "file";
  /** Bytes that were flushed. */
  synced: Buffer;
  /** Bytes that a failed sync has dropped: syncing again does not bring them back. */
  dropped: Buffer | undefined;
}

interface FolderNode {
  readonly kind: "folder";
  /** Names that were flushed. */
  synced: ReadonlyMap<string, Node>;
}

type Node = FileNode | FolderNode;

const emptyFile = (): FileNode => ({ kind: "file", synced: Buffer.alloc(0), dropped: undefined });

/** What survived: file contents or folders. */
export type Survivors = Map<string, Buffer | Survivors>;

export interface Nodes {
  sync(path: string): Promise<void>;
  /** A sync that failed. */
  drop(path: string): Promise<void>;
  /** Does `work`, which takes these names away; an inode whose last name went may come again as another file. */
  forgetting(paths: readonly string[], work: () => Promise<void>): Promise<void>;
  survive(luck: Luck): Promise<Survivors>;
  /** What is there now is what was flushed. */
  reset(): Promise<void>;
}

export function createNodes(root: string): Nodes {
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
