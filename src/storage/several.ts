import { isS3Uri } from "../spec/s3-uri.js";
import { joinListings } from "./join-listings.js";
import type { Source } from "./port.js";

/** Some shards on a disk, others in S3. */
export function severalSources({ disk, s3 }: { readonly disk: Source; readonly s3: Source }): Source {
  const of = (uri: string): Source => (isS3Uri(uri) ? s3 : disk);
  return {
    ahead: s3.ahead,
    async list(patterns) {
      const listings = [
        await disk.list(patterns.filter((pattern) => !isS3Uri(pattern))),
        ...(patterns.some(isS3Uri) ? [await s3.list(patterns.filter(isS3Uri))] : []),
      ];
      return joinListings(listings);
    },
    names: (folder) => of(folder).names(folder),
    exists: (uri) => of(uri).exists(uri),
    open: (shard) => of(shard.uri).open(shard),
    async [Symbol.asyncDispose]() {
      await disk[Symbol.asyncDispose]();
      await s3[Symbol.asyncDispose]();
    },
  };
}
