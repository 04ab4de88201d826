import { createHash } from "node:crypto";
import { mkdir, readFile, rm, writeFile } from "node:fs/promises";
import { dirname, join } from "node:path";
import { describe, expect, test } from "vitest";
import { JobError } from "#src/base/errors.js";
import type { OpenShard, Source } from "#src/sources/source.js";
import { diskSource } from "#src/sources/disk.js";
import { scratchFolder } from "../support/job.js";
import { sourceIn, useStores } from "../support/clouds.js";
import type { StoreServer } from "../support/s3.js";

interface World extends AsyncDisposable {
  readonly source: Source;
  /** As a spec names something there. */
  uri(key: string): string;
  put(key: string, text: string): Promise<void>;
  remove(key: string): Promise<void>;
}

async function diskWorld(): Promise<World> {
  const scratch = await scratchFolder();
  return {
    source: diskSource({ folder: scratch.path, output: undefined }),
    uri: (key) => key,
    async put(key, text) {
      const path = join(scratch.path, key);
      await mkdir(dirname(path), { recursive: true });
      await writeFile(path, text);
    },
    remove: (key) => rm(join(scratch.path, key)),
    [Symbol.asyncDispose]: () => scratch[Symbol.asyncDispose](),
  };
}

async function objectsWorld(server: StoreServer): Promise<World> {
  const scratch = await scratchFolder();
  const bucket = await server.createBucket();
  const source = sourceIn(server, bucket.uri, scratch.path);
  return {
    source,
    uri: (key) => `${bucket.uri}/${key}`,
    put: (key, text) => bucket.put(key, text),
    remove: (key) => bucket.remove(key),
    async [Symbol.asyncDispose]() {
      await source[Symbol.asyncDispose]();
      await scratch[Symbol.asyncDispose]();
    },
  };
}

async function bytesOf(shard: OpenShard): Promise<string> {
  await shard.remote?.fetch([{ start: 0, end: Number.MAX_SAFE_INTEGER }]);
  return await readFile(shard.path, "utf8");
}

/** What becomes of reading a shard from its opening to its last check. */
async function outcomeOf(work: () => Promise<unknown>): Promise<string> {
  return await work().then(
    () => "read",
    (error: unknown) => (error instanceof JobError ? error.code : String(error)),
  );
}

function contractOf(name: string, worldOf: () => Promise<World>): void {
  describe(name, () => {
    test("lists what a pattern matches, sorted", async () => {
      await using world = await worldOf();
      for (const key of [
        "b.parquet",
        "a.parquet",
        "dt=2/d e.parquet",
        "dt=1/c.parquet",
        ".hidden.parquet",
        "odd[1].parquet",
      ]) {
        await world.put(`in/${key}`, key);
      }
      await world.put("in/.git/e.parquet", "");
      await world.put("input.parquet", "");

      const [a, b, c, d, odd] = ["a.parquet", "b.parquet", "dt=1/c.parquet", "dt=2/d e.parquet", "odd[1].parquet"];
      for (const [pattern, finds] of [
        ["in/*.parquet", [a, b, odd]],
        ["in/**/*.parquet", [a, b, c, d, odd]],
        ["in/dt=*/*", [c, d]],
        ["in/[ab].parquet", [a, b]],
        ["in/{b,dt=1/c}.parquet", [b, c]],
        ["in/?.parquet", [a, b]],
        ["*/a.parquet", [a]],
        ["in/dt=2/d e.parquet", [d]],
        ["in/odd[1].parquet", [odd]],
        ["in/z*", []],
      ] as const) {
        const { shards } = await world.source.list([world.uri(pattern)]);
        expect(
          shards.map(({ uri }) => uri),
          pattern,
        ).toEqual(finds.map((file) => world.uri(`in/${file}`)));
      }
    });

    test("lists a shard once that several patterns match, and says which plain paths are not there", async () => {
      await using world = await worldOf();
      await world.put("in/a.parquet", "a");
      const patterns = ["in/*", "in/a.parquet", "in/b.parquet", "in/c*"].map((key) => world.uri(key));

      const { shards, missingFiles } = await world.source.list(patterns);

      expect(shards.map(({ uri }) => uri)).toEqual([world.uri("in/a.parquet")]);
      expect(missingFiles).toEqual([world.uri("in/b.parquet")]);
    });

    test("lists the files below a folder, but those whose names say that they are no data", async () => {
      await using world = await worldOf();
      const data = ["a.parquet", "b.arrow", "dt=1/000000_0", "dt=1/hh=2/c.parquet", "dt=1/_x=1/d.parquet"];
      const none = ["_SUCCESS", ".a.parquet.crc", "_infer-batch/plan.json", ".git/a", "dt=1/_metadata", "dt=1/.b"];
      for (const key of [...[...data, ...none].map((file) => `in/${file}`), "input.parquet"]) {
        await world.put(key, key);
      }
      for (const folder of ["in", "in/", "in/dt=1"]) {
        const { shards, unreadable } = await world.source.list([world.uri(folder)]);
        const below = data.map((file) => `in/${file}`).filter((key) => key.startsWith(folder));
        expect(shards.map(({ uri }) => uri)).toEqual(below.toSorted().map((key) => world.uri(key)));
        expect(unreadable).toEqual([]);
      }
    });

    test("lists what a job of Spark has not committed to a folder, so that planning refuses it", async () => {
      await using world = await worldOf();
      const key = "in/_temporary/0/_temporary/attempt_0/a.parquet";
      await world.put(key, "a");

      expect((await world.source.list([world.uri("in")])).shards).toMatchObject([{ uri: world.uri(key) }]);
    });

    test("a path that is not there is a missing file, but for one that can only be a folder", async () => {
      await using world = await worldOf();
      await world.put("in/a.parquet", "a");
      for (const [path, isFile] of [
        ["in/b.parquet", true],
        ["in/b", true],
        ["in/b/", false],
        ["in/dt=2", false],
      ] as const) {
        const { missingFiles, unmatched } = await world.source.list([world.uri(path)]);
        expect([missingFiles, unmatched], path).toEqual(isFile ? [[world.uri(path)], []] : [[], [world.uri(path)]]);
      }
    });

    test("tells whether a marker is there", async () => {
      await using world = await worldOf();
      await world.put("in/_SUCCESS", "");

      expect(await world.source.exists(world.uri("in/_SUCCESS"))).toBe(true);
      expect(await world.source.exists(world.uri("in/_OTHER"))).toBe(false);
    });

    test("opens a shard with the bytes that it has, and digests them", async () => {
      await using world = await worldOf();
      const text = "0123456789".repeat(100_000);
      await world.put("in/a.parquet", text);
      const { shards, folders } = await world.source.list([world.uri("in/*")]);
      const [shard] = shards;
      expect(shard).toMatchObject({ uri: world.uri("in/a.parquet"), sizeBytes: text.length });

      await using opened = await world.source.open(shard ?? never());

      expect(folders.some((folder) => opened.path.startsWith(folder))).toBe(true);
      expect(await bytesOf(opened)).toBe(text);
      await opened.check();
      const signal = new AbortController().signal;
      expect(await opened.digest(signal)).toBe(createHash("sha256").update(text).digest("hex"));
    });

    test("opens an empty shard", async () => {
      await using world = await worldOf();
      await world.put("in/a.parquet", "");
      const { shards } = await world.source.list([world.uri("in/*")]);

      await using opened = await world.source.open(shards[0] ?? never());

      expect(await bytesOf(opened)).toBe("");
    });

    test("refuses a shard that was replaced, by one of its size or a longer one, or removed since it was listed", async () => {
      await using world = await worldOf();
      for (const change of [
        () => world.put("in/a.parquet", "other"),
        () => world.put("in/a.parquet", "longer than planned"),
        () => world.remove("in/a.parquet"),
      ]) {
        await world.put("in/a.parquet", "bytes");
        const { shards } = await world.source.list([world.uri("in/*")]);
        await change();
        const outcome = await outcomeOf(async () => {
          await using opened = await world.source.open(shards[0] ?? never());
          await bytesOf(opened);
          await opened.check();
        });
        expect(outcome, String(change)).toBe("INPUT_CHANGED");
      }
    });

    test("knows a shard again that did not change", async () => {
      await using world = await worldOf();
      await world.put("in/a.parquet", "a");

      const first = await world.source.list([world.uri("in/*")]);
      const second = await world.source.list([world.uri("in/a.parquet")]);

      expect(second.shards).toEqual(first.shards);
    });
  });
}

function never(): never {
  throw new Error("no shard was listed");
}

contractOf("disk", diskWorld);
for (const { name, describe: describeStore, server } of useStores()) {
  describeStore(name, () => contractOf("as a source", () => objectsWorld(server())));
}
