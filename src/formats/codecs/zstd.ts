import * as zlib from "node:zlib";

type Unpack = (data: Uint8Array, options: { maxOutputLength: number }) => Buffer<ArrayBuffer>;

/** Node has it since 22.15. */
export const nativeZstd = (zlib as { zstdDecompressSync?: Unpack }).zstdDecompressSync;
