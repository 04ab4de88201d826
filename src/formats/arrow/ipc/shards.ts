import { corruptArrow, openBytes, type ShardBytes } from "./bytes.js";
import type { DictionaryCache } from "../columns/dictionaries.js";
import { readIndex } from "./index-shard.js";
import type { Claim } from "../../by-format.js";
import type { ArrowIndex } from "./numbering.js";
import type { ShardFile, SliceRequest } from "../../port.js";

export interface OpenArrow extends AsyncDisposable {
  readonly bytes: ShardBytes;
  readonly index: ArrowIndex;
  /** Where the shard is one of many that share their dictionaries. */
  readonly known?: DictionaryCache | undefined;
}

export function checkEnd({ file, rowEnd }: SliceRequest, reached: number): void {
  if (reached !== rowEnd) {
    throw corruptArrow(file.path, `its rows end with row ${reached}, ${rowEnd} were planned`);
  }
}

/** Shards whose index is kept: those that are read now, and next. */
const indexesKept = 32;

/** Opens shards; the index of one that was opened before is not read again. */
export function openShards(
  claimOf: (name: string) => Claim,
  open: (file: ShardFile) => Promise<ShardBytes> = openBytes,
): (file: ShardFile) => Promise<OpenArrow> {
  const known = new Map<string, Promise<ArrowIndex>>();
  return async (file) => {
    const bytes = await open(file);
    const key = `${bytes.sizeBytes} ${file.name}`;
    const index = known.get(key) ?? readIndex(bytes, claimOf(file.name));
    known.delete(key);
    known.set(key, index); // the last one that was used comes last
    for (const oldest of known.keys()) {
      if (known.size <= indexesKept) {
        break;
      }
      known.delete(oldest);
    }
    try {
      return { bytes, index: await index, [Symbol.asyncDispose]: () => bytes[Symbol.asyncDispose]() };
    } catch (error) {
      known.delete(key);
      await bytes[Symbol.asyncDispose]();
      throw error;
    }
  };
}
