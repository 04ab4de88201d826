import { ListObjectsV2Command, type ListObjectsV2CommandOutput } from "@aws-sdk/client-s3";
import { type S3Uri, s3UriText } from "../spec/s3-uri.js";
import type { Attempt } from "./attempts.js";
import { BrokenTransfer, type S3Call } from "./failures.js";

export interface ListedObject {
  readonly key: string;
  readonly etag: string;
  readonly sizeBytes: number;
}

/**
 * Pages of a listing of what begins with a prefix. `folder`: what has a slash after it is told by its beginning only.
 * `payer`: more of the request. A page that is not whole is asked for again: the objects that it leaves out would be
 * missed by nobody.
 */
export async function* listPages(
  attempt: Attempt,
  { bucket, key }: S3Uri,
  { folder, payer = {} }: { folder: boolean; payer?: object },
): AsyncGenerator<ListObjectsV2CommandOutput> {
  const object = { bucket, key };
  const call: S3Call = { doing: `listing ${s3UriText(object)}`, action: "ListBucket", object };
  const delimiter = folder ? { Delimiter: "/" } : {};
  for (let token: string | undefined; ; ) {
    const after = token === undefined ? {} : { ContinuationToken: token };
    const command = new ListObjectsV2Command({ Bucket: bucket, Prefix: key, ...delimiter, ...after, ...payer });
    const page = await attempt(call, async (client, { signal }) => {
      const answer = await client.send(command, { abortSignal: signal });
      refuseIncomplete(answer, token);
      return answer;
    });
    yield page;
    if (page.IsTruncated !== true) {
      return;
    }
    token = page.NextContinuationToken;
  }
}

/** @throws BrokenTransfer */
function refuseIncomplete(page: ListObjectsV2CommandOutput, token: string | undefined): void {
  const { Name: name, IsTruncated: isTruncated, NextContinuationToken: next, Contents: objects = [] } = page;
  if (name === undefined && isTruncated === undefined) {
    throw new BrokenTransfer("the store's answer is no listing");
  }
  if (isTruncated === true && (next === undefined || next === "" || next === token)) {
    throw new BrokenTransfer("the store says that its listing goes on, and not from where");
  }
  if (objects.some(({ Key: key, ETag: etag, Size: size }) => [key, etag, size].includes(undefined) || etag === "")) {
    throw new BrokenTransfer("the store lists an object without its key, ETag or size");
  }
}

export function* objectsIn({ Contents = [] }: ListObjectsV2CommandOutput): Generator<ListedObject> {
  for (const { Key: key, ETag: etag, Size: sizeBytes } of Contents) {
    if (key !== undefined && etag !== undefined && sizeBytes !== undefined) {
      yield { key, etag, sizeBytes };
    }
  }
}

/** Names that go on below, with the slash at their end; none unless the listing is that of a folder. */
export function* foldersIn({ CommonPrefixes = [] }: ListObjectsV2CommandOutput): Generator<string> {
  for (const { Prefix: prefix } of CommonPrefixes) {
    if (prefix !== undefined) {
      yield prefix;
    }
  }
}
