import { readdir, stat } from "node:fs/promises";
import { join } from "node:path";
import { expect, test } from "vitest";
import { openParquetDecoder } from "#src/formats/parquet/decoder.js";
import type { Projection } from "#src/models/binding/contract.js";
import { windowsAhead } from "#src/flow/read.js";
import type { Source } from "#src/sources/source.js";
import { refusalOf } from "../../support/faulty.js";
import { scratch } from "../../support/job.js";
import { writeRows } from "../../support/parquet.js";
import { useS3 } from "../../support/s3.js";
import { sourceAt } from "../../support/s3-source.js";

const s3 = useS3();

const rows = 80_000;
const table = `SELECT i::BIGINT AS id, ${Array.from({ length: 10 }, (_, index) => `hash(i * 10 + ${index})::DOUBLE AS f${index}`).join(", ")} FROM range(${rows}) t(i)`;
const projection: Projection = {
  inputs: [],
  passthrough: ["id", ...Array.from({ length: 10 }, (_, index) => `f${index}`)].map((name) => ({
    column: name,
    source: { name, path: [name], type: name === "id" ? "int64" : "float64" },
  })),
  expressions: null,
  cast: "exact",
  missing: "bad_row",
};

/** The bytes that the files of a folder take on the disk, without their holes. */
async function bytesIn(folder: string): Promise<number> {
  const entries = await readdir(folder, { recursive: true, withFileTypes: true });
  const sizes = entries.map(async (entry) => {
    const found = entry.isFile() ? await stat(join(entry.parentPath, entry.name)).catch(() => undefined) : undefined;
    return (found?.blocks ?? 0) * 512;
  });
  return (await Promise.all(sizes)).reduce((sum, size) => sum + size, 0);
}

async function readThrough(source: Source, pattern: string, folder: string): Promise<{ sum: bigint; peak: number }> {
  const { shards, folders } = await source.list([pattern]);
  await using decoder = openParquetDecoder({ threads: 1, folders, timezone: "UTC" });
  const [shard] = shards;
  if (shard === undefined) {
    throw new Error("nothing is listed");
  }
  let peak = 0;
  let sum = 0n;
  const slice = { shard: { ...shard, rows }, rowStart: 0, rowEnd: rows };
  for await (const window of windowsAhead({ source, decoder, projection }, [[{ slice, rowStart: 0 }]])) {
    try {
      await window.there;
      peak = Math.max(peak, await bytesIn(folder));
      for await (const batch of decoder.read(window.requests)) {
        const [ids] = batch.carried;
        if (ids?.kind === "fixed" && ids.data instanceof BigInt64Array) {
          sum += ids.data.reduce((total, id) => total + id, 0n);
        }
      }
    } finally {
      await window.done();
    }
  }
  return { sum, peak };
}

s3.describe("the spool of an S3 source", () => {
  test("reading a shard ten times as large as the spool keeps within input.spool.max_mb", async () => {
    const bucket = await s3.server().createBucket();
    const path = join(scratch.path, "a.parquet");
    await writeRows(path, table, "COMPRESSION uncompressed, ROW_GROUP_SIZE 2048");
    const { size } = await stat(path);
    await bucket.putFile("in/a.parquet", path);
    const maxBytes = Math.floor(size / 10);
    const spool = join(scratch.path, "spool");
    await using source = sourceAt({ port: s3.server().port, spool, maxBytes });

    const { sum, peak } = await readThrough(source, `s3://${bucket.name}/in/*.parquet`, spool);

    expect(sum).toBe((BigInt(rows) * BigInt(rows - 1)) / 2n);
    expect(peak).toBeGreaterThan(maxBytes / 10);
    expect(peak).toBeLessThanOrEqual(maxBytes);
    expect(await bytesIn(spool)).toBe(0);
  });

  test("a row group larger than input.spool.max_mb is refused", async () => {
    const bucket = await s3.server().createBucket();
    const path = join(scratch.path, "a.parquet");
    await writeRows(path, table, `COMPRESSION uncompressed, ROW_GROUP_SIZE ${rows}`);
    await bucket.putFile("in/a.parquet", path);
    await using source = sourceAt({ port: s3.server().port, spool: scratch.path, maxBytes: 2 ** 20 });

    const said = await refusalOf(readThrough(source, `s3://${bucket.name}/in/*.parquet`, scratch.path));

    expect(said.replace(bucket.name, "<bucket>")).toMatchInlineSnapshot(`
      "64 USAGE
      reading s3://<bucket>/in/a.parquet: 7 MiB of it are needed at once, and 1 MiB may be kept on this machine
      hint: raise input.spool.max_mb, or write the shard with smaller row groups"
    `);
  });
});
