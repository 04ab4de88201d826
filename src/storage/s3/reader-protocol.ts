import type { S3Uri } from "../../spec/s3-uri.js";
import type { S3Place, S3Timeouts } from "../../s3/client.js";
import type { ListedObject } from "../../s3/listing.js";
import type { ListOptions, ObjectFacts, ReadRequest } from "../../s3/store.js";
import { isInteger, isRecord, isUndefined } from "../../util/checks.js";
import type { RpcProtocol } from "../../util/rpc/protocol.js";

/** What the thread that reads from S3 is started with. */
export interface ReaderSettings {
  readonly place: S3Place;
  readonly timeouts: S3Timeouts | undefined;
  readonly retrySeconds: number;
}

interface ListCall {
  readonly bucket: string;
  readonly prefix: string;
  readonly options: ListOptions;
}

interface BytesCall {
  readonly doing: string;
  readonly request: ReadRequest;
}

interface FetchCall extends BytesCall {
  /** Descriptor of the file that is written to. */
  readonly fd: number;
}

const isListCall = (value: unknown): value is ListCall =>
  isRecord(value) && typeof value["bucket"] === "string" && typeof value["prefix"] === "string";
const isUri = (value: unknown): value is S3Uri => isRecord(value) && typeof value["key"] === "string";
const isBytesCall = (value: unknown): value is BytesCall => isRecord(value) && isRecord(value["request"]);
const isFetchCall = (value: unknown): value is FetchCall => isBytesCall(value) && "fd" in value && isInteger(value.fd);
const isListed = (value: unknown): value is ListedObject[] => Array.isArray(value);
const isFacts = (value: unknown): value is ObjectFacts | undefined => value === undefined || isRecord(value);
const isBytes = (value: unknown): value is Uint8Array<ArrayBuffer> => value instanceof Uint8Array;
const isText = (value: unknown): value is string => typeof value === "string";

/** Between the main thread and the thread that reads from S3. */
export const readerProtocol = {
  calls: {
    /** The items are pages of the listing. */
    list: { request: isListCall, item: isListed, result: isUndefined },
    look: { request: isUri, result: isFacts },
    fetch: { request: isFetchCall, result: isUndefined },
    bytes: { request: isBytesCall, result: isBytes },
  },
  toServer: {
    /** The job is stopped: all calls under way end, and pauses between retries too. */
    stop: isUndefined,
    /** No more calls will come: the thread ends. */
    end: isUndefined,
  },
  toClient: { warning: isText },
} satisfies RpcProtocol;
