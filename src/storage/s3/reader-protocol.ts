import type { S3Uri } from "../../spec/s3/s3-uri.js";
import type { S3Settings, S3Timeouts } from "../../s3/client.js";
import type { ListedObject } from "../../s3/listing.js";
import type { ListOptions, ObjectStat, ReadRequest } from "../../s3/store.js";
import { isInteger, isRecord, isUndefined } from "../../util/checks.js";
import type { RpcProtocol } from "../../util/rpc/protocol.js";

/** Settings of the reader thread, passed as `workerData`. */
export interface ReaderSettings {
  readonly store: S3Settings;
  readonly timeouts: S3Timeouts | undefined;
  readonly retrySeconds: number;
}

interface ListCall {
  readonly bucket: string;
  readonly prefix: string;
  readonly options: ListOptions;
}

interface ReadCall {
  /** Begins messages, such as "reading s3://bucket/key". */
  readonly act: string;
  readonly request: ReadRequest;
}

interface FetchCall extends ReadCall {
  /** The descriptor of the file to write to. */
  readonly fd: number;
}

const isListCall = (value: unknown): value is ListCall =>
  isRecord(value) && typeof value["bucket"] === "string" && typeof value["prefix"] === "string";
const isUri = (value: unknown): value is S3Uri => isRecord(value) && typeof value["key"] === "string";
const isReadCall = (value: unknown): value is ReadCall => isRecord(value) && isRecord(value["request"]);
const isFetchCall = (value: unknown): value is FetchCall => isReadCall(value) && "fd" in value && isInteger(value.fd);
const isListed = (value: unknown): value is ListedObject[] => Array.isArray(value);
const isStat = (value: unknown): value is ObjectStat | undefined => value === undefined || isRecord(value);
const isBytes = (value: unknown): value is Uint8Array<ArrayBuffer> => value instanceof Uint8Array;
const isText = (value: unknown): value is string => typeof value === "string";

/** The calls between the main thread and the reader thread, one for each method of `S3Reader`. */
export const readerProtocol = {
  calls: {
    /** The items are pages of the listing. */
    list: { request: isListCall, item: isListed, result: isUndefined },
    stat: { request: isUri, result: isStat },
    fetchIntoFile: { request: isFetchCall, result: isUndefined },
    readBytes: { request: isReadCall, result: isBytes },
  },
  toServer: {
    /** The job is stopped: all calls end, also in the pause before a retry. */
    stop: isUndefined,
    /** The main thread makes no more calls: the thread ends. */
    end: isUndefined,
  },
  toClient: { warning: isText },
} satisfies RpcProtocol;
