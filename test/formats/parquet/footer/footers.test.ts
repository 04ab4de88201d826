import { readFile, writeFile } from "node:fs/promises";
import { describe, expect, test } from "vitest";
import { inspectParquet } from "#src/formats/parquet/inspect.js";
import { differences, goldenRows } from "../../../support/golden.js";
import { scratch } from "../../../support/job.js";
import { outputRows } from "../../../support/output.js";
import { runSpec } from "../../../support/score.js";
import { ownJob } from "../../../support/world.js";
import { expectEnd } from "../../../support/cli.js";

/** Where a shard's footer begins. */
function footerStart(bytes: Buffer): number {
  return bytes.length - 8 - bytes.readUInt32LE(bytes.length - 8);
}

/** Writes another row count into a footer; the row groups keep theirs. Each count must fit one byte, zigzag. */
async function tellRows(path: string, { from, to }: { from: number; to: number }): Promise<void> {
  const bytes = await readFile(path);
  // Thrift's compact protocol: field 3, an i64. The file's own count comes before those of its row groups.
  const at = bytes.indexOf(Buffer.from([0x16, from * 2]), footerStart(bytes));
  expect(at).toBeGreaterThan(0);
  bytes[at + 1] = to * 2;
  await writeFile(path, bytes);
}

describe("a footer whose row count is not that of its row groups", () => {
  // Shard 0 has 60 rows, in row groups of 16; shard 2 has 17.
  test("a footer with a row count of 0, as some writers leave it, loses no row", async () => {
    const job = await ownJob(scratch.path, "wine-forest", { commit_rows: 50 });
    await tellRows(job.shard(0), { from: 60, to: 0 });

    expect((await runSpec(job.spec)).summary).toMatchObject({
      status: "complete",
      rows_planned: 178,
      rows_scored: 178,
    });

    expect(differences(await outputRows(job.out), await goldenRows(job.fixture))).toEqual([]);
    expect(await inspectParquet(job.shard(0))).toMatchObject({ rows: 60, rowGroups: 4 });
  });

  test("a footer whose row count is not that of its row groups ends the run with 65, even if another file's error cancels it out", async () => {
    const job = await ownJob(scratch.path, "wine-forest");
    await tellRows(job.shard(0), { from: 60, to: 61 });
    await tellRows(job.shard(2), { from: 17, to: 16 });

    const { stderr } = await expectEnd(runSpec(job.spec), 65);
    // Footers are read at the same time: either is told.
    const told = [
      `reading the footer of ${job.shard(0)}: it states 61 rows, but its row groups state 60`,
      `reading the footer of ${job.shard(2)}: it states 16 rows, but its row groups state 17`,
    ];
    expect(
      told.some((text) => stderr.includes(text)),
      stderr,
    ).toBe(true);
  });
});

describe("a shard that only other readers can read", () => {
  test("a shard that is encrypted is reported as encrypted", async () => {
    const job = await ownJob(scratch.path, "wine-forest");
    const bytes = await readFile(job.shard(0));
    bytes.write("PARE");
    bytes.write("PARE", bytes.length - 4);
    await writeFile(job.shard(0), bytes);

    await expectEnd(
      runSpec(job.spec),
      65,
      `reading the footer of ${job.shard(0)}: it is encrypted`,
      "hint: encrypted files are not supported; write the shard without encryption",
    );
  });

  test("a shard with a codec that DuckDB lacks is not reported as damaged", async () => {
    const job = await ownJob(scratch.path, "wine-forest");
    const bytes = await readFile(job.shard(0));
    // ColumnMetaData: field 4, an i32, gzip, then an i64; 5 is LZ4.
    const gzip = Buffer.from([0x15, 2 * 2, 0x16]);
    for (let at = bytes.indexOf(gzip, footerStart(bytes)); at >= 0; at = bytes.indexOf(gzip, at)) {
      bytes[at + 1] = 5 * 2;
    }
    await writeFile(job.shard(0), bytes);

    await expectEnd(
      runSpec(job.spec),
      65,
      'Unsupported compression codec "LZ4"',
      "hint: the shard has a codec or an encoding that cannot be read; write it again with another",
    );
  });
});
