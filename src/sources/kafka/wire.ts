/* The primitive types of Kafka's protocol: https://kafka.apache.org/protocol. "Compact" ones belong to flexible versions. */

/** Builds the body of a request. */
export class RequestBody {
  readonly #chunks: Buffer[] = [];

  #number(bytes: number, write: (chunk: Buffer) => void): this {
    const chunk = Buffer.allocUnsafe(bytes);
    write(chunk);
    return this.raw(chunk);
  }
  raw(bytes: Buffer): this {
    this.#chunks.push(bytes);
    return this;
  }
  int8(value: number): this {
    return this.#number(1, (chunk) => chunk.writeInt8(value));
  }
  int16(value: number): this {
    return this.#number(2, (chunk) => chunk.writeInt16BE(value));
  }
  int32(value: number): this {
    return this.#number(4, (chunk) => chunk.writeInt32BE(value));
  }
  int64(value: number): this {
    return this.#number(8, (chunk) => chunk.writeBigInt64BE(BigInt(value)));
  }
  text(value: string): this {
    return this.int16(Buffer.byteLength(value)).raw(Buffer.from(value));
  }
  bytes(value: Buffer): this {
    return this.int32(value.length).raw(value);
  }
  array<T>(values: readonly T[], add: (value: T) => void): this {
    this.int32(values.length);
    for (const value of values) {
      add(value);
    }
    return this;
  }
  done(): Buffer {
    return Buffer.concat(this.#chunks);
  }
}

/** Reads the body of an answer. @throws RangeError where it ends too early */
export class BrokerAnswer {
  readonly #bytes: Buffer;
  #at = 0;

  constructor(bytes: Buffer) {
    this.#bytes = bytes;
  }
  #take(bytes: number): number {
    const at = this.#at;
    if (bytes < 0 || at + bytes > this.#bytes.length) {
      throw new RangeError(`an answer of ${this.#bytes.length} bytes ends too early`);
    }
    this.#at = at + bytes;
    return at;
  }
  int8(): number {
    return this.#bytes.readInt8(this.#take(1));
  }
  int16(): number {
    return this.#bytes.readInt16BE(this.#take(2));
  }
  int32(): number {
    return this.#bytes.readInt32BE(this.#take(4));
  }
  /** An offset or a time: none of them needs more than 53 bits. */
  int64(): number {
    const value = Number(this.id64());
    if (!Number.isSafeInteger(value)) {
      throw new RangeError(`an answer has an offset of ${value}`);
    }
    return value;
  }
  id64(): bigint {
    return this.#bytes.readBigInt64BE(this.#take(8));
  }
  uuid(): string {
    const hex = this.#bytes.toString("hex", this.#take(16), this.#at);
    return hex.replace(/^(.{8})(.{4})(.{4})(.{4})/, "$1-$2-$3-$4-");
  }
  varint(): number {
    let value = 0;
    for (let factor = 1; factor <= 128 ** 4; factor *= 128) {
      const byte = this.#bytes[this.#take(1)] as number;
      value += (byte & 127) * factor;
      if (byte < 128) {
        return value;
      }
    }
    throw new RangeError("a number has more than five bytes");
  }
  zigzag(): number {
    const value = this.varint();
    return value % 2 === 1 ? -(value + 1) / 2 : value / 2;
  }
  buffer(length: number): Buffer {
    return length < 0 ? Buffer.alloc(0) : this.#bytes.subarray(this.#take(length), this.#at);
  }
  text(): string {
    return this.buffer(this.int16()).toString();
  }
  bytes(): Buffer {
    return this.buffer(this.int32());
  }
  compactText(): string {
    return this.buffer(this.varint() - 1).toString();
  }
  array<T>(read: () => T): T[] {
    return this.#items(this.int32(), read);
  }
  compactArray<T>(read: () => T): T[] {
    return this.#items(this.varint() - 1, read);
  }
  #items<T>(length: number, read: () => T): T[] {
    const items: T[] = [];
    for (let index = 0; index < length; index += 1) {
      items.push(read());
    }
    return items;
  }
  /** Skips fields that later versions add. */
  tags(): void {
    for (let left = this.varint(); left > 0; left -= 1) {
      this.varint();
      this.#take(this.varint());
    }
  }
}
