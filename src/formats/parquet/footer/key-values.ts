import { open } from "node:fs/promises";
import { type Cursor, readBinary, readInner, readList, readStruct } from "../../../util/thrift.js";
import { messageOf } from "../../../util/errors.js";
import { rewriteShard } from "../../error-hints.js";
import type { ShardFile } from "../../port.js";
import { corruptFooter, readTail } from "./tail.js";

/** Reads the key-value metadata of a Parquet file: texts that its writer has put there. @throws JobError SHARD_CORRUPT */
export async function readKeyValues(file: Pick<ShardFile, "path" | "remote">): Promise<ReadonlyMap<string, string>> {
  await using handle = await open(file.path);
  const { size } = await handle.stat();
  const { bytes } = await readTail(handle, size, file);
  const cursor: Cursor = { bytes, at: 0 };
  const found = new Map<string, string>();
  try {
    readStruct(cursor, (id, type) => {
      if (id === 5) {
        readList(cursor, type, (inner) => {
          readEntry(cursor, inner, found);
        });
      }
      return id === 5;
    });
  } catch (error) {
    throw corruptFooter(file.path, `its metadata is damaged (${messageOf(error)})`, rewriteShard, error);
  }
  return found;
}

function readEntry(cursor: Cursor, type: number, found: Map<string, string>): void {
  const entry = { key: "", value: "" };
  readInner(cursor, type, (id, inner) => {
    const field = id === 1 ? "key" : id === 2 ? "value" : undefined;
    if (field !== undefined) {
      entry[field] = Buffer.from(readBinary(cursor, inner)).toString();
    }
    return field !== undefined;
  });
  found.set(entry.key, entry.value);
}
