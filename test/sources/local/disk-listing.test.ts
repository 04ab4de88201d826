import { execFileSync } from "node:child_process";
import { mkdir, rm, symlink } from "node:fs/promises";
import { createServer } from "node:net";
import { join } from "node:path";
import { describe, expect, test } from "vitest";
import { diskSource, walkFileSystem, type WalkFileSystem } from "#src/sources/disk.js";
import { listDisk, put, refusal } from "../../support/disk-source.js";
import { scratch } from "../../support/job.js";

async function unread(folder: string, pattern: string): Promise<string[]> {
  const { unreadable: found } = await listDisk(folder, [pattern]);
  return found.map(({ path, finding }) => `${path.slice(folder.length + 1)}, ${finding}`).toSorted();
}

function failure(errno: string): Error {
  return Object.assign(new Error(`${errno}: scandir`), { code: errno });
}

function failingAt(name: string, errno: string, times = Number.POSITIVE_INFINITY): WalkFileSystem & { tries: number } {
  const failing = {
    ...walkFileSystem,
    tries: 0,
    readdir: async (path: string) => {
      if (!path.endsWith(name)) {
        return await walkFileSystem.readdir(path);
      }
      failing.tries += 1;
      if (failing.tries <= times) {
        throw failure(errno);
      }
      return await walkFileSystem.readdir(path);
    },
  };
  return failing;
}

test.each([
  { errno: "EACCES", code: "PERMISSION", exitCode: 64 },
  { errno: "EPERM", code: "PERMISSION", exitCode: 64 },
  ...["EIO", "EMFILE", "ENFILE", "ESTALE", "ETIMEDOUT", "ENOMEM"].map((errno) => ({
    errno,
    code: "DISK",
    exitCode: 75,
  })),
])(
  "a folder that cannot be listed ends the listing with $exitCode, and is named ($errno)",
  async ({ errno, code, exitCode }) => {
    await put(scratch.path, "p/dt=1/a.parquet", "p/dt=2/b.parquet");

    for (const pattern of ["p/*/*.parquet", "p/**/*.parquet", "p/dt=2/*.parquet", "p/{dt=1,dt=2}/*"]) {
      const refused = await refusal(() => listDisk(scratch.path, [pattern], failingAt("dt=2", errno)));
      expect(refused).toMatchObject({ code, exitCode });
      expect(refused.message).toMatch(/^listing \S+\/p\/dt=2: /);
    }
  },
);

test("a folder that cannot be listed is no error when the pattern matches nothing below it", async () => {
  await put(scratch.path, "p/a.parquet", "p/closed/b.parquet", "p/.closed/c.parquet", "p/in/.closed/d.parquet");

  for (const pattern of ["p/*", "p/*.parquet", "p/[a-b]*/*"]) {
    expect((await listDisk(scratch.path, [pattern], failingAt("/closed", "EIO"))).shards.length).toBeLessThan(2);
  }
  await rm(join(scratch.path, "p/closed"), { recursive: true });
  const all = await listDisk(scratch.path, ["p/**"], failingAt(".closed", "EIO"));
  expect(all.shards.map(({ uri }) => uri)).toEqual(["p/a.parquet"]);
});

test("a lost+found folder that only root may list is skipped", async () => {
  await put(scratch.path, "a.parquet", "lost+found/b.parquet");

  const closed = await listDisk(scratch.path, ["**/*.parquet"], failingAt("lost+found", "EACCES"));
  const failing = await refusal(() => listDisk(scratch.path, ["**/*.parquet"], failingAt("lost+found", "EIO")));

  expect(closed.shards.map(({ uri }) => uri)).toEqual(["a.parquet"]);
  expect(failing).toMatchObject({ exitCode: 75 });
});

describe("a folder that vanishes while folders are walked", () => {
  test("a listing walks again when a folder vanishes, so that moved files are found", async () => {
    await put(scratch.path, "p/dt=1/a.parquet", "p/dt=2/b.parquet");

    const { shards } = await listDisk(scratch.path, ["p/*/*.parquet"], failingAt("dt=2", "ENOENT", 2));

    expect(shards.map(({ uri }) => uri)).toEqual(["p/dt=1/a.parquet", "p/dt=2/b.parquet"]);
  });

  test("a listing ends with 75 when folders keep vanishing", async () => {
    await put(scratch.path, "p/dt=1/a.parquet", "p/dt=2/b.parquet");
    const restless = failingAt("dt=2", "ENOENT");

    const refused = await refusal(() => listDisk(scratch.path, ["p/*/*.parquet"], restless));

    expect(refused).toMatchObject({ code: "INPUT_NOT_READY", exitCode: 75 });
    expect(refused.message).toMatch(/files and folders vanish during the listing, such as \S+\/p\/dt=2$/);
    expect(restless.tries).toBe(4);
  });

  test("a listing walks again when a file vanishes", async () => {
    await put(scratch.path, "p/a.parquet", "p/b.parquet");
    let walks = 0;
    const moving: WalkFileSystem = {
      ...walkFileSystem,
      readdir: async (path) => {
        walks += 1;
        const entries = await walkFileSystem.readdir(path);
        if (walks === 1) {
          await rm(join(scratch.path, "p/b.parquet"));
          await put(scratch.path, "p/c.parquet");
        }
        return entries;
      },
    };

    const { shards, missingFiles } = await listDisk(scratch.path, ["p/*"], moving);

    expect(shards.map(({ uri }) => uri)).toEqual(["p/a.parquet", "p/c.parquet"]);
    expect(missingFiles).toEqual([]);
  });
});

test.each([
  { pattern: "p/*.parquet", missing: "p", parentExists: true },
  { pattern: "in/dt=2/*/x.parquet", missing: "in/dt=2", parentExists: true },
  { pattern: "p/dt=2/**", missing: "p", parentExists: false },
  { pattern: "in/a.parquet/*", missing: "in/a.parquet", parentExists: true },
])(
  "a listing reports the folder before the first wildcard when it is missing ($pattern)",
  async ({ pattern, missing, parentExists }) => {
    await put(scratch.path, "in/a.parquet");

    const found = await listDisk(scratch.path, [pattern, "in/*.parquet"]);

    expect(found.missingFolders).toEqual([{ pattern, folder: join(scratch.path, missing), parentExists }]);
    expect(found.unmatched).toEqual([pattern]);
  },
);

describe("matches that cannot be read as a shard", () => {
  test("a listing reports links that lead to nothing, to themselves, or to something other than a file", async () => {
    await put(scratch.path, "p/a.parquet", "p/.hidden/a.parquet");
    const links = { "gone.parquet": "nowhere", "self.parquet": "self.parquet", "null.parquet": "/dev/null" };
    for (const [name, target] of Object.entries({ ...links, "gone.csv": "nowhere", ".gone.parquet": "nowhere" })) {
      await symlink(target, join(scratch.path, "p", name));
    }
    const told = [
      "p/gone.parquet, which is a link that leads to nothing",
      "p/null.parquet, which is not a file (a FIFO, socket or device)",
      "p/self.parquet, which is a link that leads to nothing",
    ];

    expect(await unread(scratch.path, "p/*.parquet")).toEqual(told);
    // The link may have led to a folder of shards.
    expect(await unread(scratch.path, "p/**/*.parquet")).toEqual([
      "p/gone.csv, which is a link that leads to nothing",
      ...told,
    ]);
    expect(await unread(scratch.path, "p/a*")).toEqual([]);
  });

  test("a listing reports a broken link in place of a folder, such as one to a disk that is not mounted", async () => {
    await put(scratch.path, "p/dt=1/a.parquet");
    await symlink("/nowhere/dt=2", join(scratch.path, "p/dt=2"));

    expect(await unread(scratch.path, "p/*/*.parquet")).toEqual(["p/dt=2, which is a link that leads to nothing"]);
  });

  test("a listing reports FIFOs and sockets", async () => {
    await put(scratch.path, "p/a.parquet");
    execFileSync("mkfifo", [join(scratch.path, "p/fifo.parquet")]);
    await using server = createServer();
    await new Promise<void>((done) => server.listen(join(scratch.path, "p/socket.parquet"), done));

    expect(await unread(scratch.path, "p/*.parquet")).toEqual([
      "p/fifo.parquet, which is not a file (a FIFO, socket or device)",
      "p/socket.parquet, which is not a file (a FIFO, socket or device)",
    ]);
    expect(await unread(scratch.path, "p/a*")).toEqual([]);
  });

  test.each([
    { pattern: "p/*.parquet", tells: ["p/x.parquet, which is a folder"] },
    { pattern: "p/*", tells: ["p/sub, which is a folder", "p/x.parquet, which is a folder"] },
    { pattern: "{p,q}/x*", tells: ["p/x.parquet, which is a folder"] },
    { pattern: "p/**/a.parq*", tells: [] },
    { pattern: "p/**/x.*", tells: ["p/x.parquet, which is a folder"] },
    { pattern: "p/**/*.parquet", tells: [] },
    { pattern: "p/**/*", tells: [] },
    { pattern: "p/**", tells: [] },
    { pattern: "p/*/*.parquet", tells: [] },
  ])("a listing reports a folder that $pattern matches without matching files in it", async ({ pattern, tells }) => {
    await put(scratch.path, "p/a.parquet", "p/x.parquet/part-0.parquet", "p/sub/b.csv");
    await put(scratch.path, "p/_temporary/a", "p/.git/a", "p/lost+found/a", "q/a.parquet");

    expect(await unread(scratch.path, pattern)).toEqual(tells);
  });

  test("a listing does not report the folder of the job's own output", async () => {
    await put(scratch.path, "in/a.parquet");
    const source = diskSource({ folder: scratch.path, output: { folder: join(scratch.path, "in/scored"), part: "p" } });

    expect((await source.list(["in/*"])).unreadable).toEqual([]);
    await mkdir(join(scratch.path, "in/scored"));
    expect((await source.list(["in/*"])).unreadable).toEqual([]);
  });
});
