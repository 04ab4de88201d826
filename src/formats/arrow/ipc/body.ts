import { damageOf, type ShardBytes } from "./bytes.js";
import type { ArrowNode, BufferPlace } from "./layout.js";
import type { BatchHeader, Block } from "./messages.js";
import { unpackLz4 } from "../../codecs/lz4.js";
import { unpackZstd } from "../../codecs/zstd.js";

/** The bytes of a batch's buffers, unpacked. */
export interface Body {
  /** Whether some bytes of a buffer cost less than all. */
  readonly isDivisible: boolean;
  /** Bytes [start, end) of a buffer. @throws RangeError when it has fewer */
  read(buffer: BufferPlace, start: number, end: number): Promise<Uint8Array<ArrayBuffer>>;
  /** Bytes of a buffer, without what is before them: those that a compressed one says it has. */
  size(buffer: BufferPlace): Promise<number>;
}

/** The size limit of one buffer, uncompressed. */
const bufferLimit = 2 ** 30;
const lengthBytes = 8;
/** LZ4 gives at most 255 bytes for one. */
const lz4Ratio = 255;

/** Memory for so many bytes or more, until what was read last is done with. */
export type Lend = (bytes: number) => Uint8Array<ArrayBuffer>;

/**
 * Returns the lender of memory to read into; undefined for compressed buffers, of which more than the last read stays
 * in use.
 */
export function lendFor({ compression }: Pick<BatchHeader, "compression">, lend: Lend | undefined): Lend | undefined {
  return compression === "none" ? lend : undefined;
}

interface BodyOptions {
  readonly header: Pick<BatchHeader, "compression">;
  /** Bytes of the file that were read before. */
  readonly held?: HeldRanges | undefined;
  readonly lend?: Lend | undefined;
  /** Called before a buffer is read, and before it is unpacked, with the bytes that it then takes; may throw. */
  readonly onWhole?: ((buffer: BufferPlace, bytes: number) => void) | undefined;
}

export function openBody(bytes: ShardBytes, block: Block, { header, held, lend, onWhole }: BodyOptions): Body {
  const { compression } = header;
  const lent = lendFor(header, lend);
  const bodyStart = block.offset + block.metadataBytes;
  const raw = async ({ offset }: BufferPlace, start: number, end: number): Promise<Uint8Array<ArrayBuffer>> => {
    const from = bodyStart + offset + start;
    const to = bodyStart + offset + end;
    return held?.find(from, to) ?? (await bytes.read(from, to, lent?.(to - from)));
  };
  if (compression === "none") {
    return {
      isDivisible: true,
      size: (buffer) => Promise.resolve(buffer.bytes),
      async read(buffer, start, end) {
        if (start < 0 || end < start || end > buffer.bytes) {
          throw new RangeError(`a buffer of ${buffer.bytes} bytes, ${end} are due`);
        }
        return start === end ? new Uint8Array(0) : await raw(buffer, start, end);
      },
    };
  }
  const unpacked = new Map<BufferPlace, Promise<Uint8Array<ArrayBuffer>>>();
  const whole = (buffer: BufferPlace): Promise<Uint8Array<ArrayBuffer>> => {
    const read = async (): Promise<Uint8Array<ArrayBuffer>> => {
      onWhole?.(buffer, buffer.bytes);
      const packed = await raw(buffer, 0, buffer.bytes);
      onWhole?.(buffer, unpackedBytes(packed));
      return unpack(packed, compression);
    };
    const known = unpacked.get(buffer) ?? (buffer.bytes === 0 ? Promise.resolve(new Uint8Array(0)) : read());
    unpacked.set(buffer, known);
    return known;
  };
  return {
    isDivisible: false,
    size: async (buffer) => (await whole(buffer)).length,
    async read(buffer, start, end) {
      const all = await whole(buffer);
      if (start < 0 || end < start || end > all.length) {
        throw new RangeError(`a buffer of ${all.length} bytes, ${end} are due`);
      }
      return all.subarray(start, end);
    },
  };
}

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
  if (codec === "lz4") {
    if (length > data.length * lz4Ratio) {
      throw new RangeError(`${data.length} bytes of LZ4 cannot be ${length}`);
    }
    const target = new Uint8Array(length);
    unpackLz4(data, target);
    return target;
  }
  return unpackZstd(data, length);
}

/** Neighbouring bytes of a file that one read covers. */
export interface HeldRanges {
  find(start: number, end: number): Uint8Array<ArrayBuffer> | undefined;
}

/** Buffers that are as near as this are fetched by one read, with the bytes between them. */
const nearBytes = 32 * 1024;

/**
 * Reads all buffers of some columns in as few reads as possible. `lend`: memory to read into, for bytes that are used
 * at once.
 */
export async function holdColumns(
  bytes: ShardBytes,
  block: Block,
  { nodes, lend }: { readonly nodes: readonly ArrowNode[]; readonly lend: Lend | undefined },
): Promise<HeldRanges> {
  const bodyStart = block.offset + block.metadataBytes;
  const ranges: { start: number; end: number }[] = [];
  for (const { offset, bytes: length } of buffersOf(nodes).toSorted((one, other) => one.offset - other.offset)) {
    const start = bodyStart + offset;
    const last = ranges.at(-1);
    if (last !== undefined && start <= last.end + nearBytes) {
      last.end = Math.max(last.end, start + length);
    } else if (length > 0) {
      ranges.push({ start, end: start + length });
    }
  }
  const held = await Promise.all(
    ranges.map(async ({ start, end }) => ({ start, end, data: await bytes.read(start, end, lend?.(end - start)) })),
  );
  return {
    find(start, end) {
      const found = held.find((range) => start >= range.start && end <= range.end);
      return found?.data.subarray(start - found.start, end - found.start);
    },
  };
}

export function buffersOf(nodes: readonly ArrowNode[]): BufferPlace[] {
  return nodes.flatMap(({ buffers, children }) => [...buffers, ...buffersOf(children)]);
}

/** Walks over a part of a file; what that throws names it. */
export async function inBatch<T>(path: string, place: string, act: () => Promise<T>): Promise<T> {
  try {
    return await act();
  } catch (error) {
    throw damageOf(error, path, place);
  }
}
