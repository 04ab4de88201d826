import { layoutBatch } from "./layout.js";
import type { Block, Message } from "./messages.js";
import type { ArrowSchema } from "./schema.js";

/** What is known of a shard before its values are read. */
export interface ArrowIndex {
  readonly kind: "file" | "stream";
  /** The version of the metadata, counted from 0: of a stream's schema, or a file's footer. */
  readonly version: number;
  readonly sizeBytes: number;
  readonly schema: ArrowSchema;
  readonly batches: readonly IndexedBatch[];
  readonly dictionaries: readonly IndexedDictionary[];
  readonly rows: number;
  /** The size of the footer; for a stream, that of its messages without their bodies. */
  readonly footerBytes: number;
}

export interface IndexedBatch extends Block {
  /** The batch's number in the shard, from 0. */
  readonly number: number;
  /** The row of the shard that the batch begins with. */
  readonly rowStart: number;
  readonly rows: number;
  /** Whether its buffers are compressed, each as a whole. */
  readonly isCompressed: boolean;
  /** How many of the shard's dictionaries come before the batch: in a file all of them. */
  readonly dictionaries: number;
}

export interface IndexedDictionary extends Block {
  readonly id: number;
  readonly isDelta: boolean;
}

/** Takes the messages of a shard in order. @throws RangeError where one does not fit the schema */
export interface Numbering {
  /** Rows of the batches so far. */
  readonly rows: number;
  dictionary(block: Block, message: Message): IndexedDictionary;
  batch(block: Block, message: Message): IndexedBatch;
}

export function numberMessages(schema: ArrowSchema): Numbering {
  let dictionaries = 0;
  let batches = 0;
  let rows = 0;
  return {
    get rows() {
      return rows;
    },
    dictionary(block, { header }) {
      if (header.kind !== "dictionary") {
        throw new RangeError(`a ${header.kind} message where a dictionary is due`);
      }
      dictionaries += 1;
      return { ...block, id: header.id, isDelta: header.isDelta };
    },
    batch(block, { header, version }) {
      if (header.kind !== "batch") {
        throw new RangeError(`a ${header.kind} message where a batch is due`);
      }
      layoutBatch(schema, header.batch, { bodyBytes: block.bodyBytes, version });
      const { compression } = header.batch;
      const isCompressed = compression !== "none";
      const batch = { ...block, number: batches, rowStart: rows, rows: header.batch.rows, isCompressed, dictionaries };
      batches += 1;
      rows += batch.rows;
      return batch;
    },
  };
}
