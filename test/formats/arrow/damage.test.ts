import { readFileSync } from "node:fs";
import { writeFile } from "node:fs/promises";
import { join } from "node:path";
import { describe, expect, test } from "vitest";
import { JobError } from "#src/base/errors.js";
import { openBody } from "#src/formats/arrow/columns.js";
import { arrowFooters, verifyArrow } from "#src/formats/arrow/decoder.js";
import { openBytes, openBytesHere, openShards, type ShardBytes } from "#src/formats/arrow/shards.js";
import { unpackLz4 } from "#src/formats/codecs.js";
import { projectFolder } from "../../support/cli.js";
import { scratch } from "../../support/job.js";
import { torture } from "../../support/torture.js";

function randomFrom(seed: number): () => number {
  let state = seed;
  return () => {
    state = (Math.imul(state, 1_664_525) + 1_013_904_223) >>> 0;
    return state / 2 ** 32;
  };
}

async function readAll(path: string): Promise<string> {
  const file = { path, name: path };
  const open = openShards();
  try {
    let rows = 0;
    for await (const footer of arrowFooters([file], open)) {
      ({ rows } = footer);
    }
    await verifyArrow(file, open, new AbortController().signal);
    return `read ${rows}`;
  } catch (error) {
    if (error instanceof JobError) {
      return error.code;
    }
    throw error;
  }
}

describe("a damaged Arrow shard is read or refused, for any damage", () => {
  test.each(["plain.arrow", "lz4.arrow", "zstd.arrows", "deltas.arrows", "deltas.arrow"])("%s", async (name) => {
    const good = readFileSync(join(projectFolder, "fixtures/arrow", name));
    const random = randomFrom(7);
    const endings = new Map<string, number>();
    const path = join(scratch.path, name);
    for (let round = 0; round < (torture ? 3000 : 150); round += 1) {
      const bytes = Buffer.from(good);
      const kind = Math.floor(random() * 3);
      const at = Math.floor(random() * bytes.length);
      if (kind === 0) {
        bytes[at] = (bytes[at] ?? 0) ^ (1 << Math.floor(random() * 8));
      } else if (kind === 1) {
        bytes.fill(random() < 0.5 ? 0xff : 0, at, Math.min(bytes.length, at + 1 + Math.floor(random() * 16)));
      }
      await writeFile(path, kind === 2 ? bytes.subarray(0, at) : bytes);
      const ending = await readAll(path);
      endings.set(ending, (endings.get(ending) ?? 0) + 1);
      expect(kind === 2 ? ending : "SHARD_CORRUPT", `cut at byte ${at}`).toBe("SHARD_CORRUPT");
    }
    const rows = await (async () => {
      await writeFile(path, good);
      return await readAll(path);
    })();
    expect([...endings.keys()].filter((key) => !["SHARD_CORRUPT", "SCHEMA_MISMATCH", rows].includes(key))).toEqual([]);
    expect(endings.get("SHARD_CORRUPT")).toBeGreaterThan(20);
  });
});

test("a footer that has lost its record batches is refused, not taken for a file without rows", async () => {
  const bytes = readFileSync(join(projectFolder, "fixtures/arrow/deltas.arrow"));
  const footer = bytes.length - 10 - bytes.readInt32LE(bytes.length - 10);
  const table = footer + bytes.readUInt32LE(footer);
  const batchesSlot = table - bytes.readInt32LE(table) + 4 + 3 * 2; // the vtable's entry of field 3
  expect(bytes.readUInt16LE(batchesSlot)).toBeGreaterThan(0);
  bytes.writeUInt16LE(0, batchesSlot);
  const path = join(scratch.path, "a.arrow");
  await writeFile(path, bytes);

  expect(await readAll(path)).toBe("SHARD_CORRUPT");
});

function frame(...block: number[]): Uint8Array {
  return Uint8Array.from([0x04, 0x22, 0x4d, 0x18, 0x60, 0x40, 0x82, block.length, 0, 0, 0, ...block, 0, 0, 0, 0]);
}

test("unpacks literals and matches that reach into what they make", () => {
  const target = new Uint8Array(40);
  // "ab", then 34 bytes from 2 back, then "wxyz" as the last literals.
  unpackLz4(frame(0x2f, 97, 98, 2, 0, 15, 0x40, 119, 120, 121, 122), target);
  expect(Buffer.from(target).toString()).toBe(`${"ab".repeat(18)}wxyz`);
});

test.each([
  ["a match before the beginning", [0x20, 97, 98, 3, 0, 0x10, 99]],
  ["a match of distance 0", [0x20, 97, 98, 0, 0, 0x10, 99]],
  ["literals beyond the block", [0x50, 97, 98]],
  ["more than is due", [0xf0, 200, ...Array.from({ length: 215 }, () => 1)]],
  ["less than is due", [0x20, 97, 98]],
  ["a length without an end", [0xf0, 255, 255]],
])("LZ4 refuses %s", (_, block) => {
  expect(() => {
    unpackLz4(frame(...block), new Uint8Array(40));
  }).toThrow(RangeError);
});

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

test.each([
  ["by Node's threads", openBytes],
  ["by this one", openBytesHere],
])("a file that has disappeared when it is read %s is reported, not waited for", async (_, open) => {
  const path = join(scratch.path, "a.arrow");
  await writeFile(path, "0123456789");
  await using bytes = await open({ path, name: path });

  expect(Buffer.from(await bytes.read(2, 6)).toString()).toBe("2345");
  const lent = new Uint8Array(8);
  expect((await bytes.read(2, 6, lent)).buffer).toBe(lent.buffer);
  await expect(async () => await bytes.read(8, 14)).rejects.toThrow("it ends at byte 10, where 4 more are due");
});
