import { gunzipSync } from "node:zlib";
import { unpackSnappy } from "../../codecs/snappy.js";
import { isZstdNative, unpackZstd } from "../../codecs/zstd.js";
import { messageOf } from "../../../util/errors.js";

/** Codecs by the numbers of parquet.thrift. */
export const codecs = { none: 0, snappy: 1, gzip: 2, brotli: 4, zstd: 6, lz4Raw: 7 };

/**
 * Whether pages of this codec are unpacked here about as fast as DuckDB does it.
 * @param isLong the row group has long values: DuckDB would hold 2,048 of them at once, so that a slower codec is fine
 */
export function isUnpacked(codec: number, { isLong = false } = {}): boolean {
  return codec === codecs.zstd ? isZstdNative || isLong : [codecs.none, codecs.snappy, codecs.gzip].includes(codec);
}

/** Fills exactly `target`. @throws RangeError where that is not what comes */
export function unpack(codec: number, packed: Uint8Array, target: Uint8Array): void {
  if (codec === codecs.snappy) {
    unpackSnappy(packed, target);
  } else {
    target.set(unpackIntoNew(codec, packed, target.length));
  }
}

/** Unpacks a page of any codec but Snappy into memory of its own. @throws RangeError unless it has `length` bytes */
export function unpackIntoNew(codec: number, packed: Uint8Array, length: number): Uint8Array<ArrayBuffer> {
  return codec === codecs.zstd ? unpackZstd(packed, length) : unpackGzip(packed, length);
}

function unpackGzip(packed: Uint8Array, length: number): Uint8Array<ArrayBuffer> {
  try {
    const found = gunzipSync(packed, { maxOutputLength: Math.max(1, length) });
    if (found.length !== length) {
      throw new RangeError(`${found.length} bytes, ${length} are due`);
    }
    return found;
  } catch (error) {
    throw new RangeError(`a gzip page is damaged: ${messageOf(error)}`, { cause: error });
  }
}
