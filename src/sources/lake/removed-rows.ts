/** Rows of a file that the table has removed: ascending numbers from 0. */
export type RemovedRows = Uint32Array;

/** Rows of a file, at most: Parquet readers number them with 32 bits here. */
const mostRows = 2 ** 32;
const noRunCookie = 12_346;
const runCookie = 12_347;
/** A container with more values than this is a bitmap. */
const mostInArray = 4096;
const containerValues = 65_536;

/** Magic numbers in front of a 64-bit roaring bitmap. */
const deltaMagic = 1_681_511_377;
const puffinMagic = 0xd1_d3_39_64;

/**
 * The rows that a deletion vector of Delta removes: what follows its length in a file, or is inline.
 * @param count how many these are
 * @throws RangeError where the bytes are not one
 * @see https://github.com/delta-io/delta/blob/master/PROTOCOL.md#deletion-vector-format
 */
export function rowsOfDelta(bytes: Buffer, count: number): RemovedRows {
  return guarded(bytes, (view) => {
    if (view.getUint32(0, true) !== deltaMagic) {
      throw new RangeError("it does not begin as a deletion vector");
    }
    return roaring64(view, 4, count);
  });
}

/**
 * The rows that a deletion vector of Iceberg removes: a blob of a Puffin file, with length, magic and CRC.
 * @param count how many these are
 * @throws RangeError where the bytes are not one
 * @see https://iceberg.apache.org/puffin-spec/#deletion-vector-v1-blob-type
 */
export function rowsOfPuffin(blob: Buffer, count: number): RemovedRows {
  return guarded(blob, (view) => {
    if (view.getUint32(0) !== blob.length - 8 || view.getUint32(4) !== puffinMagic) {
      throw new RangeError("it does not begin as a deletion vector");
    }
    return roaring64(view, 8, count);
  });
}

function guarded(bytes: Buffer, read: (view: DataView) => RemovedRows): RemovedRows {
  try {
    return read(new DataView(bytes.buffer, bytes.byteOffset, bytes.byteLength));
  } catch (error) {
    throw error instanceof RangeError ? new RangeError(`a deletion vector is damaged: ${error.message}`) : error;
  }
}

/** The portable form of 64-bit roaring bitmaps: https://github.com/RoaringBitmap/RoaringFormatSpec. */
function roaring64(view: DataView, start: number, due: number): RemovedRows {
  let at = start + 8;
  const bitmaps = view.getBigUint64(start, true);
  if (bitmaps > 1n) {
    throw new RangeError(`it has rows from ${mostRows} on`);
  }
  if (bitmaps === 0n) {
    return allOf(new Uint32Array(0), due);
  }
  if (view.getUint32(at, true) !== 0) {
    throw new RangeError(`it has rows from ${mostRows} on`);
  }
  at += 4;
  return allOf(roaring32(view, at, due), due);
}

function allOf(rows: RemovedRows, due: number): RemovedRows {
  if (rows.length !== due) {
    throw new RangeError(`it has ${rows.length} rows, ${due} are due`);
  }
  return rows;
}

function roaring32(view: DataView, start: number, due: number): RemovedRows {
  let at = start;
  const u16 = (): number => {
    at += 2;
    return view.getUint16(at - 2, true);
  };
  const u32 = (): number => {
    at += 4;
    return view.getUint32(at - 4, true);
  };

  const cookie = u32();
  const hasRuns = (cookie & 0xff_ff) === runCookie;
  if (!hasRuns && cookie !== noRunCookie) {
    throw new RangeError("its bitmap has an unknown form");
  }
  const containers = hasRuns ? (cookie >>> 16) + 1 : u32();
  if (containers > containerValues) {
    throw new RangeError(`its bitmap has ${containers} containers`);
  }
  const runsAt = at;
  at += hasRuns ? Math.ceil(containers / 8) : 0;
  const isRun = (index: number): boolean =>
    hasRuns && (view.getUint8(runsAt + (index >> 3)) & (1 << (index & 7))) !== 0;
  const heads = Array.from({ length: containers }, () => ({ key: u16(), count: u16() + 1 }));
  at += !hasRuns || containers >= 4 ? 4 * containers : 0; // where each container is: they follow each other

  const rows = new Uint32Array(due);
  let filled = 0;
  let last = -1;
  const put = (row: number): void => {
    if (row <= last || filled === rows.length) {
      throw new RangeError(`its rows are not in order, or more than ${due}`);
    }
    rows[filled] = row;
    filled += 1;
    last = row;
  };
  for (const [index, { key, count }] of heads.entries()) {
    const base = key * containerValues;
    if (isRun(index)) {
      for (let runs = u16(); runs > 0; runs -= 1) {
        const first = u16();
        const end = first + u16();
        for (let value = first; value <= end; value += 1) {
          put(base + value);
        }
      }
    } else if (count <= mostInArray) {
      for (let value = 0; value < count; value += 1) {
        put(base + u16());
      }
    } else {
      for (let byte = 0; byte < containerValues / 8; byte += 1) {
        const bits = view.getUint8(at + byte);
        for (let bit = 0; bits >> bit !== 0; bit += 1) {
          if (((bits >> bit) & 1) === 1) {
            put(base + byte * 8 + bit);
          }
        }
      }
      at += containerValues / 8;
    }
  }
  return rows.subarray(0, filled);
}

const z85Digits = "0123456789abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ.-:+=^!/*?&<>()[]{}@%$#";

/** Bytes that are written in Z85: https://rfc.zeromq.org/spec/32. @throws RangeError for another text */
export function unpackZ85(text: string): Buffer {
  const bytes = Buffer.alloc(Math.ceil(text.length / 5) * 4);
  for (let at = 0; at < text.length; at += 5) {
    let word = 0;
    for (const digit of text.slice(at, at + 5)) {
      word = word * 85 + z85Digits.indexOf(digit);
      if (!z85Digits.includes(digit)) {
        throw new RangeError(`${JSON.stringify(digit)} is no digit of Z85`);
      }
    }
    if (text.length - at < 5 || word >= mostRows) {
      throw new RangeError("a text is not in Z85");
    }
    bytes.writeUInt32BE(word, (at / 5) * 4);
  }
  return bytes;
}
