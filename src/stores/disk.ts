import {
  link,
  lstat,
  mkdir,
  open,
  readdir,
  readFile,
  rename,
  rm,
  stat,
  unlink,
  utimes,
  writeFile,
} from "node:fs/promises";
import { basename, dirname, join } from "node:path";
import { errnoOf, type ErrorCode, JobError } from "../base/errors.js";
import { type Created, type Digest, digestOfText, type Fence, type Stat, type Store } from "./store.js";
import { digestOfFile } from "../base/sha256.js";

/**
 * The calls on a disk. Those on what does not exist fail with ENOENT. Tests pass in file systems that lose what was not
 * synced, cut a write short or fail the n-th call.
 */
export interface FileSystem {
  mkdir(path: string): Promise<void>;
  readdir(path: string): Promise<string[]>;
  readText(path: string): Promise<string>;
  stat(path: string): Promise<Pick<Stat, "sizeBytes" | "version">>;
  digest(path: string): Promise<Digest>;
  /** Creates or empties a file and writes all of `text`. Not durable before `sync`. */
  writeText(path: string, text: string): Promise<void>;
  /** Flushes a file or a folder to the disk. */
  sync(path: string): Promise<void>;
  /** Gives a file a second name. Fails with EEXIST where `to` exists: so the first writer wins. */
  link(from: string, to: string): Promise<void>;
  rename(from: string, to: string): Promise<void>;
  unlink(path: string): Promise<void>;
  removeFolder(path: string): Promise<void>;
}

export interface DiskStoreOptions {
  /** Absolute path. It need not exist. Nothing is written through a symbolic link below it. */
  readonly root: string;
  readonly fs: FileSystem;
  /** Names this attempt: unique among all attempts on all machines. */
  readonly writer: string;
  readonly isDead: (writer: string) => boolean;
}

/** More than the attempts that can finish one run within a few milliseconds. */
const retriesLimit = 100;

/** Errors of `link` on a file system without hard links. */
const noHardLinks: ReadonlySet<string | undefined> = new Set(["EPERM", "ENOTSUP", "EOPNOTSUPP", "ENOSYS", "EMLINK"]);

/**
 * Opens a folder as a store. A name appears by: file in the fence's scope → fsync → the fence's check → link → fsync of
 * the folder.
 */
export function openDiskStore({ root, fs, writer, isDead }: DiskStoreOptions): Store {
  const folders = durableFolders(fs, root);

  /** Runs `work` with the folders in place. Whoever closes a scope removes them meanwhile: then `work` is done again. */
  async function fenced<T>(check: Fence["check"], needed: readonly string[], work: () => Promise<T>): Promise<T> {
    for (let cleared = 0; ; cleared += 1) {
      try {
        for (const folder of needed) {
          await folders.make(folder);
        }
        await check();
        return await work();
      } catch (error) {
        if (errnoOf(error) !== "ENOENT") {
          throw error;
        }
        folders.forget();
        await check(); // where all of the output was removed, this reports it
        if (!isBelow(error, needed) || cleared === retriesLimit) {
          throw error; // another program removed something
        }
      }
    }
  }

  /**
   * Has `write` write a file in the scope, then `giveName` give it its name, with what `write` returned. A file that stays
   * has its name.
   */
  async function byWorkFile<W, T>(
    fence: Fence,
    name: string,
    { write, giveName }: { write: (path: string) => Promise<W>; giveName: (path: string, written: W) => Promise<T> },
  ): Promise<T> {
    return await fenced(fence.check, [dirname(name), fence.scope], async () => {
      const path = workPath(fence.scope, workName(name));
      try {
        const written = await write(path);
        await fence.check(); // not before the file is there: see `Fence`
        return await giveName(path, written);
      } catch (error) {
        // On a full disk each attempt would leave one more.
        await fs.unlink(path).catch(() => undefined);
        throw error;
      }
    });
  }

  function workPath(scope: string, what: string): string {
    return join(scope, `${what}.${writer}`);
  }

  async function flush(folder: string): Promise<void> {
    await ifThere(flushFolder(fs, folder));
  }

  async function removeAll(folder: string, names: readonly string[]): Promise<void> {
    for (const name of names) {
      await ifThere(fs.unlink(join(folder, name)));
    }
    await flush(folder); // also where none was left: the attempt that removed them may have died before that
  }

  async function removeFolder(folder: string): Promise<void> {
    folders.forget();
    for (let written = 0; ; written += 1) {
      try {
        return await fs.removeFolder(folder);
      } catch (error) {
        if (errnoOf(error) !== "ENOTEMPTY" || written === retriesLimit) {
          throw error;
        }
      }
    }
  }

  async function overwrite(name: string, text: string): Promise<void> {
    await refuseLinks(root, dirname(name));
    await replaceFile(fs, { path: name, temporary: `${name}.${writer}`, text });
  }

  async function replace(name: string, text: string, fence: Fence): Promise<void> {
    await byWorkFile(fence, name, {
      async write(path) {
        await fs.writeText(path, text);
        await fs.sync(path);
      },
      async giveName(path) {
        await fs.rename(path, name);
        await fs.sync(dirname(name));
      },
    });
  }

  /** Removes a text if it may go; false: it is another one now, which may stay. */
  async function withdraw(
    name: string,
    mayGo: (text: string | undefined) => boolean,
    { scope, check }: Fence,
  ): Promise<boolean> {
    const entered = join(scope, writer);
    if (!mayGo(await fenced(check, [entered], () => ifThere(fs.readText(name))))) {
      return false;
    }
    try {
      // Moved into a folder that was made before the check and the read, and that no one else makes: whoever published
      // another text since has closed the scope before. So a text that was not read cannot be removed.
      await fs.rename(name, join(entered, basename(name)));
    } catch (error) {
      if (errnoOf(error) !== "ENOENT") {
        throw error;
      }
      folders.forget();
      if ((await ifThere(fs.stat(name))) !== undefined) {
        return false;
      }
    }
    await fs.sync(dirname(name)); // also when it is gone: it must not come back over fewer parts
    return true;
  }

  return {
    list: (folder) =>
      atDisk(`reading ${folder}`, async () =>
        ((await ifThere(fs.readdir(folder))) ?? []).map((name) => ({ name, sizeBytes: undefined })),
      ),
    stat: (name) =>
      atDisk(`checking ${name}`, async () => {
        const facts = await ifThere(fs.stat(name));
        return facts && { ...facts, digest: () => atDisk(`reading ${name}`, () => ifThere(fs.digest(name))) };
      }),
    readText: (name) => atDisk(`reading ${name}`, () => ifThere(fs.readText(name))),
    fetch: (names) => ({ folder: root, groups: allAtOnce(names) }),
    prepare: ({ scope, check }) =>
      atDisk(`preparing ${scope}`, () =>
        fenced(check, [scope], async () => {
          for (const name of await fs.readdir(scope)) {
            const owner = name.slice(name.indexOf(".") + 1); // every name here is `<what>.<writer>`
            if (owner !== writer && isDead(owner)) {
              await ifThere(fs.unlink(join(scope, name)));
            }
          }
          const names = [workPath(scope, "probe"), workPath(scope, "probe-link")] as const;
          return (await hasHardLinks(fs, names)) ? undefined : "it has no hard links";
        }),
      ),
    create: (name, body, fence) =>
      atDisk(`writing ${name}`, () =>
        byWorkFile<Digest, Created>(fence, name, {
          async write(path) {
            await (typeof body === "string" ? fs.writeText(path, body) : body(path));
            return typeof body === "string" ? digestOfText(body) : await fs.digest(path);
          },
          async giveName(path, digest) {
            await fs.sync(path);
            const outcome = await linkOrRename(fs, path, name);
            await fs.sync(dirname(name)); // also if it exists: the attempt that made it may have died before that
            if (outcome !== "renamed") {
              await fs.unlink(path);
            }
            return { outcome: outcome === "exists" ? "exists" : "created", ...digest };
          },
        }),
      ),
    update: (name, change, fence) =>
      atDisk(`writing ${name}`, async () => {
        for (let tries = 0; tries < retriesLimit; tries += 1) {
          await fence?.check();
          const text = await atDisk(`reading ${name}`, () => ifThere(fs.readText(name)));
          const next = change(text);
          if (next === text) {
            return await flush(dirname(name)); // the attempt that wrote or removed it may have died before that
          }
          if (next !== undefined) {
            return await (fence === undefined ? overwrite(name, next) : replace(name, next, fence));
          }
          if (fence === undefined) {
            return await removeAll(dirname(name), [basename(name)]);
          }
          if (await withdraw(name, (there) => there !== undefined && change(there) === undefined, fence)) {
            return;
          }
        }
        throw new Error(`${name} was written to by others again and again`);
      }),
    copy: (from, to) =>
      atDisk(`writing ${to}`, async () => {
        if ((await ifThere(fs.stat(dirname(to)))) === undefined) {
          await folders.make(dirname(to));
        }
        const outcome = await ifThere(linkOrRename(fs, from, to));
        if (outcome === "linked") {
          await utimes(to, new Date(), new Date()).catch(() => undefined); // another user's file keeps its time
        }
        // Another attempt may have moved it: where there are no hard links, it was renamed.
        return outcome !== undefined || (await ifThere(fs.stat(to))) !== undefined ? "copied" : "missing";
      }),
    remove: (folder, names) =>
      names === undefined
        ? atDisk(`removing ${folder}`, () => removeFolder(folder))
        : atDisk(`removing files of ${folder}`, () => removeAll(folder, names)),
  };
}

async function* allAtOnce(names: Parameters<Store["fetch"]>[0]): AsyncGenerator<readonly string[]> {
  const paths: string[] = [];
  for await (const name of names) {
    paths.push(name);
  }
  if (paths.length > 0) {
    yield paths;
  }
}

function durableFolders(fs: FileSystem, root: string): { make(path: string): Promise<void>; forget(): void } {
  const known = new Set<string>();

  async function make(path: string): Promise<void> {
    if (known.has(path)) {
      return;
    }
    await refuseLinks(root, path);
    if (isInside(root, path)) {
      await make(dirname(path));
    }
    await makeFolder(fs, path);
    if (path === root) {
      await flushFolder(fs, dirname(dirname(root))); // the process that made the parent may have died before it did
      if ((await ifThere(stat(root))) === undefined) {
        throw danglingLink(root, root);
      }
    }
    known.add(path);
  }

  return { make, forget: () => known.clear() };
}

function isInside(root: string, path: string): boolean {
  return path !== root && path.startsWith(root === "/" ? root : `${root}/`);
}

/**
 * Refuses symbolic links below a folder, on the way to a path: whoever can place one would have a run write elsewhere.
 * @throws JobError OUTPUT_FOREIGN
 */
export async function refuseLinks(root: string, path: string): Promise<void> {
  if (!isInside(root, path)) {
    return;
  }
  await refuseLinks(root, dirname(path));
  if ((await ifThere(lstat(path)))?.isSymbolicLink() === true) {
    throw new JobError("OUTPUT_FOREIGN", `checking ${root}: ${path} is a symbolic link`, {
      hint: "nothing is written through it: move the folder that it names to its place, remove the link, or choose another output.parquet.path",
    });
  }
}

/** Replaces a small file at once and durably: readers see the old text or the new one. */
export async function replaceFile(
  fs: FileSystem,
  { path, temporary, text }: { readonly path: string; readonly temporary: string; readonly text: string },
): Promise<void> {
  try {
    await fs.writeText(temporary, text);
    await fs.sync(temporary);
    await fs.rename(temporary, path);
    await fs.sync(dirname(path));
  } catch (error) {
    await fs.unlink(temporary).catch(() => undefined);
    throw error;
  }
}

/** The error for an output folder that is, or is below, a symbolic link to nothing. */
export function danglingLink(folder: string, path: string): JobError {
  return new JobError("OUTPUT_FOREIGN", `checking ${folder}: ${path} is a symbolic link whose target does not exist`, {
    hint: "make the folder that the link names, remove the link, or choose another output.parquet.path",
  });
}

/** Makes a folder and those above it, and flushes its name: the process that made it may have died before it did. */
export async function makeFolder(fs: FileSystem, path: string): Promise<void> {
  const parent = dirname(path);
  const mkdirUnlessThere = async (): Promise<void> => {
    await fs.mkdir(path).catch((error: unknown) => {
      if (errnoOf(error) !== "EEXIST") {
        throw error;
      }
    });
  };
  try {
    await mkdirUnlessThere();
  } catch (error) {
    if (errnoOf(error) !== "ENOENT" || parent === path) {
      throw error;
    }
    await makeFolder(fs, parent);
    await mkdirUnlessThere();
  }
  await flushFolder(fs, parent);
}

/** A folder that this user may not read was made by another one. */
async function flushFolder(fs: FileSystem, path: string): Promise<void> {
  await fs.sync(path).catch((error: unknown) => {
    // Some network file systems cannot flush a folder.
    if (!["EACCES", "EPERM", "EINVAL"].includes(errnoOf(error) ?? "")) {
      throw error;
    }
  });
}

/** The name has no dot: the writer follows one. */
function workName(name: string): string {
  const [stem = "", ...rest] = basename(name).split(".");
  return [stem, ...rest.slice(-1)].join("-");
}

/** Whether a call failed on one of these folders, something in it, or one above it. */
function isBelow(error: unknown, folders: readonly string[]): boolean {
  // The error does not say which of the two names of a link or rename is missing.
  const paths = error instanceof Error ? [Reflect.get(error, "path"), Reflect.get(error, "dest")] : [];
  return folders.some((folder) =>
    paths.some((path) => String(path).startsWith(folder) || folder.startsWith(`${String(path)}/`)),
  );
}

async function linkOrRename(fs: FileSystem, from: string, to: string): Promise<"linked" | "renamed" | "exists"> {
  try {
    await fs.link(from, to);
    return "linked";
  } catch (error) {
    if (errnoOf(error) === "EEXIST") {
      return "exists";
    }
    if (!noHardLinks.has(errnoOf(error))) {
      throw error;
    }
  }
  // A check and a rename are two steps: safe for one worker only, of which users are warned.
  if ((await ifThere(fs.stat(to))) !== undefined) {
    return "exists";
  }
  await fs.rename(from, to);
  return "renamed";
}

async function hasHardLinks(fs: FileSystem, [from, to]: readonly [string, string]): Promise<boolean> {
  await fs.writeText(from, "");
  try {
    await fs.link(from, to);
    await fs.unlink(to);
    return true;
  } catch (error) {
    if (noHardLinks.has(errnoOf(error))) {
      return false;
    }
    throw error;
  } finally {
    await fs.unlink(from);
  }
}

/** The result of a call; undefined where the file or folder does not exist. */
export async function ifThere<T>(call: Promise<T>): Promise<T | undefined> {
  try {
    return await call;
  } catch (error) {
    if (errnoOf(error) === "ENOENT") {
      return undefined;
    }
    throw error;
  }
}

const freeSpace = "free some space, then run the same command again";
const chooseAnother = "choose another output.parquet.path";

/** Errors of a disk, by errno. Hints for `DISK` hold for any file, others for the target. */
export const diskErrors: Readonly<Record<string, { code: ErrorCode; found: string; hint: string }>> = {
  ENOSPC: { code: "DISK", found: "the disk is full", hint: freeSpace },
  EDQUOT: { code: "DISK", found: "the disk quota is used up", hint: freeSpace },
  EIO: {
    code: "DISK",
    found: "the disk reports an input/output error",
    hint: "check the disk, then run the same command again",
  },
  EROFS: { code: "PERMISSION", found: "the file system is read-only", hint: chooseAnother },
  EACCES: { code: "PERMISSION", found: "permission denied", hint: `let this user write there, or ${chooseAnother}` },
  EPERM: {
    code: "PERMISSION",
    found: "operation not permitted",
    hint: `let this user write there, or ${chooseAnother}`,
  },
  ENAMETOOLONG: { code: "OUTPUT_FOREIGN", found: "the name is too long", hint: "choose a shorter output.parquet.path" },
  ELOOP: { code: "OUTPUT_FOREIGN", found: "its links lead in a circle", hint: chooseAnother },
  ENOTDIR: { code: "OUTPUT_FOREIGN", found: "it, or a folder above it, is a file", hint: chooseAnother },
  EISDIR: {
    code: "OUTPUT_FOREIGN",
    found: "a folder has the name of a file that a run writes, such as _SUCCESS or _manifest.json",
    hint: `remove this folder, or ${chooseAnother}`,
  },
};

/** Runs `work`; an error of the disk is reported with the act, `doing`. */
export async function atDisk<T>(doing: string, work: () => Promise<T>): Promise<T> {
  try {
    return await work();
  } catch (error) {
    const errno = errnoOf(error);
    if (error instanceof JobError || errno === undefined) {
      throw error;
    }
    const known = diskErrors[errno];
    if (known !== undefined) {
      const hint = known.code === "DISK" ? `${known.hint}; committed spans are kept` : known.hint;
      throw new JobError(known.code, `${doing}: ${known.found} (${errno})`, { hint, cause: error });
    }
    throw new JobError("DISK", `${doing}: ${error instanceof Error ? error.message : String(error)}`, {
      hint: "run the same command again; committed spans are kept",
      cause: error,
    });
  }
}

export const nodeFileSystem: FileSystem = {
  async mkdir(path) {
    await mkdir(path);
  },
  readdir: (path) => readdir(path),
  readText: (path) => readFile(path, "utf8"),
  writeText: (path, text) => writeFile(path, text),
  async stat(path) {
    const { dev, ino, size, mtimeNs, ctimeNs } = await stat(path, { bigint: true });
    return { sizeBytes: Number(size), version: [dev, ino, size, mtimeNs, ctimeNs].join(":") };
  },
  digest: (path) => digestOfFile(path),
  async sync(path) {
    const file = await open(path, "r");
    try {
      await file.sync();
    } finally {
      await file.close();
    }
  },
  link: (from, to) => link(from, to),
  rename: (from, to) => rename(from, to),
  unlink: (path) => unlink(path),
  removeFolder: (path) => rm(path, { recursive: true, force: true }),
};
