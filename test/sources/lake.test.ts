import { execFileSync } from "node:child_process";
import { appendFile, cp, readdir, readFile, rm, writeFile } from "node:fs/promises";
import { basename, join } from "node:path";
import { describe, expect, test } from "vitest";
import { JobError } from "#src/base/errors.js";
import { diskSource } from "#src/sources/disk.js";
import { nameInStore, newestMetadata, readIceberg } from "#src/sources/lake/iceberg.js";
import type { LakeSnapshot } from "#src/sources/lake/snapshot.js";
import { readLake } from "#src/sources/lake/source.js";
import type { Source } from "#src/sources/source.js";
import { expectEnd, projectFolder, runCommand } from "../support/cli.js";
import { scratch, scratchFolder } from "../support/job.js";
import { bin, missing, skipped } from "../support/lake-writers.js";
import {
  avroRecordsOf,
  diskReader,
  diskTable,
  expectScored,
  type LakeAnswer,
  rewriteAvro,
  rowsOfSnapshot,
  rowText,
  sparkAnswers,
  sparkTables,
  tableOf,
  writeLakeJob,
} from "../support/lakes.js";
import { randomOf } from "../support/random.js";
import { torture } from "../support/torture.js";

const source = diskSource({ folder: "/", output: undefined });

async function read(table: string, at = "latest"): Promise<LakeSnapshot> {
  return (await readLake({ source, reader: diskReader(), table }, at)).snapshot;
}

describe("tables that Spark wrote have the rows that Spark reads:", () => {
  test.each([...sparkAnswers()])("%s", async (name, answer) => {
    const at = answer.at === "latest" ? "latest" : String(Object.values(answer.at as object)[0]);
    const snapshot = await read(tableOf(name, answer), at);
    const expected = answer.rows.map((row) => rowText(snapshot.columns.map((column) => row[column.name])));
    expect(await rowsOfSnapshot(snapshot)).toEqual(expected.toSorted());
  });
});

test("a table is read as it was at a time, and one before its first version is refused", async () => {
  const answers = sparkAnswers();
  const table = join(sparkTables, "mapped");
  const times = await Promise.all(
    ["00000000000000000004.json", "00000000000000000005.json"].map(async (name) => {
      const log = await readFile(join(table, "_delta_log", name), "utf8");
      const { commitInfo } = JSON.parse(log.split("\n")[0] ?? "") as { commitInfo: { timestamp: number } };
      return commitInfo.timestamp;
    }),
  );
  const [of4 = 0, of5 = 0] = times;
  expect((await read(table, new Date(of5 - 1).toISOString())).version).toBe("4");
  expect((await read(table, new Date(of4).toISOString())).version).toBe("4");
  expect(answers.get("mapped@4")?.rows).toHaveLength(103);
  await expect(read(table, "2020-01-01")).rejects.toMatchObject({ code: "FILE_MISSING" });
  await expect(read(join(sparkTables, "ns/v2"), "2020-01-01")).rejects.toMatchObject({ code: "FILE_MISSING" });
});

test.each([
  ["mapped", "10", /its newest is 9/],
  ["mapped", "main", /no version of a Delta table/],
  ["ns/v2", "12", /it has no snapshot 12/],
  ["ns/v2", "dev", /it has no branch or tag dev/],
  ["ns", "latest", /neither _delta_log nor metadata/],
])("%s at %s is refused", async (name, at, message) => {
  await expect(read(join(sparkTables, name), at)).rejects.toMatchObject({
    exitCode: 64,
    message: expect.stringMatching(message) as string,
  });
});

async function deltaWith(...actions: readonly object[]): Promise<string> {
  const table = join(scratch.path, "mapped");
  await cp(join(sparkTables, "mapped"), table, { recursive: true });
  const lines = actions.map((action) => `${JSON.stringify(action)}\n`);
  await writeFile(join(table, "_delta_log/00000000000000000010.json"), lines.join(""));
  return table;
}

test.each([
  [{ protocol: { minReaderVersion: 3, readerFeatures: ["variantType"] } }, /the feature variantType/],
  [{ protocol: { minReaderVersion: 4 } }, /reader version 4/],
  [{ add: { path: "s3://other/x.parquet", partitionValues: {}, size: 1 } }, /outside of its folder/],
  [{ add: { path: "/etc/x.parquet", partitionValues: {}, size: 1 } }, /outside of its folder/],
])("a Delta table with %j is refused", async (action, message) => {
  await expect(read(await deltaWith(action))).rejects.toMatchObject({
    exitCode: 64,
    message: expect.stringMatching(message) as string,
  });
});

test.each([
  [{ add: { path: "a/../../x.parquet", partitionValues: {}, size: 1 } }],
  [{ add: { path: "%2e%2e/x.parquet", partitionValues: {}, size: 1 } }],
  [{ add: { path: "%zz.parquet", partitionValues: {}, size: 1 } }],
  [{ add: { path: "x.parquet", partitionValues: {}, size: "1" } }],
  [{ metaData: { schemaString: "{", partitionColumns: [], format: { provider: "parquet" } } }],
])("a Delta table with %j is damaged", async (action) => {
  await expect(read(await deltaWith(action))).rejects.toMatchObject({ exitCode: 65 });
});

test("a version of which the log lacks a commit is refused, and the next checkpoint is read", async () => {
  const table = await deltaWith({ commitInfo: {} });
  await rm(join(table, "_delta_log/00000000000000000001.json"));
  await expect(read(table, "2")).rejects.toMatchObject({
    code: "FILE_MISSING",
    hint: expect.stringContaining("versions from 3 to 10") as string,
  });
  expect((await read(table, "4")).version).toBe("4");
});

test("files of an Iceberg table that are outside of its folder are read only where a catalog names them", async () => {
  const table = join(scratch.path, "v2");
  await cp(join(sparkTables, "ns/v2"), table, { recursive: true });
  const at = await newestMetadata(diskReader(), table);
  const moved = (await readFile(at, "utf8")).replace(/"location"\s*:\s*"[^"]*"/, '"location" : "/elsewhere"');
  await writeFile(at, moved);
  await expect(readIceberg(diskReader(), { table, at, isCatalogs: false }, { ref: "main" })).rejects.toMatchObject({
    exitCode: 64,
    message: expect.stringContaining("outside of its folder") as string,
  });
});

test.each([
  ["s3a://lake/db/t", "s3://other/x.parquet", "s3://other/x.parquet"],
  ["abfss://data@acct.dfs.core.windows.net/t", "abfss://data@acct.dfs.core.windows.net/t/x", "az://acct/data/t/x"],
  ["file:///house/t/", "file:/house/t/x.parquet", "/house/t/x.parquet"],
  ["/house/t", "/house/t2/x.parquet", undefined],
  ["/house/t", "/house/t/../../etc/passwd", undefined],
  ["/house/t", "s3://lake/x.parquet", undefined],
  ["s3://lake/t", "/etc/passwd", undefined],
  ["s3://lake/t", "gs://lake/x.parquet", undefined],
  ["s3://lake/t", "hdfs://lake/x.parquet", undefined],
  ["s3://lake/t", "x.parquet", undefined],
])("of a table of a catalog at %s, %s is the file %s", (location, uri, name) => {
  const named = (): string => nameInStore({ table: "db.t", location }, uri);
  if (name === undefined) {
    expect(named).toThrow(JobError);
  } else {
    expect(named()).toBe(name);
  }
});

test("a name in the metadata of a table that leads out of its folder is damage", async () => {
  const table = join(scratch.path, "v2");
  await cp(join(sparkTables, "ns/v2"), table, { recursive: true });
  const at = await newestMetadata(diskReader(), table);
  const text = await readFile(at, "utf8");
  await writeFile(at, text.replaceAll(/\/metadata\/snap-/g, "/../metadata/snap-"));
  const message = expect.stringContaining("no name of a file below") as string;
  await expect(read(table)).rejects.toMatchObject({ exitCode: 65, message });
});

test("a deletion vector with another number of rows than the log says is damaged", async () => {
  const table = join(scratch.path, "mapped");
  await cp(join(sparkTables, "mapped"), table, { recursive: true });
  const commit = join(table, "_delta_log/00000000000000000004.json"); // the others are in checkpoints
  const text = await readFile(commit, "utf8");
  const more = text.replaceAll(/"cardinality":(\d+)/g, (_, count: string) => `"cardinality":${Number(count) + 1}`);
  expect(more).not.toBe(text);
  await writeFile(commit, more);
  const { files } = await read(table, "4");
  await expect(Promise.all(files.map(async ({ removed }) => await removed()))).rejects.toMatchObject({ exitCode: 65 });
});

describe("a table that is planned", () => {
  const copied = async (name: string): Promise<string> => {
    const table = join(scratch.path, "table");
    await cp(join(sparkTables, name), table, { recursive: true });
    return table;
  };

  test.each([
    ["is gone", async (path: string) => await rm(path), { code: "FILE_MISSING", hint: /clean-up/ }],
    ["has grown", async (path: string) => await appendFile(path, "x"), { exitCode: 65, message: /the table says/ }],
  ])("is refused where one of its files %s", async (_, change, expected) => {
    const table = await copied("ns/v2");
    const { shards } = await diskTable(table).list([table]);
    await change(shards.at(-1)?.uri ?? "");
    await expect(diskTable(table).list([table])).rejects.toMatchObject(expected);
  });

  test("is refused where it has removed a row that its file does not have", async () => {
    const table = await deltaWith();
    await rm(join(table, "_delta_log/00000000000000000010.json"));
    const commit = join(table, "_delta_log/00000000000000000009.json");
    await rm(join(table, "_delta_log/00000000000000000009.checkpoint.parquet"));
    const text = await readFile(commit, "utf8");
    await writeFile(commit, text.replaceAll(String.raw`\"numRecords\":5`, String.raw`\"numRecords\":0`));
    const rowsOf = diskTable(table);
    const { shards } = await rowsOf.list([table]);
    const opened = await Promise.all(shards.map(async (shard) => await rowsOf.open(shard)));
    await expect(Promise.all(opened.map(async (file) => await file.table?.removed()))).rejects.toMatchObject({
      exitCode: 65,
      message: /row \d+ of 0 is one of them/,
    });
  });

  test.each(["mapped", "ns/v3"])("is read at its version though it has a newer one: %s", async (name) => {
    const table = await copied(name);
    const { table: newest, shards } = await diskTable(table).list([table]);
    const answer = sparkAnswers().get(name === "mapped" ? "mapped@4" : "v3@first");
    const version = String(Object.values(answer?.at as object)[0]);
    const { snapshot } = await readLake({ source, reader: diskReader(), table }, version);
    const pinned = {
      uri: table,
      at: "latest",
      format: newest?.format ?? "delta",
      version,
      removedRows: 3,
      schemaId: snapshot.schemaId,
    };
    const listing = await diskTable(table).list([table], { table: pinned });
    expect(listing.table).toEqual(pinned);
    expect(listing.shards.map(({ uri }) => uri)).toEqual(snapshot.files.map(({ uri }) => uri));
    expect(listing.shards).not.toEqual(shards);
    expect(newest?.removedRows).toBe(shards.reduce((sum, { ofTable }) => sum + (ofTable?.removedRows ?? 0), 0));
  });

  test("says how to go on where a clean-up removes what its plan needs", async () => {
    const table = await copied("mapped");
    const rowsOf = diskTable(table);
    const { shards, table: pinned } = await rowsOf.list([table]);
    const [shard = never()] = shards;
    await using opened = await rowsOf.open(shard);
    await rm(opened.path);
    const expected = { code: "INPUT_CHANGED", hint: /VACUUM.*--new-run/ };
    await expect(opened.check()).rejects.toMatchObject(expected);
    await expect(rowsOf.open(shard)).rejects.toMatchObject(expected);
    const { shards: left } = await rowsOf.list([table], { table: pinned });
    expect(left.map(({ uri }) => uri)).toEqual(shards.slice(1).map(({ uri }) => uri));
    await rm(join(table, "_delta_log"), { recursive: true });
    await expect(rowsOf.list([table], { table: pinned })).rejects.toMatchObject(expected);
  });

  test.each([
    { at: "latest", name: "00000000000000000009.checkpoint.parquet" },
    { at: "pinned", name: "00000000000000000009.checkpoint.parquet" },
    { at: "changes", name: "00000000000000000008.json" },
  ])("is not ready where a clean-up removes $name while it is read: $at", async ({ at, name }) => {
    const table = await copied("mapped");
    const log = join(table, "_delta_log", name);
    const changes = { from: null, to: null, onRewrite: "new_files" } as const;
    const { table: pinned, changes: { to } = never() } = await diskTable(table).list([table], { changes });
    const since = { ...changes, from: to.replace("9", "6") };
    const wanted = at === "pinned" ? { table: pinned } : at === "changes" ? { changes: since } : {};
    expect((await diskTable(table).list([table], wanted)).shards).not.toEqual([]);
    for (const whenOpened of [false, true]) {
      await using removing: Source = {
        ...source,
        async open(shard) {
          const opened = whenOpened ? await source.open(shard) : undefined;
          await (shard.uri === log ? rm(log, { force: true }) : undefined);
          return opened ?? (await source.open(shard));
        },
      };
      const whole = await readFile(log);
      await expect(diskTable(table, removing).list([table], wanted)).rejects.toMatchObject({ code: "INPUT_NOT_READY" });
      await writeFile(log, whole);
    }
  });
});

function never(): never {
  throw new Error("the table has no file");
}

test("an Iceberg table whose writer died before it told the newest version has the rows of that", async () => {
  const table = join(scratch.path, "v2");
  await cp(join(sparkTables, "ns/v2"), table, { recursive: true });
  const { version } = await read(table);
  await writeFile(join(table, "metadata/version-hint.text"), "2");

  expect((await read(table)).version).toBe(version);
});

async function manifestsOf(table: string): Promise<{ readonly list: string; readonly manifests: readonly string[] }> {
  const at = await newestMetadata(diskReader(), table);
  const [, list = ""] =
    /"manifest-list"\s*:\s*"[^"]*\/(snap-[^"]+)"(?![^]*"manifest-list")/.exec(await readFile(at, "utf8")) ?? [];
  const path = join(table, "metadata", list);
  const records = avroRecordsOf(path);
  return {
    list: path,
    manifests: records.map(({ manifest_path: name }) => join(table, "metadata", basename(String(name)))),
  };
}

test("a manifest that does not end with its marker is damaged", async () => {
  const table = join(scratch.path, "v2");
  await cp(join(sparkTables, "ns/v2"), table, { recursive: true });
  const [manifest = ""] = (await manifestsOf(table)).manifests;
  const bytes = await readFile(manifest);
  await writeFile(manifest, bytes.fill(~(bytes.at(-1) ?? 0) & 255, bytes.length - 1));
  const message = expect.stringContaining("marker") as string;
  await expect(read(table)).rejects.toMatchObject({ exitCode: 65, message });
});

test.each([
  ["of the same commit as", 0n, 75],
  ["older than", 1n, 92],
])("position deletes %s their data files remove rows as the format says", async (_, younger, rows) => {
  const table = join(scratch.path, "v2");
  await cp(join(sparkTables, "ns/v2"), table, { recursive: true });
  const { list, manifests } = await manifestsOf(table);
  for (const [index, { content }] of avroRecordsOf(list).entries()) {
    const sequence = content === 1 ? 9n : 9n + younger;
    await rewriteAvro(manifests[index] ?? "", (entry) => ({ ...entry, sequence_number: sequence }));
  }
  const { files } = await read(table);
  const removed = await Promise.all(files.map(async (file) => (await file.removed()).length));
  const left = files.reduce((sum, file) => sum + (file.rows ?? 0), 0) - removed.reduce((sum, count) => sum + count, 0);
  expect(left).toBe(rows);
});

test("damaged metadata ends as an error that says which file it is", async () => {
  const random = randomOf(1);
  let damaged = 0;
  for (const [name, folder] of [
    ["mapped", "_delta_log"],
    ["ns/v3", "metadata"],
  ] as const) {
    const table = join(scratch.path, name);
    await cp(join(sparkTables, name), table, { recursive: true });
    const files = (await readdir(join(table, folder))).filter((file) => /\.(?:json|avro|parquet)$/.test(file));
    for (let round = 0; round < 40; round += 1) {
      const file = join(table, folder, files[Math.floor(random() * files.length)] ?? "");
      const whole = await readFile(file);
      const bytes = Buffer.from(whole);
      const at = Math.floor(random() * bytes.length);
      await writeFile(
        file,
        random() < 0.3 ? bytes.subarray(0, at) : bytes.fill(Math.floor(random() * 256), at, at + 3),
      );
      try {
        const { files: data } = await read(table);
        await Promise.all(data.map(async ({ removed }) => await removed()));
      } catch (error) {
        expect(error).toBeInstanceOf(JobError);
        expect([64, 65]).toContain((error as JobError).exitCode);
        damaged += 1;
      }
      await writeFile(file, whole);
    }
  }
  expect(damaged).toBeGreaterThan(5);
});

test.skipIf(missing !== undefined)(
  `tables with random histories by deltalake and pyiceberg have their rows at each of three versions${skipped}`,
  async () => {
    const script = join(projectFolder, "test/support/lakes/histories.py");
    const args = [script, join(scratch.path, "tables"), "0", torture ? "200" : "4"];
    const told = execFileSync(join(bin, "python"), args, { encoding: "utf8", maxBuffer: 2 ** 28 });
    const answers = told
      .trim()
      .split("\n")
      .map((line) => JSON.parse(line) as LakeAnswer & { readonly table: string });
    expect(answers.length).toBeGreaterThan(4);
    for (const { table, at, rows } of answers) {
      const { snapshot } = await readLake({ source, reader: diskReader(), table }, String(at));
      const names = snapshot.columns.map(({ name }) => name);
      const expected = rows.map((row) => rowText(names.map((name) => row[name]))).toSorted();
      expect(await rowsOfSnapshot(snapshot), `${table} at ${String(at)}`).toEqual(expected);
      expect(rows.length === 0 ? names : Object.keys(rows[0] ?? {})).toEqual(names);
      if (rows.length > 0) {
        await using folder = await scratchFolder();
        const spec = await writeLakeJob(folder.path, { table, at: String(at), columns: keyFirst(names) });
        await expectEnd(runCommand(["run", spec, "--json"]), 0);
        await expectScored(folder.path, rows, keyFirst(names));
      }
    }
  },
  torture ? 1_200_000 : 240_000,
);

/** Columns with that one first which has no NULL: a rename may have given it another name. */
function keyFirst(names: readonly string[]): string[] {
  const isKey = (name: string): boolean => /^id(_|$)/.test(name);
  return [...names.filter(isKey), ...names.filter((name) => !isKey(name))];
}
