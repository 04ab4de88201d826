import { createHash } from "node:crypto";
import { createReadStream } from "node:fs";
import { readFile } from "node:fs/promises";
import { pipeline, type Readable, Transform } from "node:stream";
import { PutObjectCommand, type PutObjectCommandInput, type S3Client } from "@aws-sdk/client-s3";
import type { S3Uri } from "../spec/s3/s3-uri.js";
import type { Watchdog } from "./watchdog.js";

/**
 * The largest file that is sent as a buffer. The SDK learns from a response that a bucket is in another region, and
 * sends the body again there. It cannot send a stream twice; but for bodies above 2 MiB it asks before it sends
 * (100-continue).
 */
const smallBytes = 4 * 1024 * 1024;
/** The size of one read of a file that is sent as a stream. */
const readBytes = 256 * 1024;

/** An object's bytes: text, or a file. */
export type ObjectBody = string | FileBody;

/** A file to be sent; `sha256` is hex. */
export interface FileBody {
  readonly path: string;
  readonly sizeBytes: number;
  readonly sha256: string;
}

/** Options of a PUT beyond key and body. */
export type PutOptions = Partial<
  Pick<
    PutObjectCommandInput,
    "Metadata" | "IfNoneMatch" | "IfMatch" | "ServerSideEncryption" | "SSEKMSKeyId" | "BucketKeyEnabled"
  >
>;

/** Sends one PUT. The store compares the body with the signed sha256 before it creates the object. */
export async function putObject(
  client: S3Client,
  watchdog: Watchdog,
  { bucket, key }: S3Uri,
  { body, options }: { body: ObjectBody; options: PutOptions },
): Promise<void> {
  const { bytes, sizeBytes, sha256 } = typeof body === "string" ? textBody(body) : await fileBody(body, watchdog);
  const command = new PutObjectCommand({
    Bucket: bucket,
    Key: key,
    Body: bytes,
    ContentLength: sizeBytes,
    ChecksumSHA256: Buffer.from(sha256, "hex").toString("base64"),
    ...options,
  });
  // The SDK leaves the body of a stream out of the signature, over plain HTTP too; with this header it is covered.
  command.middlewareStack.add(
    (next) => (args) => {
      const headers: unknown = Reflect.get(Object(args.request), "headers");
      Reflect.set(Object(headers), "x-amz-content-sha256", sha256);
      return next(args);
    },
    { step: "build", name: "signedBody" },
  );
  try {
    await client.send(command, { abortSignal: watchdog.signal });
  } finally {
    if (!Buffer.isBuffer(bytes)) {
      bytes.destroy(); // else the file of a failed request stays open
    }
  }
}

function textBody(text: string): { bytes: Buffer; sizeBytes: number; sha256: string } {
  const bytes = Buffer.from(text, "utf8");
  return { bytes, sizeBytes: bytes.length, sha256: createHash("sha256").update(bytes).digest("hex") };
}

/** Reads a small file, or opens a stream over a large one that resets the watchdog with each chunk. */
async function fileBody(
  { path, ...facts }: FileBody,
  watchdog: Watchdog,
): Promise<{ bytes: Readable | Buffer; sizeBytes: number; sha256: string }> {
  if (facts.sizeBytes <= smallBytes) {
    return { ...facts, bytes: await readFile(path) };
  }
  const progress = new Transform({
    transform(chunk, _encoding, done) {
      watchdog.reset();
      done(undefined, chunk);
    },
  });
  // The error of a failed pipeline also fails the request that reads it.
  const bytes = pipeline(createReadStream(path, { highWaterMark: readBytes }), progress, () => undefined);
  return { ...facts, bytes };
}
