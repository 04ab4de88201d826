import { ListObjectsV2Command, type ListObjectsV2CommandOutput } from "@aws-sdk/client-s3";
import { type S3Uri, s3UriText } from "../spec/s3/s3-uri.js";
import type { SendRequest } from "./requests.js";
import { BrokenTransfer } from "../net/http-failures.js";
import { type S3Call } from "./failures.js";

/** An object, as a listing reports it. */
export interface ListedObject {
  readonly key: string;
  readonly etag: string;
  readonly sizeBytes: number;
}

/**
 * Lists the keys that start with `key`, a page at a time. With `folder`, keys that have a slash after the prefix are
 * listed by their common prefix only. `payer` is added to each request. An incomplete page is requested again: nothing
 * else would notice the objects that it leaves out.
 */
export async function* listPages(
  sendRequest: SendRequest,
  { bucket, key }: S3Uri,
  { folder, payer = {} }: { folder: boolean; payer?: object },
): AsyncGenerator<ListObjectsV2CommandOutput> {
  const object = { bucket, key };
  const call: S3Call = { act: `listing ${s3UriText(object)}`, action: "ListBucket", object };
  const delimiter = folder ? { Delimiter: "/" } : {};
  for (let token: string | undefined; ; ) {
    const after = token === undefined ? {} : { ContinuationToken: token };
    const command = new ListObjectsV2Command({ Bucket: bucket, Prefix: key, ...delimiter, ...after, ...payer });
    const page = await sendRequest(call, async (client, { signal }) => {
      const response = await client.send(command, { abortSignal: signal });
      checkComplete(response, token);
      return response;
    });
    yield page;
    if (page.IsTruncated !== true) {
      return;
    }
    token = page.NextContinuationToken;
  }
}

/** @throws BrokenTransfer when a page lacks what a listing must have */
function checkComplete(page: ListObjectsV2CommandOutput, token: string | undefined): void {
  const { Name: name, IsTruncated: isTruncated, NextContinuationToken: next, Contents: objects = [] } = page;
  if (name === undefined && isTruncated === undefined) {
    throw new BrokenTransfer("the store's response is not a listing");
  }
  if (isTruncated === true && (next === undefined || next === "" || next === token)) {
    throw new BrokenTransfer("the store's listing is truncated, and does not say where it continues");
  }
  if (objects.some(({ Key: key, ETag: etag, Size: size }) => [key, etag, size].includes(undefined) || etag === "")) {
    throw new BrokenTransfer("the store lists an object without its key, ETag or size");
  }
}

/** The objects on a page. */
export function* objectsOf({ Contents = [] }: ListObjectsV2CommandOutput): Generator<ListedObject> {
  for (const { Key: key, ETag: etag, Size: sizeBytes } of Contents) {
    if (key !== undefined && etag !== undefined && sizeBytes !== undefined) {
      yield { key, etag, sizeBytes };
    }
  }
}

/** The common prefixes on a page, each with the slash at its end; none unless `folder` was set. */
export function* foldersOf({ CommonPrefixes = [] }: ListObjectsV2CommandOutput): Generator<string> {
  for (const { Prefix: prefix } of CommonPrefixes) {
    if (prefix !== undefined) {
      yield prefix;
    }
  }
}
