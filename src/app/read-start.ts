import { open } from "node:fs/promises";

/**
 * The text that a file begins with, of at most `limitBytes`: what a file or a pipe holds more, such as `/dev/zero`, is
 * not read.
 * @throws Error of the system
 */
export async function readStart(path: string, limitBytes: number): Promise<string> {
  await using file = await open(path);
  const bytes = Buffer.alloc(limitBytes);
  let length = 0;
  while (length < limitBytes) {
    const { bytesRead } = await file.read(bytes, length, limitBytes - length, null); // a pipe has no positions
    if (bytesRead === 0) {
      break;
    }
    length += bytesRead;
  }
  return bytes.toString("utf8", 0, length);
}
