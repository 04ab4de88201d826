import { join } from "node:path";
import { expect, test } from "vitest";
import { type BatchLimits, cutPieces } from "#src/formats/arrow/batches.js";
import { openShards } from "#src/formats/arrow/shards.js";
import { mebibytes } from "#src/base/memory-budget.js";
import { writeArrow } from "../../support/arrow.js";
import { projectFolder } from "../../support/cli.js";
import { scratch } from "../../support/job.js";

/** Rows of each piece of a shard. */
async function piecesOf(path: string, columns: readonly string[], limits: BatchLimits): Promise<number[]> {
  await using shard = await openShards()({ path, name: path });
  const wanted = new Map(columns.map((name) => [name, undefined]));
  const request = { rowStart: 0, rowEnd: shard.index.rows, columns: wanted, limits };
  const found: number[] = [];
  for await (const piece of cutPieces(shard.bytes, shard.index, request)) {
    found.push(piece.rowEnd - piece.rowStart);
  }
  return found;
}

const plenty: BatchLimits = { bytes: mebibytes(512), wholeBytes: mebibytes(256), pieceBytes: mebibytes(32) };

test("a record batch of long texts is read in pieces of as many bytes as there is memory for", async () => {
  const path = join(scratch.path, "a.arrow");
  await writeArrow(path, "SELECT range AS id, repeat('a', 1000000) AS body FROM range(60)", { batchRows: 60 });
  const pieces = await piecesOf(path, ["id", "body"], { ...plenty, pieceBytes: mebibytes(10) });
  expect(pieces.reduce((sum, rows) => sum + rows, 0)).toBe(60);
  expect(Math.max(...pieces)).toBeLessThanOrEqual(10);
});

test.each(["zstd.arrow", "lz4.arrow"])(
  "a compressed record batch without memory is refused by name and size (%s)",
  async (name) => {
    const path = join(projectFolder, "fixtures/arrow", name);
    await using shard = await openShards()({ path, name: path });
    const columns = shard.index.schema.fields.map((field) => field.name);
    const limits = { ...plenty, bytes: 2048, wholeBytes: 512 };
    expect(await piecesOf(path, columns, plenty)).not.toEqual([]);
    await expect(piecesOf(path, columns, limits)).rejects.toMatchObject({
      code: "TOO_LARGE",
      message: expect.stringMatching(
        /reading .*: record batch 0: the data up to column `.+` has [\d.]+ KiB when it is unpacked, more than 0.5 KiB, which is one of 4 parts of engine.memory$/,
      ),
    });
  },
);
