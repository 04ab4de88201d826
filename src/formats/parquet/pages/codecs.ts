import { gunzipSync } from "node:zlib";
import { unpackSnappy } from "../../codecs/snappy.js";
import { nativeZstd } from "../../codecs/zstd.js";
import { messageOf } from "../../../util/errors.js";

/** By the numbers of parquet.thrift. */
export const codecs = { none: 0, snappy: 1, gzip: 2, brotli: 4, zstd: 6, lz4Raw: 7 };

/** Whether pages of this codec are unpacked here about as fast as DuckDB does it. */
export function isUnpacked(codec: number): boolean {
  return codec === codecs.zstd ? nativeZstd !== undefined : [codecs.none, codecs.snappy, codecs.gzip].includes(codec);
}

/** Fills exactly `target`. @throws RangeError where that is not what comes */
export function unpack(codec: number, packed: Uint8Array, target: Uint8Array): void {
  if (codec === codecs.snappy) {
    unpackSnappy(packed, target);
    return;
  }
  const unpacked = unpackByNode(codec, packed, Math.max(1, target.length));
  if (unpacked?.length !== target.length) {
    throw new RangeError(`${unpacked?.length} bytes, ${target.length} are due`);
  }
  target.set(unpacked);
}

function unpackByNode(codec: number, packed: Uint8Array, maxOutputLength: number): Uint8Array | undefined {
  try {
    return codec === codecs.zstd ? nativeZstd?.(packed, { maxOutputLength }) : gunzipSync(packed, { maxOutputLength });
  } catch (error) {
    throw new RangeError(`a page of codec ${codec} is damaged: ${messageOf(error)}`, { cause: error });
  }
}
