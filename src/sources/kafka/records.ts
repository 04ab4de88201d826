import type { FetchedRecords } from "./cluster.js";

/* Record batches of version 2: https://kafka.apache.org/documentation/#recordbatch */

/** Takes the committed records, in the order of their offsets. Bytes [keyStart, keyEnd) are the key, and so on; -1: null. Headers end at `end`. */
export interface RecordVisitor {
  /** Returns whether it has as many that they should be taken from it before others come. */
  record(
    bytes: Buffer,
    offset: number,
    timestampMs: number,
    keyStart: number,
    keyEnd: number,
    valueStart: number,
    valueEnd: number,
    end: number,
  ): boolean;
}

export type Codec = "gzip" | "snappy" | "lz4" | "zstd";

/** Unpacks what a batch holds, of at most so many bytes. @throws RangeError where it is damaged, or has more */
export type Unpack = (codec: Codec, packed: Buffer, mostBytes: number) => Uint8Array;

const codecs: readonly (Codec | undefined)[] = [undefined, "gzip", "snappy", "lz4", "zstd"];
const headBytes = 61;
const mostBatchBytes = 256 * 1024 * 1024;

const attribute = { codec: 7, appendTime: 8, transactional: 16, control: 32 } as const;
/** The type of a control record that ends an aborted transaction. */
const abortMarker = 0;

/**
 * Visits the committed records of offsets from `from` up to `to`; those of aborted transactions and control records are
 * passed over. Yields the offset that it has reached after each whole batch, of which one at a time is unpacked, and where
 * the visitor has many records.
 * @throws RangeError for bytes that are damaged
 */
export function* visitRecords(
  { records = Buffer.alloc(0), aborted }: FetchedRecords,
  { from, to, unpack }: { readonly from: number; readonly to: number; readonly unpack: Unpack },
  visitor: RecordVisitor,
): Generator<number> {
  const starts = aborted.toSorted((one, other) => one.first - other.first);
  const undone = new Set<bigint>();
  let next = from;
  for (let at = 0; at + headBytes <= records.length && next < to; ) {
    const base = Number(records.readBigInt64BE(at));
    const end = at + 12 + records.readInt32BE(at + 8);
    if (end > records.length) {
      break;
    }
    if (records[at + 16] !== 2) {
      throw new RangeError(
        `the records from offset ${base} on are of format ${records[at + 16]}, older than Kafka 0.11`,
      );
    }
    if (end < at + headBytes) {
      throw new RangeError(`the records from offset ${base} on are in a batch of ${end - at} bytes`);
    }
    if (crc32c(records, at + 21, end) !== records.readUInt32BE(at + 17)) {
      throw new RangeError(`the records from offset ${base} on do not match their checksum`);
    }
    const attributes = records.readInt16BE(at + 21);
    const last = base + records.readInt32BE(at + 23);
    const producer = records.readBigInt64BE(at + 43);
    for (; starts[0] !== undefined && starts[0].first <= last; starts.shift()) {
      undone.add(starts[0].producer);
    }
    if ((attributes & attribute.control) !== 0) {
      // A marker that was compacted has no record.
      if (end > at + headBytes && controlType(records.subarray(at + headBytes, end)) === abortMarker) {
        undone.delete(producer);
      }
    } else if ((attributes & attribute.transactional) === 0 || !undone.has(producer)) {
      const codec = codecs[attributes & attribute.codec];
      if (codec === undefined && (attributes & attribute.codec) !== 0) {
        throw new RangeError(`the records from offset ${base} on are packed by codec ${attributes & attribute.codec}`);
      }
      const packed = records.subarray(at + headBytes, end);
      const body = codec === undefined ? packed : asBuffer(unpack(codec, packed, mostBatchBytes));
      const appended = (attributes & attribute.appendTime) !== 0;
      yield* visitBatch(body, visitor, {
        count: records.readInt32BE(at + 57),
        base,
        last,
        firstMs: Number(records.readBigInt64BE(at + 27)),
        appendedMs: appended ? Number(records.readBigInt64BE(at + 35)) : undefined,
        from: next,
        to,
      });
    }
    next = Math.max(next, last + 1);
    yield next;
    at = end;
  }
}

function asBuffer(bytes: Uint8Array): Buffer {
  return Buffer.from(bytes.buffer, bytes.byteOffset, bytes.byteLength);
}

interface BatchPlace {
  readonly count: number;
  readonly base: number;
  readonly last: number;
  readonly firstMs: number;
  /** When the broker took the batch, where the topic has such times. */
  readonly appendedMs: number | undefined;
  readonly from: number;
  readonly to: number;
}

function* visitBatch(
  body: Buffer,
  visitor: RecordVisitor,
  { count, base, last, firstMs, appendedMs, from, to }: BatchPlace,
): Generator<number> {
  let at = 0;
  let due = base;
  const varint = (): number => {
    let value = 0;
    let factor = 1;
    for (;;) {
      const byte = body[at] as number;
      at += 1;
      value += (byte & 127) * factor;
      if (!(byte >= 128)) {
        // beyond the last byte, too
        return value % 2 === 1 ? -(value + 1) / 2 : value / 2;
      }
      factor *= 128;
    }
  };
  for (let index = 0; index < count; index += 1) {
    const length = varint();
    const end = at + length;
    if (!(length > 0 && end <= body.length)) {
      throw new RangeError(`record ${index} of the ${count} from offset ${base} on reaches outside of its batch`);
    }
    at += 1;
    const timestampMs = varint() + firstMs;
    const offset = base + varint();
    if (!(offset >= due && offset <= last)) {
      throw new RangeError(`the record of offset ${offset} is not in order`);
    }
    due = offset + 1;
    const keyLength = varint();
    const keyStart = keyLength < 0 ? -1 : at;
    at += Math.max(0, keyLength);
    const keyEnd = at;
    const valueLength = varint();
    const valueStart = valueLength < 0 ? -1 : at;
    at += Math.max(0, valueLength);
    if (!(at <= end)) {
      throw new RangeError(`the record of offset ${offset} is shorter than its key and value`);
    }
    const isWanted = offset >= from && offset < to;
    if (isWanted && visitor.record(body, offset, appendedMs ?? timestampMs, keyStart, keyEnd, valueStart, at, end)) {
      yield due;
    }
    at = end;
  }
  if (at < body.length) {
    throw new RangeError(`the batch from offset ${base} on has more than ${Math.max(0, count)} records`);
  }
}

/** The type of the record of a control batch, which its key has after a version. */
function controlType(body: Buffer): number {
  let at = 0;
  const skip = (): void => {
    while ((body[at] as number) >= 128) {
      at += 1;
    }
    at += 1;
  };
  skip(); // its length
  at += 1; // its attributes
  skip(); // its time
  skip(); // its offset
  skip(); // the length of its key
  return body.readInt16BE(at + 2);
}

/** Tables of CRC-32C (RFC 3720), for eight bytes at once. */
const [t0, t1, t2, t3, t4, t5, t6, t7] = crcTables();

type Tables = [Int32Array, Int32Array, Int32Array, Int32Array, Int32Array, Int32Array, Int32Array, Int32Array];

function crcTables(): Tables {
  const first = new Int32Array(256);
  for (let byte = 0; byte < 256; byte += 1) {
    let value = byte;
    for (let bit = 0; bit < 8; bit += 1) {
      value = (value & 1) === 0 ? value >>> 1 : (value >>> 1) ^ 0x82f6_3b78;
    }
    first[byte] = value;
  }
  const all = [first];
  for (let table = 1; table < 8; table += 1) {
    const before = all[table - 1] as Int32Array;
    all.push(before.map((value) => (value >>> 8) ^ (first[value & 255] as number)));
  }
  return all as Tables;
}

function crc32c(bytes: Buffer, start: number, end: number): number {
  let value = -1;
  let at = start;
  for (; at + 8 <= end; at += 8) {
    value ^= wordAt(bytes, at);
    const next = wordAt(bytes, at + 4);
    value =
      (t7[value & 255] as number) ^
      (t6[(value >>> 8) & 255] as number) ^
      (t5[(value >>> 16) & 255] as number) ^
      (t4[value >>> 24] as number) ^
      (t3[next & 255] as number) ^
      (t2[(next >>> 8) & 255] as number) ^
      (t1[(next >>> 16) & 255] as number) ^
      (t0[next >>> 24] as number);
  }
  for (; at < end; at += 1) {
    value = (t0[(value ^ (bytes[at] as number)) & 255] as number) ^ (value >>> 8);
  }
  return ~value >>> 0;
}

function wordAt(bytes: Buffer, at: number): number {
  return (
    (bytes[at] as number) |
    ((bytes[at + 1] as number) << 8) |
    ((bytes[at + 2] as number) << 16) |
    ((bytes[at + 3] as number) << 24)
  );
}
