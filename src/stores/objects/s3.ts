/** S3, and the stores that speak its protocol, by AWS's SDK. */
import { Readable } from "node:stream";
import {
  CopyObjectCommand,
  DeleteObjectCommand,
  GetObjectCommand,
  HeadObjectCommand,
  ListObjectsV2Command,
  type ListObjectsV2CommandOutput,
  PutObjectCommand,
  type PutObjectCommandInput,
  S3Client,
} from "@aws-sdk/client-s3";
import { NODE_REGION_CONFIG_FILE_OPTIONS, NODE_REGION_CONFIG_OPTIONS, loadConfig } from "@smithy/core/config";
import {
  type HttpConnections,
  type Exchange,
  openConnectionPool,
  originOf,
  requestHead,
} from "../../base/http/connections.js";
import { BrokenTransfer } from "../../base/http/http.js";
import { objectUriText } from "../../job/jobfile/uri.js";
import type { StoreOutputSpec } from "../../job/jobfile/output-spec.js";
import { errnoOf, JobError, messageOf } from "../../base/errors.js";
import { credentialsFrom, expiredCredentialsNames, isTransientResponse, statusOf } from "./aws-credentials.js";
import { classifyCloud, percentEncode, StoreRefusal, saidBy } from "./cloud.js";
import {
  type GiveCredentials,
  type ObjectCall,
  type ObjectFailure,
  type ObjectName,
  type ObjectProtocol,
  type ObjectVersion,
  type ListedPage,
  type PutOptions,
  type SentBody,
  type StoredObject,
  classifyUnanswered,
  permanent,
} from "./protocol.js";
import { type ObjectStore, type RequestOptions, maxConcurrentRequests, openObjectStore } from "./store.js";

/** How to reach a store, and how it keeps what is written. What is undefined comes from the environment, as for the AWS command line. */
export interface S3Settings {
  readonly endpoint?: string | undefined;
  readonly region?: string | undefined;
  readonly pathStyle?: boolean | undefined;
  readonly requestPayer?: "requester" | undefined;
  /** Server-side encryption of objects that are written; undefined leaves it to the bucket. */
  readonly encryption?: StoreOutputSpec["sse"];
}

/** How to reach one store, and how to send requests to it. */
export interface S3Options extends RequestOptions {
  readonly settings: S3Settings;
  /** undefined: the credentials are those of the environment. */
  readonly credentials?: GiveCredentials | undefined;
}

/** Opens a store. */
export function openS3Store(options: S3Options): ObjectStore {
  return openObjectStore(s3Protocol(options), options);
}

function s3Protocol(options: S3Options): ObjectProtocol {
  const { settings, timeouts } = options;
  let opened: S3Client | undefined;
  const client = (): S3Client => (opened ??= openClient(options));
  const pool = openConnectionPool(timeouts.connectMs);
  const payer = settings.requestPayer === undefined ? {} : { RequestPayer: settings.requestPayer };
  const encryption = encryptionInput(settings.encryption);
  return {
    scheme: "s3",
    classify: classifyS3,
    renew: () => client().config.credentials({ forceRefresh: true }),
    async list({ bucket: Bucket, key: Prefix }, folder, after, abortSignal) {
      const command = new ListObjectsV2Command({
        Bucket,
        Prefix,
        ...(folder ? { Delimiter: "/" } : {}),
        ...(after === undefined ? {} : { ContinuationToken: after }),
        ...payer,
      });
      return pageOf(await client().send(command, { abortSignal }));
    },
    head: (object, signal) => headObject(client(), signal, object, payer),
    async get({ object, etag, start, end, onHeaders }, signal) {
      const range = { Range: `bytes=${start}-${end - 1}`, IfMatch: etag };
      const command = new GetObjectCommand({ ...objectInput(object), ...payer, ...range });
      sendOverPool(pool, command, { onHeaders, signal });
      await client().send(command);
    },
    async getText(object, abortSignal) {
      const command = new GetObjectCommand({ ...objectInput(object), ...payer });
      const { Body, ContentLength: sizeBytes, ETag: etag = "" } = await client().send(command, { abortSignal });
      const bytes = Buffer.from((await Body?.transformToByteArray()) ?? []);
      if (bytes.length !== sizeBytes) {
        throw new BrokenTransfer(`a body of ${sizeBytes} bytes ended after ${bytes.length}`);
      }
      return { text: bytes.toString("utf8"), etag };
    },
    put: (object, body, how, signal) => putObject(client(), object, body, { ...putInput(how), ...encryption }, signal),
    remove(object, etag, abortSignal) {
      const match = etag === undefined ? {} : { IfMatch: etag };
      return client().send(new DeleteObjectCommand({ ...objectInput(object), ...match }), { abortSignal });
    },
    copy(from, to, abortSignal) {
      const source = `${from.bucket}/${from.key.split("/").map(encodeURIComponent).join("/")}`;
      const command = new CopyObjectCommand({ ...objectInput(to), CopySource: source, ...encryption });
      return client().send(command, { abortSignal });
    },
    [Symbol.dispose]() {
      pool[Symbol.dispose]();
      opened?.destroy();
    },
  };
}

type PutInput = Partial<
  Pick<
    PutObjectCommandInput,
    "Metadata" | "IfNoneMatch" | "IfMatch" | "ServerSideEncryption" | "SSEKMSKeyId" | "BucketKeyEnabled"
  >
>;

function encryptionInput(encryption: StoreOutputSpec["sse"]): PutInput {
  if (encryption === undefined) {
    return {};
  }
  const { algorithm, kms_key: keyId, bucket_key: bucketKey } = encryption;
  return {
    ServerSideEncryption: algorithm,
    ...(keyId === undefined ? {} : { SSEKMSKeyId: keyId }),
    ...(bucketKey === undefined ? {} : { BucketKeyEnabled: bucketKey }),
  };
}

function putInput({ over, metadata }: PutOptions): PutInput {
  const condition = over === undefined ? {} : over === "nothing" ? { IfNoneMatch: "*" } : { IfMatch: over.etag };
  return { Metadata: { ...metadata }, ...condition };
}

function openClient({ settings, timeouts: { connectMs, silenceMs }, signal, credentials }: S3Options): S3Client {
  // The SDK warns on stderr that it will drop Node 20.
  process.env["AWS_SDK_JS_NODE_VERSION_SUPPORT_WARNING_DISABLED"] ??= "true";
  const endpoint = settings.endpoint ?? process.env["AWS_ENDPOINT_URL_S3"] ?? process.env["AWS_ENDPOINT_URL"];
  const agent = { keepAlive: true, maxSockets: maxConcurrentRequests };
  return new S3Client({
    // Without a region: other stores ignore it, and AWS names the right one.
    region:
      settings.region ??
      loadConfig({ ...NODE_REGION_CONFIG_OPTIONS, default: "us-east-1" }, NODE_REGION_CONFIG_FILE_OPTIONS),
    ...(settings.endpoint === undefined ? {} : { endpoint: settings.endpoint }),
    forcePathStyle: settings.pathStyle ?? endpoint !== undefined,
    // AWS names a bucket's region in its response to a request that went to another one.
    followRegionRedirects: endpoint === undefined,
    // The SDK would warn on stderr that a stream cannot be sent twice; a retry opens the file anew.
    logger: { debug: ignore, info: ignore, warn: ignore, error: ignore },
    // `SendRequest` retries: it resumes a body where it ended, tries as long as the spec says, and stops with the job.
    maxAttempts: 1,
    // Ranges have no checksums, and some stores support none.
    responseChecksumValidation: "WHEN_REQUIRED",
    // A search that hangs ends before the request that waits for it, and says so.
    credentials: credentials ?? credentialsFrom({ searchMs: silenceMs * 0.75, signal }),
    requestHandler: {
      connectionTimeout: connectMs,
      socketTimeout: silenceMs,
      httpAgent: agent,
      httpsAgent: agent,
    },
  });
}

const ignore = (): void => undefined;

function objectInput({ bucket, key, versionId }: ObjectVersion): {
  Bucket: string;
  Key: string;
  VersionId?: string;
} {
  return { Bucket: bucket, Key: key, ...(versionId === undefined ? {} : { VersionId: versionId }) };
}

function pageOf(page: ListObjectsV2CommandOutput): ListedPage {
  const { Name: name, IsTruncated: isTruncated, NextContinuationToken: next } = page;
  if (name === undefined && isTruncated === undefined) {
    throw new BrokenTransfer("the store's response is not a listing");
  }
  const objects = (page.Contents ?? []).map(({ Key: key, ETag: etag = "", Size: sizeBytes }) => {
    if (key === undefined || etag === "" || sizeBytes === undefined) {
      throw new BrokenTransfer("the store lists an object without its key, ETag or size");
    }
    return { key, etag, sizeBytes };
  });
  const folders = (page.CommonPrefixes ?? []).map(({ Prefix: key = "" }) => ({ key, etag: "", sizeBytes: 0 }));
  return { objects: [...objects, ...folders], next: isTruncated === true ? (next ?? "") : undefined };
}

async function headObject(
  client: S3Client,
  abortSignal: AbortSignal,
  object: ObjectVersion,
  payer: object,
): Promise<StoredObject> {
  const {
    ETag: etag = "",
    ContentLength: sizeBytes,
    VersionId: versionId,
    Metadata: metadata = {},
  } = await client.send(new HeadObjectCommand({ ...objectInput(object), ...payer }), { abortSignal });
  if (etag === "" || sizeBytes === undefined) {
    throw new BrokenTransfer("the response to HEAD has no ETag or no size");
  }
  return { etag, sizeBytes, versionId, metadata };
}

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
 * Endpoint, credentials, signature, redirects and the meaning of the response stay the SDK's. A pooled connection that
 * turns out to be closed is replaced with a new one.
 */
function sendOverPool(
  pool: HttpConnections,
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

/** The largest object that S3 takes by one PUT. */
const putLimitBytes = 5 * 1024 ** 3;

/**
 * Sends one PUT. The store compares the body with the signed sha256 before it creates the object. The SDK learns from a
 * response that a bucket is in another region, and sends the body again there, which a stream cannot be; but for bodies
 * above 2 MiB it asks before it sends (100-continue).
 */
async function putObject(
  client: S3Client,
  object: ObjectName,
  { bytes, sizeBytes, sha256 }: SentBody,
  input: PutInput,
  abortSignal: AbortSignal,
): Promise<void> {
  if (sizeBytes > putLimitBytes) {
    throw new JobError("USAGE", `writing ${objectUriText({ scheme: "s3", ...object })}: it has ${sizeBytes} bytes`, {
      hint: "a store takes 5 GiB at once: score with a smaller commit_rows, in another folder or by --new-run",
    });
  }
  const command = new PutObjectCommand({
    ...objectInput(object),
    Body: bytes,
    ContentLength: sizeBytes,
    ChecksumSHA256: Buffer.from(sha256, "hex").toString("base64"),
    ...input,
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
  const { ETag: etag = "" } = await client.send(command, { abortSignal });
  if (etag === "") {
    throw new BrokenTransfer("the response to PUT has no ETag"); // it is none of a store
  }
}

/** The actions of calls, as IAM names the permissions for them. */
const actions = { list: "ListBucket", read: "GetObject", write: "PutObject", remove: "DeleteObject" } as const;
const wrongKeyNames = /^(InvalidAccessKeyId|SignatureDoesNotMatch|InvalidClientTokenId|XAdminUserNotFound)$/;

/**
 * Tells what a failed call means, from the SDK's error or the socket's.
 * @public so that tests classify errors of the system
 */
export function classifyS3(error: unknown, call: ObjectCall): ObjectFailure {
  const { act, action, object } = call;
  const name = error instanceof Error ? error.name : "";
  const status = statusOf(error);
  // The SDK calls lost connections timeouts, too.
  if (status === undefined && ["ECONNRESET", "ERR_STREAM_PREMATURE_CLOSE"].includes(errnoOf(error) ?? "")) {
    return { kind: "transient", found: "the connection was lost" };
  }
  if (status === undefined) {
    return name === "TimeoutError"
      ? { kind: "transient", found: timeoutText(messageOf(error)) }
      : classifyUnanswered(error, call);
  }
  if (status < 300) {
    return { kind: "transient", found: "the store's response cannot be read" }; // of a proxy, or cut off
  }

  const code = name === "Unknown" ? "" : name;
  const refusal = new StoreRefusal(status, code, messageOf(error));
  const found = saidBy(refusal);
  const denied = (message: string, hint: string): JobError =>
    new JobError("PERMISSION", `${act}: ${message}`, { hint });
  const expired = expiredCredentialsNames.test(code);
  if (wrongKeyNames.test(code) || expired) {
    const hint = "check AWS_ACCESS_KEY_ID, AWS_SECRET_ACCESS_KEY, AWS_PROFILE or the role, and the endpoint";
    return { kind: "credentials", expired, found, error: denied(`the credentials are wrong: ${found}`, hint) };
  }
  if (status === 501) {
    const hint = "this store does not support a feature that the job needs";
    return { kind: "unsupported", error: denied(`${found}: ${messageOf(error)}`, hint) };
  }
  if (isTransientResponse(code, status)) {
    return { kind: "transient", found };
  }
  if (code === "NoSuchBucket") {
    const hint = "check the bucket's name, and endpoint and region, in the spec";
    return permanent(`${act}: there is no bucket ${object.bucket}`, hint, "FILE_MISSING");
  }
  if (code === "InvalidObjectState") {
    return permanent(`${act}: ${objectUriText({ scheme: "s3", ...object })} is archived`, "restore it, then run again");
  }
  if (status === 401 || status === 403) {
    const resource = action === "list" ? object.bucket : `${object.bucket}/${object.key}`;
    const also =
      action === "read" ? "; without s3:ListBucket on the bucket, a missing object is refused in the same way" : "";
    const needs = `these credentials need s3:${actions[action]} on arn:aws:s3:::${resource}${also}`;
    const refused = denied(`access denied: ${found}`, needs);
    // A response to HEAD has no body, so wrong credentials and a missing permission look the same.
    return code === "AccessDenied"
      ? { kind: "permanent", error: refused }
      : { kind: "credentials", expired: false, found, error: refused };
  }
  const failure = classifyCloud(refusal, call, "");
  // The same of credentials that have expired: they look like any other wrong request.
  return status === 400 && code === "" && failure.kind === "permanent"
    ? { kind: "credentials", expired: false, found, error: failure.error }
    : failure;
}

/** Words what the SDK's own timers call by the names of its options. */
function timeoutText(message: string): string {
  const [, silenceMs] = /timed out after (\d+) ms of inactivity/.exec(message) ?? [];
  return silenceMs === undefined
    ? message.replace(/^@smithy.* - /, "")
    : `the store was silent for ${Number(silenceMs) / 1000} s`;
}
