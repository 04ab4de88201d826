import { createHash } from "node:crypto";
import { createReadStream } from "node:fs";

/** The hex SHA-256 of bytes, or of a text in UTF-8. */
export function sha256Of(content: string | Uint8Array): string {
  return createHash("sha256").update(content).digest("hex");
}

/** The length and hex SHA-256 of a file, read piece by piece. @throws system errors */
export async function digestOfFile(path: string): Promise<{ readonly sizeBytes: number; readonly sha256: string }> {
  const hash = createHash("sha256");
  let sizeBytes = 0;
  for await (const piece of createReadStream(path, { highWaterMark: 1 << 20 }) as AsyncIterable<Buffer>) {
    hash.update(piece);
    sizeBytes += piece.length;
  }
  return { sizeBytes, sha256: hash.digest("hex") };
}
