import { createHash } from "node:crypto";
import { createReadStream } from "node:fs";
import { readFile } from "node:fs/promises";
import { pipeline, type Readable, Transform } from "node:stream";
import { PutObjectCommand, type PutObjectCommandInput, type S3Client } from "@aws-sdk/client-s3";
import type { S3Uri } from "../spec/s3-uri.js";
import type { Watch } from "./watch.js";

/**
 * Of a bucket in another region the SDK hears by the answer, and sends the body again there: it cannot do so with a
 * stream, but for those beyond 2 MiB it asks before it sends anything (100-continue).
 */
const smallBytes = 4 * 1024 * 1024;
/** Read of a file, and handed to the socket, at once. */
const pieceBytes = 256 * 1024;

/** Bytes of an object: a text, or a file of which size and sha256 (hex) are known. */
export type ObjectBody = string | FileBody;

export interface FileBody {
  readonly path: string;
  readonly sizeBytes: number;
  readonly sha256: string;
}

/** What a PUT takes beyond key and body. */
export type PutOptions = Partial<
  Pick<
    PutObjectCommandInput,
    "Metadata" | "IfNoneMatch" | "IfMatch" | "ServerSideEncryption" | "SSEKMSKeyId" | "BucketKeyEnabled"
  >
>;

/** One PUT. The store compares what comes with the sha256 that is signed, before the object is there. */
export async function send(
  client: S3Client,
  watch: Watch,
  { bucket, key }: S3Uri,
  { body, options }: { body: ObjectBody; options: PutOptions },
): Promise<void> {
  const { bytes, sizeBytes, sha256 } = typeof body === "string" ? textBody(body) : await fileBody(body, watch);
  const command = new PutObjectCommand({
    Bucket: bucket,
    Key: key,
    Body: bytes,
    ContentLength: sizeBytes,
    ChecksumSHA256: Buffer.from(sha256, "hex").toString("base64"),
    ...options,
  });
  // A stream would be sent unsigned, over plain HTTP too: this is what the signature then covers.
  command.middlewareStack.add(
    (next) => (args) => {
      const headers: unknown = Reflect.get(Object(args.request), "headers");
      Reflect.set(Object(headers), "x-amz-content-sha256", sha256);
      return next(args);
    },
    { step: "build", name: "signedBody" },
  );
  try {
    await client.send(command, { abortSignal: watch.signal });
  } finally {
    if (!Buffer.isBuffer(bytes)) {
      bytes.destroy(); // of a request that broke off, the file would stay open
    }
  }
}

function textBody(text: string): { bytes: Buffer; sizeBytes: number; sha256: string } {
  const bytes = Buffer.from(text, "utf8");
  return { bytes, sizeBytes: bytes.length, sha256: createHash("sha256").update(bytes).digest("hex") };
}

/** A file as a stream, unless it is small; each piece that is taken is a sign of life. */
async function fileBody(
  { path, ...facts }: FileBody,
  watch: Watch,
): Promise<{ bytes: Readable | Buffer; sizeBytes: number; sha256: string }> {
  if (facts.sizeBytes <= smallBytes) {
    return { ...facts, bytes: await readFile(path) };
  }
  const heard = new Transform({
    transform(piece, _encoding, done) {
      watch.heard();
      done(undefined, piece);
    },
  });
  const bytes = pipeline(createReadStream(path, { highWaterMark: pieceBytes }), heard, () => undefined); // the request that reads it fails too
  return { ...facts, bytes };
}
