import { link, mkdir, realpath, rm, symlink, writeFile } from "node:fs/promises";
import { dirname, join } from "node:path";
import { describe, expect, test } from "vitest";
import { diskSource } from "#src/sources/disk.js";
import type { ListedShard } from "#src/run/plan/compare.js";
import type { Listing } from "#src/sources/source.js";
import { scratch, scratchFolder } from "../../support/job.js";

const part = "part-00000.job-0123456789ab.parquet";

async function makeTree(folder: string, links: Readonly<Record<string, string>> = {}): Promise<void> {
  for (const file of ["in/a.parquet", "in/deep/b.parquet"]) {
    await mkdir(dirname(join(folder, file)), { recursive: true });
    await writeFile(join(folder, file), "");
  }
  for (const [name, target] of Object.entries(links)) {
    await symlink(target, join(folder, name));
  }
}

async function list(folder: string, output: string, patterns: readonly string[]): Promise<Listing> {
  return await diskSource({ folder, output: { folder: join(folder, output), part } }).list(patterns);
}

async function listed(folder: string, pattern: string): Promise<string[]> {
  return (await list(folder, "out", [pattern])).shards.map(({ uri }) => uri);
}

describe("a pattern that will match the run's own parts", () => {
  test.each<{ pattern: string; output: string; links?: Record<string, string> }>([
    { pattern: "**/*.parquet", output: "out" },
    { pattern: "**/*.parquet", output: "out/dt=2026-01-31" },
    { pattern: "in/**", output: "in/scored/today" },
    { pattern: "*/*.parquet", output: "out" },
    { pattern: "{in,out}/*.parquet", output: "out" },
    { pattern: "out/part-*.job-*.parquet", output: "out" },
    { pattern: "out/*.parquet", output: "./in/../out" },
    { pattern: "in/*.parquet", output: "in" },
    { pattern: "in/d*/*", output: "in/deep" },
    { pattern: "latest/*.parquet", output: "in", links: { latest: "in" } },
    { pattern: "in/**", output: "latest/scored", links: { latest: "in" } },
    { pattern: "in/*/*.parquet", output: "out", links: { "in/scored": "../out", out: "in/deep" } },
    { pattern: "in/**/*.parquet", output: "scored", links: { "in/all": ".." } },
  ])(
    "the pattern $pattern is refused with the output in $output and links $links",
    async ({ pattern, output, links }) => {
      await using folder = await scratchFolder();
      await makeTree(folder.path, links);
      const message = "matches what is written to output.parquet.path";

      await expect(list(folder.path, output, [pattern])).rejects.toThrow(message);
      await expect(list(folder.path, output, ["in/*.parquet", join(folder.path, pattern)])).rejects.toThrow(message);
    },
  );

  test("a pattern that will match the run's own parts is refused while the whole input is missing", async () => {
    await expect(list(scratch.path, "in/scored", ["in/**"])).rejects.toThrow("output.parquet.path");
  });
});

describe("a pattern that matches no part of the run", () => {
  test.each([
    { pattern: "in/**", output: "out", finds: ["in/a.parquet", "in/deep/b.parquet"] },
    { pattern: "in/*.parquet", output: "in/scored", finds: ["in/a.parquet"] },
    { pattern: "in/*/*.parquet", output: "in/scored/today", finds: ["in/deep/b.parquet"] },
    { pattern: "**/[ab].parquet", output: "out", finds: ["in/a.parquet", "in/deep/b.parquet"] },
    { pattern: "**/*.parquet", output: ".out", finds: ["in/a.parquet", "in/deep/b.parquet"] },
    { pattern: "absent/*.parquet", output: "out", finds: [] },
  ])("the pattern $pattern lists shards with the output in $output", async ({ pattern, output, finds }) => {
    await makeTree(scratch.path);

    const { shards, missingFiles } = await list(scratch.path, output, [pattern]);

    expect(shards.map(({ uri }) => uri)).toEqual(finds);
    expect(missingFiles).toEqual([]);
  });
});

test("a file of several hard links is listed once, under its first name", async () => {
  await makeTree(scratch.path);
  await link(join(scratch.path, "in/a.parquet"), join(scratch.path, "in/deep/a.parquet"));
  await link(join(scratch.path, "in/deep/b.parquet"), join(scratch.path, "in/aa.parquet"));

  expect(await listed(scratch.path, "in/**")).toEqual(["in/a.parquet", "in/aa.parquet"]);
  expect(await listed(scratch.path, "in/deep/*")).toEqual(["in/deep/a.parquet", "in/deep/b.parquet"]);
});

test("a file is listed once when one name is a symbolic link to another hard link", async () => {
  await makeTree(scratch.path, { "in/c.parquet": "a.parquet" });
  await link(join(scratch.path, "in/a.parquet"), join(scratch.path, "in/b.parquet"));

  expect(await listed(scratch.path, "in/*.parquet")).toEqual(["in/a.parquet"]);
});

test.each([
  { how: "hard links", make: (from: string, to: string) => link(from, to) },
  { how: "links", make: (from: string, to: string) => symlink(from, to) },
])("a file of several names is listed once for each partition value of its folders ($how)", async ({ make }) => {
  for (const name of ["dt=1/a", "dt=1/b", "dt=2/a", "all/a", "latest/a"]) {
    const path = join(scratch.path, "in", `${name}.parquet`);
    await mkdir(dirname(path), { recursive: true });
    await (name === "dt=1/a" ? writeFile(path, "") : make(join(scratch.path, "in/dt=1/a.parquet"), path));
  }

  expect(await listed(scratch.path, "in/{d,l}*/*")).toEqual(["in/dt=1/a.parquet", "in/dt=2/a.parquet"]);
  expect(await listed(scratch.path, "in/{all,dt=2}/*")).toEqual(["in/all/a.parquet"]);
});

test.each([
  { what: "its folder", links: { latest: "in" }, uri: "latest/a.parquet" },
  { what: "the file", links: { "c.parquet": "in/a.parquet" }, uri: "c.parquet" },
])("reading stays with the file that a link to $what led to when it was opened", async ({ links, uri }) => {
  await makeTree(scratch.path, links);
  await using source = diskSource({ folder: scratch.path, output: undefined });
  const [shard] = (await source.list([uri])).shards;
  const opened = await Promise.all([1, 2].map(() => source.open(shard as ListedShard)));
  const [name = ""] = Object.keys(links);
  await rm(join(scratch.path, name));
  await symlink("nowhere", join(scratch.path, name));
  expect(opened.map(({ path }) => path)).toEqual(Array(2).fill(await realpath(join(scratch.path, "in/a.parquet"))));
  await opened[0]?.check();
  await expect(source.open(shard as ListedShard)).rejects.toMatchObject({ code: "INPUT_CHANGED" });
});
