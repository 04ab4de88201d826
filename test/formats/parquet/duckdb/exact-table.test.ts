import { spawnSync } from "node:child_process";
import { existsSync } from "node:fs";
import { mkdir, open, readFile } from "node:fs/promises";
import { hostname } from "node:os";
import { join } from "node:path";
import { afterEach, expect, test, vi } from "vitest";
import { exactTables } from "#src/formats/parquet/exact-table.js";
import { readFooter } from "#src/formats/parquet/footer.js";
import { scratch } from "../../../support/job.js";
import { writeRows } from "../../../support/parquet.js";
import { makeNanosUtc } from "../../../support/parquet-patches.js";

/** The bytes of a whole copy, and those of its shard. */
async function copyIn(
  folder: string,
  before: () => Promise<void> = async () => await Promise.resolve(),
): Promise<{ copied: Buffer; whole: Buffer; copies: string }> {
  vi.stubEnv("TMPDIR", folder);
  const path = join(folder, "a.parquet");
  await writeRows(path, "SELECT make_timestamp_ns(i) AS t FROM range(5000) r(i)");
  await makeNanosUtc(path);
  const [footer, whole] = [await readFooter({ path }), await readFile(path)];
  await using tables = exactTables();
  const ranges = [{ start: 4, end: footer.pagesEnd }];
  const shard = { file: { path, name: "a" }, footer, columns: new Map([["t", "timestamp[ns]"]] as const), ranges };
  await before();
  const copied = await tables.use(shard, async () => await readFile(join(tables.folder, "1.spool")));
  return { copied, whole, copies: tables.folder };
}

/** Lets the system read and write a half of what it is given. */
async function halve(): Promise<void> {
  await using handle = await open(import.meta.filename);
  const methods = Object.getPrototypeOf(handle) as Record<"read" | "write", (...given: unknown[]) => unknown>;
  for (const name of ["read", "write"] as const) {
    const whole = methods[name];
    vi.spyOn(methods, name).mockImplementation(function (this: unknown, bytes, offset, length, position) {
      return whole.call(this, bytes, offset, Math.ceil(Number(length) / 2), position);
    });
  }
}

afterEach(() => {
  vi.restoreAllMocks();
  vi.unstubAllEnvs();
});

test("a copy is whole where the system reads and writes a part of what it is given", async () => {
  const { copied, whole } = await copyIn(scratch.path, halve);

  expect(copied.length).toBe(whole.length);
  expect(copied.filter((byte, at) => byte !== whole[at]).length, "the one that says UTC").toBe(1);
});

test("copies that a killed process left are removed, those of others stay", async () => {
  const { pid } = spawnSync("true");
  const host = hostname().replaceAll(/[^A-Za-z0-9-]/g, "_");
  const [dead, alive, away] = [
    `${host}.${pid}.00000000`,
    `${host}.${process.ppid}.00000000`,
    `other.${pid}.00000000`,
  ].map((writer) => join(scratch.path, `infer-batch-spool-${process.getuid?.()}/${writer}.copies`));
  for (const folder of [dead, alive, away]) {
    await mkdir(folder ?? "", { recursive: true });
  }

  const { copies } = await copyIn(scratch.path);

  expect([dead, alive, away, copies].map((folder) => existsSync(folder ?? ""))).toEqual([false, true, true, false]);
});
