import { createColumnBuilder } from "../../../columnar/column-builder.js";
import type { Column } from "../../../columnar/types.js";
import { inBatch, openBody } from "../ipc/body.js";
import { corruptArrow, type ShardBytes } from "../ipc/bytes.js";
import { readArrowColumn } from "./columns.js";
import type { BatchReader } from "./flat.js";
import type { ArrowIndex, IndexedBatch, IndexedDictionary } from "../ipc/numbering.js";
import { layoutBatch } from "../ipc/layout.js";
import { readMessage, readPrefix } from "../ipc/messages.js";
import type { ArrowField } from "../ipc/schema.js";
import { rowsOf } from "../../../columnar/column-rows.js";
import { columnTypeOf, showField } from "./types.js";

/** The dictionaries of one shard, read when a batch needs them and kept for those after it. */
export interface Dictionaries {
  /** Reads the dictionaries that these columns of a batch use. */
  of(batch: IndexedBatch, fields: readonly ArrowField[]): Promise<BatchReader["dictionary"]>;
}

/** The dictionaries that were read before, by number and type of their values. */
export type DictionaryCache = Map<string, CachedDictionary>;

interface CachedDictionary {
  readonly blocks: readonly IndexedDictionary[];
  readonly column: Column;
}

export function openDictionaries(
  bytes: ShardBytes,
  index: ArrowIndex,
  known: DictionaryCache = new Map(),
): Dictionaries {
  const { path } = bytes.file;
  return {
    async of(batch, fields) {
      const columns = new Map<number, Column>();
      const dictionary = (id: number): Column => {
        const column = columns.get(id);
        if (column === undefined) {
          throw new RangeError(`there is no dictionary ${id}`);
        }
        return column;
      };
      for (const field of fields.flatMap(encodedFields)) {
        const id = field.dictionary?.id ?? 0;
        const blocks = dictionaryBlocks(index, batch, id);
        if (blocks.length === 0) {
          throw corruptArrow(
            path,
            `column ${field.name} has no dictionary: none of number ${id} comes before its rows`,
          );
        }
        const values: ArrowField = { ...field, dictionary: undefined };
        const key = `${id} ${showField(values)}`;
        const now = await extended(known.get(key), blocks, (block) =>
          inBatch(path, `dictionary ${id}`, () => readDictionary(bytes, { block, values, dictionary })),
        )(values);
        known.set(key, now);
        columns.set(id, now.column);
      }
      return dictionary;
    },
  };
}

/** Fields with dictionaries, those inside others first. */
export function encodedFields(field: ArrowField): ArrowField[] {
  return [...field.children.flatMap(encodedFields), ...(field.dictionary === undefined ? [] : [field])];
}

/**
 * What makes a dictionary for a batch: in a stream the last whole one before it and its deltas, in a file the only
 * whole one and its deltas, at any place of the file.
 */
export function dictionaryBlocks(
  { dictionaries, kind }: Pick<ArrowIndex, "dictionaries" | "kind">,
  batch: Pick<IndexedBatch, "dictionaries">,
  id: number,
): IndexedDictionary[] {
  const all = dictionaries.slice(0, batch.dictionaries).filter((block) => block.id === id);
  if (kind === "file") {
    return all.toSorted((one, other) => Number(one.isDelta) - Number(other.isDelta));
  }
  return all.slice(
    Math.max(
      0,
      all.findLastIndex(({ isDelta }) => !isDelta),
    ),
  );
}

/** Reads only what was not there before. */
function extended(
  known: CachedDictionary | undefined,
  blocks: readonly IndexedDictionary[],
  read: (block: IndexedDictionary) => Promise<Column>,
): (values: ArrowField) => Promise<CachedDictionary> {
  return async (values) => {
    const continues = known?.blocks.every((block, index) => block === blocks[index]) === true;
    const start = continues ? (known?.blocks.length ?? 0) : 0;
    const columns = continues && known !== undefined ? [known.column] : [];
    for (const block of blocks.slice(start)) {
      columns.push(await read(block));
    }
    const [first, ...others] = columns;
    if (first === undefined) {
      throw new Error("a dictionary without blocks");
    }
    return { blocks, column: others.length === 0 ? first : joined(values, columns) };
  };
}

function joined(values: ArrowField, columns: readonly Column[]): Column {
  const type = columnTypeOf(values);
  if (type === undefined) {
    throw new TypeError("a dictionary of such values is refused when a job is planned");
  }
  const builder = createColumnBuilder(
    type,
    columns.reduce((sum, column) => sum + rowsOf(column), 0),
  );
  for (const column of columns) {
    builder.append(column, 0, rowsOf(column));
  }
  return builder.finish();
}

async function readDictionary(
  bytes: ShardBytes,
  { block, values, dictionary }: { block: IndexedDictionary; values: ArrowField } & Pick<BatchReader, "dictionary">,
): Promise<Column> {
  const { offset, metadataBytes, bodyBytes } = block;
  const metadata = await bytes.read(offset, offset + metadataBytes);
  const { header, version } = readMessage(metadata.subarray(readPrefix(metadata).prefixBytes));
  if (header.kind !== "dictionary") {
    throw new RangeError("it is no longer a dictionary");
  }
  const [node] = layoutBatch({ fields: [values] }, header.batch, { bodyBytes, version });
  if (node === undefined) {
    throw new RangeError("it has no values");
  }
  const body = openBody(bytes, block, { header: header.batch });
  return await readArrowColumn({ body, dictionary }, node, { from: 0, to: node.length });
}
