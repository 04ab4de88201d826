interface WritableFile {
  write(
    bytes: Uint8Array,
    offset: number,
    length: number,
    position: number,
  ): Promise<{ readonly bytesWritten: number }>;
}

/**
 * Writes all bytes to a file at a position. `FileHandle.write` may write fewer without an error, as on a disk that is
 * almost full; the next write then fails.
 */
export async function writeAll(file: WritableFile, bytes: Uint8Array, position: number): Promise<void> {
  for (let written = 0; written < bytes.length; ) {
    const { bytesWritten } = await file.write(bytes, written, bytes.length - written, position + written);
    written += bytesWritten;
  }
}
