/** CRC-32C, bit by bit. */
export function crc32c(bytes: Buffer): number {
  let value = 0xffff_ffff;
  for (const byte of bytes) {
    value ^= byte;
    for (let bit = 0; bit < 8; bit += 1) {
      value = (value & 1) === 0 ? value >>> 1 : (value >>> 1) ^ 0x82f6_3b78;
    }
  }
  return ~value >>> 0;
}

interface Made {
  readonly base: number;
  readonly values: readonly string[];
  /** When its records were made, in milliseconds since 1970. */
  readonly timeMs?: number;
  readonly producer?: number;
  /** 16: of a transaction; 32: a marker. */
  readonly attributes?: number;
  /** Offsets after the last record that the batch had before it was compacted. */
  readonly gone?: number;
  /** Makes the batch one that no broker sends. */
  readonly spoil?: (checked: Buffer) => void;
}

/** A record batch of Kafka, with keys "k1". */
export function batch({ base, values, timeMs = 1000, producer = -1, attributes = 0, gone = 0, spoil }: Made): Buffer {
  const small = (value: number): number => value * 2; // a varint of up to 63
  const records = values.map((value, index) => {
    const body = [0, small(0), small(index), small(2), 0x6b, 0x31, small(value.length), ...Buffer.from(value), 0];
    return Buffer.from([small(body.length), ...body]);
  });
  const rest = Buffer.alloc(40);
  rest.writeInt16BE(attributes, 0);
  rest.writeInt32BE(values.length - 1 + gone, 2);
  rest.writeBigInt64BE(BigInt(timeMs), 6);
  rest.writeBigInt64BE(BigInt(producer), 22);
  rest.writeInt32BE(values.length, 36);
  const checked = Buffer.concat([rest, ...records]);
  spoil?.(checked);
  const head = Buffer.alloc(21);
  head.writeBigInt64BE(BigInt(base), 0);
  head.writeInt32BE(9 + checked.length, 8);
  head.writeInt8(2, 16);
  head.writeUInt32BE(crc32c(checked), 17);
  return Buffer.concat([head, checked]);
}
