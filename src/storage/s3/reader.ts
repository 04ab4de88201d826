import type { S3Uri } from "../../spec/s3/s3-uri.js";
import { writeAtOffset } from "../../s3/download.js";
import type { ListedObject } from "../../s3/listing.js";
import type { ListOptions, ObjectStat, ReadRequest, S3Store } from "../../s3/store.js";

/** A store as an S3 source needs it: it fetches into files, and may run in another thread. */
export interface S3Reader extends AsyncDisposable {
  /** Lists objects, as `S3Store.list` does. */
  list(bucket: string, prefix: string, options?: ListOptions): AsyncIterable<ListedObject>;
  /** Returns an object's ETag and size, as `S3Store.stat` does. */
  stat(object: S3Uri): Promise<ObjectStat | undefined>;
  /**
   * Fetches a range into an open file, at its offset in the object. Nothing is written after the promise settles.
   * @throws JobError as `S3Store.read`; the error of a failed write
   */
  fetchIntoFile(act: string, request: ReadRequest, fd: number, signal?: AbortSignal): Promise<void>;
  /** Reads a range into memory. @throws JobError as `S3Store.read` */
  readBytes(act: string, request: ReadRequest, signal?: AbortSignal): Promise<Uint8Array<ArrayBuffer>>;
}

/** Makes a reader that runs in the calling thread. */
export function createReader(store: S3Store): S3Reader {
  return {
    list: (bucket, prefix, options) => store.list(bucket, prefix, options),
    stat: (object) => store.stat(object),
    fetchIntoFile: (act, request, fd, signal) => store.read(act, request, writeAtOffset(fd), signal),
    async readBytes(act, request, signal) {
      const bytes = new Uint8Array(request.end - request.start);
      const onBytes = (chunk: Uint8Array, offset: number): void => {
        bytes.set(chunk, offset - request.start);
      };
      await store.read(act, request, onBytes, signal);
      return bytes;
    },
    [Symbol.asyncDispose]() {
      store[Symbol.dispose]();
      return Promise.resolve();
    },
  };
}
