import { join } from "node:path";
import { readFile } from "node:fs/promises";
import { describe, expect, test } from "vitest";
import { mebibytes, memoryBudget } from "#src/base/memory-budget.js";
import { openArrowPipe } from "#src/formats/arrow/pipe.js";
import { projectFolder } from "../../../support/cli.js";
import { refusalOf } from "../../../support/faulty.js";
import { endMarker, schemaBytes } from "../../../support/pipe.js";

const written = join(projectFolder, "fixtures/arrow");

async function readAll(...chunks: readonly Uint8Array[]): Promise<number> {
  const given = (async function* () {
    yield* await Promise.resolve(chunks);
  })();
  const pipe = openArrowPipe({ name: "stdin", chunks: given, memory: memoryBudget(mebibytes(512)), close() {} });
  let rows = 0;
  for await (const batch of pipe.batches()) {
    rows += batch.rowEnd - batch.rowStart;
    batch.release();
  }
  return rows;
}

describe("a stream that is not what it should be", () => {
  const cases: readonly (readonly [string, (bytes: Buffer) => Buffer, RegExp])[] = [
    ["nothing at all", () => Buffer.alloc(0), /nothing came, not even a schema\nhint: write an Arrow IPC stream/],
    [
      "two streams",
      (bytes) => Buffer.concat([bytes, bytes]),
      /bytes follow its end-of-stream marker, which is at byte/,
    ],
    ["Parquet", () => Buffer.from("PAR1 and so on"), /it is Parquet, not an Arrow stream/],
    ["an Arrow file", () => Buffer.from("ARROW1\0\0 and so on"), /it is an Arrow file, not an Arrow stream/],
    ["text", () => Buffer.from("id,x\n1,2\n"), /it is no Arrow stream/],
    ["an end and no schema", () => endMarker, /an end without a schema/],
    ["batches before the schema", (bytes) => bytes.subarray(schemaBytes(bytes)), /a message before the schema/],
    ["two schemas", (bytes) => Buffer.concat([bytes.subarray(0, schemaBytes(bytes)), bytes]), /a second schema/],
    [
      "a body that no memory holds",
      (bytes) => withBody(bytes, 2n ** 40n),
      /its dictionary message has 1 TiB when it is unpacked, more than 256 MiB/,
    ],
  ];

  test.each(cases)("%s", async (_, damage, says) => {
    const said = await refusalOf(readAll(damage(await readFile(join(written, "plain.arrows")))));

    expect(said).toMatch(/^65 (SHARD_CORRUPT|TOO_LARGE)\nreading stdin: /);
    expect(said).toMatch(says);
  });

  test("wherever it is cut off", async () => {
    const stream = await readFile(join(written, "deltas.arrows"));

    expect(await readAll(stream.subarray(0, 700), stream.subarray(700))).toBe(12);
    for (let bytes = 0; bytes < stream.length; bytes += 1) {
      expect(await refusalOf(readAll(stream.subarray(0, bytes)))).toMatch(/^65 SHARD_CORRUPT\nreading stdin: /);
    }
  });
});

function withBody(stream: Buffer, bytes: bigint): Buffer {
  const start = schemaBytes(stream);
  const message = stream.subarray(start + 8);
  const table = message.readUInt32LE(0);
  const vtable = table - message.readInt32LE(table);
  const changed = Buffer.from(stream);
  changed.writeBigInt64LE(bytes, start + 8 + table + message.readUInt16LE(vtable + 4 + 3 * 2));
  return changed;
}
