import { expect, test } from "vitest";
import { openBody } from "#src/formats/arrow/columns.js";
import type { ShardBytes } from "#src/formats/arrow/shards.js";

/** Length -1: what follows is not compressed after all, and is kept as it lies there. */
const buffers = Buffer.concat([1, 2].flatMap((fill) => [Buffer.alloc(8, 0xff), Buffer.alloc(64, fill)]));
const block = { offset: 0, metadataBytes: 0, bodyBytes: buffers.length };

function shardOf(bytes: Buffer): ShardBytes {
  return {
    file: { path: "a.arrow", name: "a.arrow" },
    sizeBytes: bytes.length,
    read(start, end, lent) {
      const target = lent ?? new Uint8Array(end - start);
      target.set(bytes.subarray(start, end));
      return Promise.resolve(target.subarray(0, end - start));
    },
    [Symbol.asyncDispose]: () => Promise.resolve(),
  };
}

test.each(["lz4", "zstd"] as const)("nothing is lent to buffers of %s, which are kept", async (compression) => {
  const memory = new Uint8Array(1024);
  const body = await openBody(shardOf(buffers), block, { compression, lend: () => memory });
  const [first, second] = [
    { offset: 0, bytes: 72 },
    { offset: 72, bytes: 72 },
  ] as const;
  const start = await body.read(first, 0, 32);
  await body.read(second, 0, 64);
  const [before, rest] = [start.slice(), await body.read(first, 32, 64)];
  expect([...before, ...rest]).toEqual(Array.from({ length: 64 }, () => 1));
  expect(memory.every((byte) => byte === 0)).toBe(true);
});
