import { ListObjectsV2Command, type ListObjectsV2CommandOutput } from "@aws-sdk/client-s3";
import { type S3Uri, s3UriText } from "../spec/s3-uri.js";
import type { Attempt } from "./attempts.js";
import type { S3Call } from "./failures.js";

export interface ListedObject {
  readonly key: string;
  readonly etag: string;
  readonly sizeBytes: number;
}

/**
 * Pages of a listing of what begins with a prefix. `folder`: what has a slash after it is told by its beginning only.
 * `payer`: more of the request.
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
    const page = await attempt(call, (client, { signal }) => client.send(command, { abortSignal: signal }));
    yield page;
    token = page.NextContinuationToken;
    if (page.IsTruncated !== true || token === undefined) {
      return;
    }
  }
}

export function* objectsIn({ Contents = [] }: ListObjectsV2CommandOutput): Generator<ListedObject> {
  for (const { Key: key, ETag: etag, Size: sizeBytes } of Contents) {
    if (key !== undefined && etag !== undefined && sizeBytes !== undefined) {
      yield { key, etag, sizeBytes };
    }
  }
}
