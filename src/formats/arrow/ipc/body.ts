import type { ByteRange } from "../../port.js";
import type { ShardBytes } from "./bytes.js";
import { type ArrowNode, type BatchHeader, type Block, type BufferPlace, buffersOf } from "./metadata.js";
import { unpackLz4 } from "../../codecs/lz4.js";
import { unpackZstd } from "../../codecs/zstd.js";

/** The bytes of a batch's buffers, unpacked. */
export interface Body {
  /** Bytes [start, end) of a buffer. @throws RangeError when it has fewer */
  read(buffer: BufferPlace, start: number, end: number): Promise<Uint8Array<ArrayBuffer>>;
}

/** Memory for so many bytes or more, until what was read last is done with. */
export type Lend = (bytes: number) => Uint8Array<ArrayBuffer>;

interface BodyOptions {
  readonly compression: BatchHeader["compression"];
  /** Columns whose buffers are read at once, in as few reads as possible. */
  readonly hold?: readonly ArrowNode[] | undefined;
  /** Not used for compressed buffers, of which more than the last read stays in use. */
  readonly lend?: Lend | undefined;
  /** Called before a buffer is read, and before it is unpacked, with the bytes that it then takes; may throw. */
  readonly onWhole?: ((buffer: BufferPlace, bytes: number) => void) | undefined;
}

export async function openBody(
  bytes: ShardBytes,
  block: Block,
  { compression, hold = [], lend, onWhole }: BodyOptions,
): Promise<Body> {
  const bodyStart = block.offset + block.metadataBytes;
  const lent = compression === "none" ? lend : undefined;
  const held = await holdRanges(bytes, nearRanges(bodyStart, buffersOf(hold)), lent);
  const raw = async ({ offset }: BufferPlace, start: number, end: number): Promise<Uint8Array<ArrayBuffer>> => {
    const from = bodyStart + offset + start;
    const to = bodyStart + offset + end;
    return held(from, to) ?? (await bytes.read(from, to, lent?.(to - from)));
  };
  const unpacked = new Map<BufferPlace, Promise<Uint8Array<ArrayBuffer>>>();
  const whole = async (buffer: BufferPlace, codec: "lz4" | "zstd"): Promise<Uint8Array<ArrayBuffer>> => {
    if (buffer.bytes === 0) {
      return new Uint8Array(0);
    }
    onWhole?.(buffer, buffer.bytes);
    const packed = await raw(buffer, 0, buffer.bytes);
    onWhole?.(buffer, unpackedBytes(packed));
    return unpack(packed, codec);
  };
  return {
    async read(buffer, start, end) {
      let all: Uint8Array<ArrayBuffer> | undefined;
      if (compression !== "none") {
        const reading = unpacked.get(buffer) ?? whole(buffer, compression);
        unpacked.set(buffer, reading);
        all = await reading;
      }
      const size = all?.length ?? buffer.bytes;
      if (start < 0 || end < start || end > size) {
        throw new RangeError(`a buffer of ${size} bytes, ${end} are due`);
      }
      return all?.subarray(start, end) ?? (start === end ? new Uint8Array(0) : await raw(buffer, start, end));
    },
  };
}

/** The size limit of one buffer, uncompressed. */
const bufferLimit = 2 ** 30;
const lengthBytes = 8;
/** LZ4 gives at most 255 bytes for one. */
const lz4Ratio = 255;

/** How long a compressed buffer says that it is; -1: it is not compressed after all. @throws RangeError */
export function unpackedBytes(packed: Uint8Array): number {
  const view = new DataView(packed.buffer, packed.byteOffset, packed.byteLength);
  const length = Number(view.getBigInt64(0, true));
  if (length < -1 || length > bufferLimit) {
    throw new RangeError(`a buffer of ${length} bytes when unpacked, at most ${bufferLimit} are read`);
  }
  return length;
}

function unpack(packed: Uint8Array<ArrayBuffer>, codec: "lz4" | "zstd"): Uint8Array<ArrayBuffer> {
  const length = unpackedBytes(packed);
  const data = packed.subarray(lengthBytes);
  if (length === -1) {
    return data;
  }
  if (length === 0) {
    return new Uint8Array(0);
  }
  if (codec === "zstd") {
    return unpackZstd(data, length);
  }
  if (length > data.length * lz4Ratio) {
    throw new RangeError(`${data.length} bytes of LZ4 cannot be ${length}`);
  }
  const target = new Uint8Array(length);
  unpackLz4(data, target);
  return target;
}

/** Buffers that are as near as this are fetched by one read, with the bytes between them. */
const nearBytes = 32 * 1024;

function nearRanges(bodyStart: number, buffers: readonly BufferPlace[]): ByteRange[] {
  const ranges: { start: number; end: number }[] = [];
  for (const { offset, bytes: length } of buffers.toSorted((one, other) => one.offset - other.offset)) {
    const start = bodyStart + offset;
    const last = ranges.at(-1);
    if (last !== undefined && start <= last.end + nearBytes) {
      last.end = Math.max(last.end, start + length);
    } else if (length > 0) {
      ranges.push({ start, end: start + length });
    }
  }
  return ranges;
}

/** Reads ranges; finds bytes [start, end) of the file in them. */
async function holdRanges(
  bytes: ShardBytes,
  ranges: readonly ByteRange[],
  lend: Lend | undefined,
): Promise<(start: number, end: number) => Uint8Array<ArrayBuffer> | undefined> {
  const held = await Promise.all(
    ranges.map(async ({ start, end }) => ({ start, end, data: await bytes.read(start, end, lend?.(end - start)) })),
  );
  return (start, end) => {
    const range = held.find((candidate) => start >= candidate.start && end <= candidate.end);
    return range?.data.subarray(start - range.start, end - range.start);
  };
}
