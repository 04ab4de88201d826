import { mkdir, readdir, readFile, writeFile } from "node:fs/promises";
import { dirname, join } from "node:path";
import { describe, expect, test } from "vitest";
import { nodeFileSystem, openDiskStore } from "#src/stores/disk.js";
import { openStoreOfObjects } from "#src/stores/objects.js";
import type { Fence, Store } from "#src/stores/store.js";
import { JobError } from "#src/base/errors.js";
import { openSpool } from "#src/base/spool.js";
import { scratchFolder } from "../support/job.js";
import { mayMount, smallDisk } from "../support/mounts.js";
import { objectsAt, useStores } from "../support/clouds.js";
import type { StoreServer } from "../support/s3.js";

const stores = useStores();

/** A store, and the folder in it that a test has for itself. */
interface StoreWorld extends AsyncDisposable {
  readonly store: Store;
  readonly root: string;
  /** Puts a file there, as another program does. */
  put(name: string, text: string): Promise<void>;
  /** The names of all files below the root. */
  names(): Promise<string[]>;
}

async function diskWorld(): Promise<StoreWorld> {
  const scratch = await scratchFolder();
  const root = join(scratch.path, "out");
  await mkdir(root);
  return {
    store: openDiskStore({ root, fs: nodeFileSystem, writer: "host.1.abc", isDead: () => false }),
    root,
    async put(name, text) {
      await mkdir(dirname(name), { recursive: true });
      await writeFile(name, text);
    },
    async names() {
      const entries = await readdir(root, { recursive: true, withFileTypes: true });
      const files = entries.filter((entry) => entry.isFile());
      return files.map((entry) => join(entry.parentPath, entry.name).slice(root.length + 1)).toSorted();
    },
    [Symbol.asyncDispose]: () => scratch[Symbol.asyncDispose](),
  };
}

async function objectsWorld(server: StoreServer, spoolAt?: string): Promise<StoreWorld> {
  const scratch = await scratchFolder();
  const bucket = await server.createBucket();
  const objects = await objectsAt(server, bucket.uri);
  const writer = "host.1.abc";
  const isDead = (): boolean => false;
  const spool = openSpool({ root: spoolAt ?? scratch.path, writer, use: "out", isDead, maxBytes: 1e9 });
  const root = `${bucket.uri}/lake/out`;
  return {
    store: openStoreOfObjects({ objects, spool, writer, isDead }),
    root,
    put: (name, text) => bucket.put(name.slice(`${bucket.uri}/`.length), text),
    names: async () => (await bucket.keys()).map((key) => key.slice("lake/out/".length)).toSorted(),
    async [Symbol.asyncDispose]() {
      await spool[Symbol.asyncDispose]();
      objects[Symbol.dispose]();
      await scratch[Symbol.asyncDispose]();
    },
  };
}

function fenceAt(root: string): Fence & { close: () => void } {
  let isOver = false;
  return {
    scope: `${root}/scope`,
    check: () => (isOver ? Promise.reject(new JobError("PLAN_CHANGED", "a later run was opened")) : Promise.resolve()),
    takesBack: () => Promise.resolve(true),
    close() {
      isOver = true;
    },
  };
}

function storeContractOf(what: string, open: () => Promise<StoreWorld>): void {
  describe(what, () => {
    test("a name has one creator, whose bytes stay; what is not there is undefined", async () => {
      await using at = await open();
      const { store, root } = at;
      const part = `${root}/part`;
      expect([await store.stat(part), await store.readText(part)]).toEqual([undefined, undefined]);
      const first = await store.create(part, "rows", fenceAt(root));
      const second = await store.create(part, async (path) => await writeFile(path, "others"), fenceAt(root));
      expect([first.outcome, second.outcome]).toEqual(["created", "exists"]);
      expect(await store.readText(part)).toBe("rows");
      const { outcome: _, ...digest } = first;
      expect(await (await store.stat(part))?.digest()).toEqual(digest);
      expect(await at.names()).toEqual(["part"]);
    });

    test("nothing is created when the fence is closed, before or while a file is written", async () => {
      await using at = await open();
      const { store, root } = at;
      const fence = fenceAt(root);
      const write = async (path: string): Promise<void> => {
        await writeFile(path, "rows");
        fence.close();
      };
      await expect(store.create(`${root}/part`, write, fence)).rejects.toMatchObject({ code: "PLAN_CHANGED" });
      await expect(store.create(`${root}/text`, "rows", fence)).rejects.toMatchObject({ code: "PLAN_CHANGED" });
      expect(await at.names()).toEqual([]);
    });

    test("clearing a folder removes all that is below it, and nothing beside it", async () => {
      await using at = await open();
      const { store, root } = at;
      const names = ["scope/a", "scope/below/b", "scope/below/deeper/c", "scope-2/d", "scope.e", "f"];
      for (const name of names) {
        await at.put(`${root}/${name}`, "x");
      }
      await store.remove(`${root}/scope`);
      expect(await at.names()).toEqual(["f", "scope-2/d", "scope.e"]);
      expect(await store.list(`${root}/scope`)).toEqual([]);
      await store.remove(`${root}/scope`);
      expect(await at.names()).toEqual(["f", "scope-2/d", "scope.e"]);
    });

    test("a text is created, changed, left as it is and removed, by what it is", async () => {
      await using at = await open();
      const { store, root } = at;
      const [name, fence] = [`${root}/text`, fenceAt(root)];
      const seen: (string | undefined)[] = [];
      for (const next of ["one", "two", "two", undefined, undefined]) {
        const change = (text: string | undefined): string | undefined => {
          seen.push(text);
          return next;
        };
        await store.update(name, change, fence);
        expect(await store.readText(name)).toBe(next);
      }
      expect([...new Set(seen)]).toEqual([undefined, "one", "two"]);
      await store.update(name, () => "free", undefined);
      expect(await store.readText(name)).toBe("free");
      await store.update(name, () => undefined, undefined);
      expect((await at.names()).filter((path) => !path.startsWith("scope/"))).toEqual([]);
    });

    test("a text is neither changed nor removed when the fence is closed, before or while it is", async () => {
      await using at = await open();
      const { store, root } = at;
      for (const next of ["late", undefined]) {
        const name = `${root}/text-${next}`;
        await at.put(name, "early");
        const fence = fenceAt(root);
        fence.close();
        await expect(store.update(name, () => next, fence)).rejects.toMatchObject({ code: "PLAN_CHANGED" });
        expect(await store.readText(name)).toBe("early");
      }
      const fence = fenceAt(root);
      const closing = (): string => {
        fence.close();
        return "late";
      };
      await expect(store.update(`${root}/new`, closing, fence)).rejects.toMatchObject({ code: "PLAN_CHANGED" });
      expect(await store.readText(`${root}/new`)).toBeUndefined();
    });

    test("a text that another program changes meanwhile is looked at again before it is removed", async () => {
      await using at = await open();
      const { store, root } = at;
      const name = `${root}/text`;
      await at.put(name, "early");
      let changing: Promise<void> | undefined;
      const remove = store.update(
        name,
        (text) => {
          if (text === "early" && changing === undefined) {
            changing = at.put(name, "theirs");
          }
          return text === "theirs" ? text : undefined;
        },
        { ...fenceAt(root), check: async () => await changing },
      );
      await remove;
      await changing;
      expect(await store.readText(name)).toBe("theirs");
    });

    test("bytes get a second name, and files of a folder are removed, gone or not", async () => {
      await using at = await open();
      const { store, root } = at;
      await at.put(`${root}/staged/a`, "rows");
      expect(await store.copy(`${root}/staged/a`, `${root}/a`)).toBe("copied");
      expect(await store.copy(`${root}/staged/a`, `${root}/a`)).toBe("copied");
      expect(await store.copy(`${root}/staged/none`, `${root}/b`)).toBe("missing");
      expect(await store.readText(`${root}/a`)).toBe("rows");
      expect(await store.copy(`${root}/a`, `${root}/new/folder/a`)).toBe("copied");
      await store.remove(`${root}/new`);
      await store.remove(`${root}/staged`, ["a", "none"]);
      await store.remove(`${root}/nowhere`, []);
      expect(await at.names()).toEqual(["a"]);
    });

    test("a prepared scope has one winner for each name, and nothing is left in it", async () => {
      await using at = await open();
      const fence = fenceAt(at.root);
      expect(await at.store.prepare(fence)).toBeUndefined();
      expect(await at.names()).toEqual([]);
      fence.close();
      await expect(at.store.prepare(fence)).rejects.toMatchObject({ code: "PLAN_CHANGED" });
    });

    test("files are fetched whole, in the order of their names", async () => {
      await using at = await open();
      const { store, root } = at;
      const names = Array.from({ length: 9 }, (_, index) => `${root}/file-${index}`);
      for (const name of names) {
        await at.put(name, `bytes of ${name}`);
      }
      const fetched: string[] = [];
      for await (const group of store.fetch(names, "whole").groups) {
        for (const path of group) {
          fetched.push(await readFile(path, "utf8"));
        }
      }
      expect(fetched).toEqual(names.map((name) => `bytes of ${name}`));
    });
  });
}

storeContractOf("a folder on a disk", diskWorld);
for (const { name, describe: describeStore, server } of stores) {
  describeStore(`a prefix in ${name}`, () => {
    storeContractOf("as a store", () => objectsWorld(server()));
    racesOf(() => objectsWorld(server()));
  });
}

/** What all writers of a store of objects may do at once; on a disk each process has a store of its own. */
function racesOf(open: () => Promise<StoreWorld>): void {
  test("of 20 writers at once, one creates a name, and its bytes stay", async () => {
    await using at = await open();
    const { store, root } = at;
    const texts = Array.from({ length: 20 }, (_, writer) => `rows of writer ${writer}`);
    const created = await Promise.all(texts.map((text) => store.create(`${root}/part`, text, fenceAt(root))));
    const winners = texts.filter((_, writer) => created[writer]?.outcome === "created");
    expect(winners).toHaveLength(1);
    expect(await store.readText(`${root}/part`)).toBe(winners[0]);
    expect(await at.names()).toEqual(["part"]);
  });

  test("of 20 changes of a text at once, none is lost", async () => {
    await using at = await open();
    const { store, root } = at;
    const fence = fenceAt(root);
    const add = (text: string | undefined): string => String(Number(text ?? 0) + 1);
    await Promise.all(Array.from({ length: 20 }, () => store.update(`${root}/count`, add, fence)));
    expect(await store.readText(`${root}/count`)).toBe("20");
  });
}

const [s3] = stores;
s3?.describe("the spool of a store", () => {
  test.skipIf(!mayMount)(
    "a file that does not fit into the spool is an error of that disk, not of the store",
    async () => {
      await using scratch = await scratchFolder();
      await using disk = await smallDisk(join(scratch.path, "disk"), "size=64k");
      await using at = await objectsWorld(s3.server(), join(disk.path, "spool"));
      await at.put(`${at.root}/large`, "x".repeat(1e6));
      const fetch = async (): Promise<void> => {
        for await (const _ of at.store.fetch([`${at.root}/large`], "whole").groups) {
          throw new Error("it does not fit");
        }
      };
      await expect(fetch()).rejects.toMatchObject({
        code: "DISK",
        message: expect.stringContaining(`spooling to ${disk.path}/spool/host.1.abc.out: the disk is full (ENOSPC)`),
        hint: expect.stringContaining("output.parquet.spool.path"),
      });
    },
  );
});
