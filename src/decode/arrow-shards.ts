import { openBytes } from "./arrow-bytes.js";
import { type Claim, readIndex } from "./arrow-index.js";
import type { ArrowIndex } from "./arrow-numbering.js";
import type { OpenArrow } from "./arrow-tables.js";
import type { ShardFile } from "./port.js";

/** Shards whose index is kept: those that are read now, and next. */
const indexesKept = 32;

/** Opens shards; the index of one that was opened before is not read again. */
export function openShards(claimOf: (name: string) => Claim): (file: ShardFile) => Promise<OpenArrow> {
  const known = new Map<string, Promise<ArrowIndex>>();
  return async (file) => {
    const bytes = await openBytes(file);
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
