import { readBatchLayout } from "./batches.js";
import { unpackedBytes } from "./columns.js";
import { damageOf, type ShardBytes, openShards, type OpenArrow } from "./shards.js";
import { type BufferPlace, buffersOf } from "./metadata.js";
import { columnsOfArrow } from "./decoder.js";
import type { ShardColumn, ShardDetails } from "../format.js";

/**
 * Reads the facts about an Arrow file or stream from its metadata. No value is read. Record batches count as row
 * groups.
 * @param path absolute
 * @throws JobError SHARD_CORRUPT, SCHEMA_MISMATCH
 */
export async function inspectArrow(path: string): Promise<ShardDetails> {
  await using shard = await openShards()({ path, name: path });
  const { bytes, index } = shard;
  const rows = index.batches.map((batch) => batch.rows);
  return {
    path,
    rows: index.rows,
    rowGroups: rows.length,
    sizeBytes: bytes.sizeBytes,
    footerBytes: index.footerBytes,
    createdBy: null,
    formatVersion: index.version + 1,
    rowGroupRows: rows.length === 0 ? null : { min: least(rows), max: -least(rows.map((count) => -count)) },
    metadataKeys: index.schema.metadataKeys,
    columns: await columnFacts(shard),
  };
}

function least(values: readonly number[]): number {
  return values.reduce((one, other) => Math.min(one, other), Number.POSITIVE_INFINITY);
}

interface Facts {
  nulls: number | null;
  compressedBytes: number;
  uncompressedBytes: number;
}

async function columnFacts({ bytes, index }: OpenArrow): Promise<ShardColumn[]> {
  const columns = columnsOfArrow(bytes.file.path, index);
  const facts = columns.map((): Facts => ({ nulls: 0, compressedBytes: 0, uncompressedBytes: 0 }));
  const codecs = new Set<string>();
  for (const [number, batch] of index.batches.entries()) {
    try {
      const { header, nodes } = await readBatchLayout(bytes, index, batch);
      codecs.add(header.compression === "none" ? "uncompressed" : header.compression);
      for (const [place, node] of nodes.entries()) {
        const fact = facts[place];
        if (fact === undefined) {
          continue;
        }
        // All are NULL in a column of that type, whether or not it counts them.
        const nulls = node.field.type.kind === "null" ? node.length : node.nulls;
        fact.nulls = fact.nulls === null || nulls < 0 ? null : fact.nulls + nulls;
        for (const buffer of buffersOf([node])) {
          fact.compressedBytes += buffer.bytes;
          fact.uncompressedBytes +=
            header.compression === "none"
              ? buffer.bytes
              : await sizeOf(bytes, batch.offset + batch.metadataBytes, buffer);
        }
      }
    } catch (error) {
      throw damageOf(error, bytes.file.path, `record batch ${number}`);
    }
  }
  return columns.map(({ name, sourceType: type }, place) => {
    const { nulls = null, compressedBytes = 0, uncompressedBytes = 0 } = facts[place] ?? {};
    return { name, type, codecs: [...codecs].toSorted(), nulls, compressedBytes, uncompressedBytes };
  });
}

const lengthBytes = 8;

async function sizeOf(bytes: ShardBytes, bodyStart: number, { offset, bytes: length }: BufferPlace): Promise<number> {
  if (length < lengthBytes) {
    return length;
  }
  const start = bodyStart + offset;
  const unpacked = unpackedBytes(await bytes.read(start, start + lengthBytes));
  return unpacked === -1 ? length - lengthBytes : unpacked;
}
