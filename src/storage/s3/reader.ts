import type { S3Uri } from "../../spec/s3-uri.js";
import { writingTo } from "../../s3/download.js";
import type { ListedObject } from "../../s3/listing.js";
import type { ListOptions, ObjectFacts, ReadRequest, S3Store } from "../../s3/store.js";

/** A store as sources need it: what it fetches goes into files, and its work may be done in another thread. */
export interface S3Reader extends AsyncDisposable {
  /** As `S3Store.list`. */
  list(bucket: string, prefix: string, options?: ListOptions): AsyncIterable<ListedObject>;
  /** As `S3Store.look`. */
  look(object: S3Uri): Promise<ObjectFacts | undefined>;
  /**
   * Reads bytes into an open file, to where they are in the object; nothing is written any more once it is settled.
   * @throws JobError as `S3Store.read`; what the disk says
   */
  fetch(doing: string, request: ReadRequest, fd: number, signal?: AbortSignal): Promise<void>;
  /** Reads bytes into memory. @throws JobError as `S3Store.read` */
  bytes(doing: string, request: ReadRequest, signal?: AbortSignal): Promise<Uint8Array<ArrayBuffer>>;
}

/** Reads in this thread. */
export function readerOf(store: S3Store): S3Reader {
  return {
    list: (bucket, prefix, options) => store.list(bucket, prefix, options),
    look: (object) => store.look(object),
    fetch: (doing, request, fd, signal) => store.read(doing, request, writingTo(fd), signal),
    async bytes(doing, request, signal) {
      const bytes = new Uint8Array(request.end - request.start);
      const take = (piece: Uint8Array, at: number): void => {
        bytes.set(piece, at - request.start);
      };
      await store.read(doing, request, take, signal);
      return bytes;
    },
    [Symbol.asyncDispose]() {
      store[Symbol.dispose]();
      return Promise.resolve();
    },
  };
}
