import { isS3Uri } from "../spec/s3-uri.js";
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
      const shards = listings.flatMap((listing) => listing.shards);
      return {
        shards: shards.toSorted((one, other) => (one.uri < other.uri ? -1 : 1)),
        absent: listings.flatMap(({ absent }) => absent),
        folders: listings.flatMap(({ folders }) => folders),
        unmatched: listings.flatMap(({ unmatched }) => unmatched),
        missing: listings.flatMap(({ missing }) => missing),
        unread: listings.flatMap(({ unread }) => unread),
        tableRoots: listings.flatMap(({ tableRoots }) => tableRoots),
      };
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
