/**
 * What differs between stores of objects: S3, and what is like it. Each technology is one file that implements
 * `ObjectProtocol`; `openObjectStore` (`store.ts`) makes a store of it.
 */
import type { Readable } from "node:stream";
import type { Exchange } from "../../base/http/connections.js";
import { BrokenTransfer } from "../../base/http/http.js";
import { errnoOf, isCertificateError, isTlsProtocolError, JobError, messageOf } from "../../base/errors.js";
import { connectionErrors } from "../../base/retry.js";

/**
 * One technology, as single requests: nothing here retries, or bounds how many are under way. Each call throws errors of
 * its own kind, whose meaning `classify` tells, and BrokenTransfer for a response that cannot be right; it ends with the
 * reason of `signal` when that is aborted.
 */
export interface ObjectProtocol extends Disposable {
  /** That of the URIs of objects, in messages: "s3". */
  readonly scheme: string;
  classify(error: unknown, call: ObjectCall): ObjectFailure;
  /** Looks up the credentials anew, which the store has refused. */
  renew(): Promise<unknown>;
  /**
   * Lists one page of the objects whose keys start with `prefix.key`, in the order of the keys.
   * @param folder lists keys with a slash after the prefix by their common prefix only, as objects without ETag and bytes
   * @param after `next` of the page before
   */
  list(prefix: ObjectName, folder: boolean, after: string | undefined, signal: AbortSignal): Promise<ListedPage>;
  head(object: ObjectVersion, signal: AbortSignal): Promise<StoredObject>;
  /** Requests a range on the condition that the object has its ETag. The bytes go to `onHeaders`, if the status is 2xx. */
  get(request: RangeRequest, signal: AbortSignal): Promise<unknown>;
  /** Reads a whole small UTF-8 object. */
  getText(object: ObjectName, signal: AbortSignal): Promise<StoredText>;
  /**
   * Creates or replaces an object: readers find all of its bytes, or none. Durable when it returns.
   * @throws ChangedBody where the bytes are not those of the digest: nothing is created
   */
  put(object: ObjectName, body: SentBody, options: PutOptions, signal: AbortSignal): Promise<unknown>;
  /** With `etag` only that version. */
  remove(object: ObjectName, etag: string | undefined, signal: AbortSignal): Promise<unknown>;
  /** Copies an object within the store, with its metadata, over what is there. Durable when it returns. */
  copy(from: ObjectName, to: ObjectName, signal: AbortSignal): Promise<unknown>;
}

/** One call to a store. */
export interface ObjectCall {
  /** Begins messages: what the call does, and to which object. */
  readonly act: string;
  readonly action: "list" | "read" | "write" | "remove";
  readonly object: ObjectName;
}

/** What a failed call means; `found` is the finding for messages. */
export type ObjectFailure =
  /** The call may succeed when it is retried. */
  | { readonly kind: "transient"; readonly found: string }
  /** The store refused the credentials. Retried after renewal; `error` when renewal changes nothing. */
  | { readonly kind: "credentials"; readonly expired: boolean; readonly found: string; readonly error: JobError }
  /** The object does not exist. */
  | { readonly kind: "missing" }
  /** The object's ETag is not the one in the request, or the object is shorter than planned. */
  | { readonly kind: "changed"; readonly found: string }
  /** The key of a PUT with a condition has another version, or any. */
  | { readonly kind: "exists" }
  /** The store does not implement the condition of the request, and did nothing. */
  | { readonly kind: "unsupported"; readonly error: JobError }
  | { readonly kind: "permanent"; readonly error: JobError }
  | { readonly kind: "bug" };

export interface ObjectName {
  /** Or container. */
  readonly bucket: string;
  /** Without escapes. */
  readonly key: string;
}

/** An object, or one of its versions. */
export interface ObjectVersion extends ObjectName {
  readonly versionId?: string | undefined;
}

export interface ListedObject {
  readonly key: string;
  /** Another text after each change; conditions name it. */
  readonly etag: string;
  readonly sizeBytes: number;
}

export interface ListedPage {
  readonly objects: readonly ListedObject[];
  /** Where the listing continues; undefined: nowhere; "": it does, and the store does not say where. */
  readonly next: string | undefined;
}

export interface StoredObject {
  readonly etag: string;
  readonly sizeBytes: number;
  /** The object's version, in a bucket that keeps versions. */
  readonly versionId: string | undefined;
  /** User metadata; names in lower case. */
  readonly metadata: ObjectMetadata;
}

/** Names are of lower-case letters and digits: some stores take no others. */
export type ObjectMetadata = Readonly<Record<string, string>>;

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

/** `onHeaders` checks the headers `content-range` and `etag`, and receives the body of a success. */
export interface RangeRequest extends ReadRequest, Pick<Exchange, "onHeaders"> {}

export interface StoredText {
  readonly text: string;
  readonly etag: string;
}

/** An object's bytes: a buffer, or a stream of a file. */
export interface SentBody {
  readonly bytes: Buffer | Readable;
  readonly sizeBytes: number;
  /** In hex. */
  readonly sha256: string;
}

/** A body has other bytes than its digest says, such as a file that was changed meanwhile. */
export class ChangedBody extends Error {
  override readonly message = "it has other bytes than were written";
}

export interface PutOptions {
  /** What the key must hold: nothing, or the version with this ETag; undefined: it may hold anything. */
  readonly over: "nothing" | { readonly etag: string } | undefined;
  readonly metadata: ObjectMetadata;
}

/** No credentials were found. Without a `hint` the cause is transient; with one, it says what to do. */
export class CredentialsError extends Error {
  override readonly name = "CredentialsError";
  readonly hint: string | undefined;

  constructor(message: string, hint?: string) {
    super(message);
    this.hint = hint;
  }
}

/** Credentials that somebody else gives out. They can be sent to another thread. */
export interface GivenCredentials {
  readonly accessKeyId: string;
  readonly secretAccessKey: string;
  readonly sessionToken?: string;
  /** From when on they are refused; absent: it is not known. */
  readonly expiration?: Date;
}

/** Gives credentials as they are now. @throws CredentialsError */
export type GiveCredentials = () => Promise<GivenCredentials>;

/** What ends a call for good, and is not the job's. */
export function permanent(
  message: string,
  hint: string,
  code: "PERMISSION" | "FILE_MISSING" = "PERMISSION",
): Extract<ObjectFailure, { readonly kind: "permanent" }> {
  return { kind: "permanent", error: new JobError(code, message, { hint }) };
}

/** Tells what a call means that no store has answered: its connection, or the way to credentials. */
export function classifyUnanswered(error: unknown, call: ObjectCall): ObjectFailure {
  if (error instanceof BrokenTransfer) {
    return { kind: "transient", found: error.message };
  }
  if (error instanceof CredentialsError) {
    return error.hint === undefined
      ? { kind: "transient", found: error.message }
      : permanent(error.message, error.hint);
  }
  // The host name has several addresses, and none could be reached.
  if (error instanceof AggregateError && error.errors.length > 0) {
    return classifyUnanswered(error.errors[0], call);
  }

  const errno = errnoOf(error) ?? "";
  if (connectionErrors.has(errno)) {
    return { kind: "transient", found: errno === "ECONNRESET" ? "the connection was lost" : messageOf(error) };
  }
  if (isCertificateError(errno)) {
    return permanent(
      `${call.act}: the store's certificate is not trusted: ${messageOf(error)}`,
      "set NODE_EXTRA_CA_CERTS to a file with the authority's certificate",
    );
  }
  return isTlsProtocolError(errno)
    ? permanent(
        `${call.act}: the store does not speak TLS as this program does (${errno})`,
        "an endpoint that serves plain HTTP begins with http://",
      )
    : { kind: "bug" };
}
