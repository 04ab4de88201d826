import { writeSync } from "node:fs";
import { Readable } from "node:stream";
import { GetObjectCommand } from "@aws-sdk/client-s3";
import { type ConnectionPool, type Exchange, type HttpResponse, originOf, requestHead } from "../net/connections.js";
import { BrokenTransfer, startSilenceTimeout } from "../net/http-failures.js";
import type { S3Uri } from "../spec/s3/s3-uri.js";
import type { S3Call } from "./failures.js";
import { objectChangedError, ObjectMissingError, type SendRequest } from "./requests.js";

/** An object, or one of its versions. */
export interface ObjectVersion extends S3Uri {
  readonly versionId?: string | undefined;
}

/** Bytes [start, end) of an object. */
export interface ObjectRange {
  readonly start: number;
  readonly end: number;
}

/** A range of an object whose ETag is known; it is not empty. */
export interface ReadRequest extends ObjectRange {
  readonly object: ObjectVersion;
  readonly etag: string;
}

/** What ranges are read with. */
export interface RangeTools {
  readonly send: SendRequest;
  readonly pool: ConnectionPool;
  readonly silenceMs: number;
  /** Added to each request. */
  readonly payer: object;
}

/**
 * Reads a range; each attempt resumes where the last one ended. The SDK's body streams would begin anew, and cost more
 * than the bytes.
 * @param onBytes receives bytes, which are overwritten after it returns, and their offset in the object
 */
export async function readRange(
  { send, pool, silenceMs, payer }: RangeTools,
  act: string,
  { object, etag, start, end }: ReadRequest,
  onBytes: (bytes: Uint8Array, offset: number) => void,
): Promise<void> {
  const call: S3Call = { act, action: "GetObject", object };
  let offset = start;
  const resumed = send(call, async (client, signal) => {
    const from = offset;
    if (from === end) {
      return; // the last attempt failed after its last byte
    }

    using silence = startSilenceTimeout(signal, silenceMs);
    const onHeaders: Exchange["onHeaders"] = (response) => {
      silence.reset();
      if (response.status < 200 || response.status >= 300) {
        return undefined; // the SDK turns other statuses into errors
      }
      checkResponse(response, { start: from, end, etag });
      return (chunk) => {
        silence.reset();
        if (offset + chunk.length > end) {
          throw new BrokenTransfer(`a body of ${end - from} bytes is longer`);
        }
        onBytes(chunk, offset);
        offset += chunk.length;
      };
    };
    const command = new GetObjectCommand({
      ...objectInput(object),
      ...payer,
      Range: `bytes=${from}-${end - 1}`,
      IfMatch: etag,
    });
    sendOverPool(pool, command, { onHeaders, signal: silence.signal });
    await client.send(command);
    if (offset < end) {
      throw new BrokenTransfer(`a body of ${end - from} bytes ended after ${offset - from}`);
    }
  });
  await resumed.catch((error: unknown) => {
    throw error instanceof ObjectMissingError ? objectChangedError(call, "it is gone") : error;
  });
}

/** How the SDK names an object. */
export function objectInput({ bucket, key, versionId }: ObjectVersion): {
  Bucket: string;
  Key: string;
  VersionId?: string;
} {
  return { Bucket: bucket, Key: key, ...(versionId === undefined ? {} : { VersionId: versionId }) };
}

/** @throws BrokenTransfer when a response holds other bytes, or those of another object */
function checkResponse(
  { headers }: Omit<HttpResponse, "body">,
  { start, end, etag }: { start: number; end: number; etag: string },
): void {
  const { "content-range": range, etag: answered } = headers;
  if (range !== undefined ? !range.startsWith(`bytes ${start}-${end - 1}/`) : start !== 0) {
    throw new BrokenTransfer(
      `the store answered with ${range ?? "all bytes"} where ${start} to ${end - 1} were asked for`,
    );
  }
  if (answered !== undefined && answered !== etag) {
    throw new BrokenTransfer(`the store answered with ETag ${answered} where ${etag} was asked for`);
  }
}

/** A signed request, as the SDK's middleware passes it on. */
interface SignedRequest {
  readonly method: string;
  readonly protocol: string;
  readonly hostname: string;
  readonly port?: number;
  readonly path: string;
  readonly query?: Readonly<Record<string, string | readonly string[] | null>>;
  readonly headers: Readonly<Record<string, string>>;
}

/**
 * Makes a command send its request over a connection of `pool` in place of the SDK's own transport. Endpoint,
 * credentials, signature, redirects and the meaning of the response stay the SDK's. A pooled connection that turns out
 * to be closed is replaced with a new one.
 */
function sendOverPool(
  pool: ConnectionPool,
  command: GetObjectCommand,
  options: Pick<Exchange, "onHeaders" | "signal">,
): void {
  command.middlewareStack.add(
    () =>
      async ({ request }) => {
        const signed = request as SignedRequest;
        const { method, headers: sent } = signed;
        const exchange = { head: requestHead(method, targetOf(signed), sent), mayResend: true, ...options };
        const { status: statusCode, headers, body } = await pool.exchange(originOf(signed), exchange);
        return { response: { statusCode, headers, body: Readable.from([body], { objectMode: false }) } };
      },
    { step: "deserialize", priority: "low", name: "sendOverPool" },
  );
}

/** The path and the query of a request, as its signature has them. */
function targetOf({ path, query = {} }: SignedRequest): string {
  const fields = Object.entries(query)
    .toSorted(([one], [other]) => (one < other ? -1 : 1))
    .flatMap(([name, value]) =>
      value === null
        ? [percentEncode(name)]
        : [value].flat().map((one) => `${percentEncode(name)}=${percentEncode(one)}`),
    );
  return fields.length === 0 ? path : `${path}?${fields.join("&")}`;
}

/** Percent-encodes all that RFC 3986 reserves, as AWS signatures require. */
function percentEncode(text: string): string {
  return encodeURIComponent(text).replaceAll(/[!'()*]/g, (one) => `%${one.codePointAt(0)?.toString(16).toUpperCase()}`);
}

/** The most bytes that one request asks for: parallel requests fill the network, and a failed one costs little. */
const requestBytes = 8 * 1024 * 1024;

/** Splits [start, end) into equal ranges of at most 8 MiB. */
export function splitRange({ start, end }: ObjectRange): ObjectRange[] {
  const count = Math.ceil((end - start) / requestBytes);
  const size = Math.ceil((end - start) / count);
  return Array.from({ length: count }, (_, index) => ({
    start: start + index * size,
    end: Math.min(start + (index + 1) * size, end),
  }));
}

/**
 * The size of a single write, aligned. For larger writes Linux takes larger pages, which come from memory that was not
 * used lately; for these it has pages that were freed a moment ago.
 */
const writeBytes = 32 * 1024;

/**
 * Makes a function that writes bytes to a file at their offset in the object. It writes synchronously, because the
 * bytes are overwritten after it returns, and blocks its thread during the write.
 */
export function writeAtOffset(fd: number): (bytes: Uint8Array, offset: number) => void {
  return (bytes, offset) => {
    // A single write may write less than it was given.
    for (let written = 0; written < bytes.length; ) {
      const toBoundary = writeBytes - ((offset + written) % writeBytes);
      written += writeSync(fd, bytes, written, Math.min(toBoundary, bytes.length - written), offset + written);
    }
  };
}
