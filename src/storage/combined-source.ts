import { isS3Uri } from "../spec/s3/s3-uri.js";
import { joinListings } from "./join-listings.js";
import type { Source } from "./port.js";

/** Combines a disk source and an S3 source: each URI and pattern goes to the one that it names. */
export function combineSources({ disk, s3 }: { readonly disk: Source; readonly s3: Source }): Source {
  const of = (uri: string): Source => (isS3Uri(uri) ? s3 : disk);
  return {
    readAhead: s3.readAhead,
    async list(patterns) {
      const listings = [
        await disk.list(patterns.filter((pattern) => !isS3Uri(pattern))),
        ...(patterns.some(isS3Uri) ? [await s3.list(patterns.filter(isS3Uri))] : []),
      ];
      return joinListings(listings);
    },
    listNames: (folder) => of(folder).listNames(folder),
    exists: (uri) => of(uri).exists(uri),
    open: (shard) => of(shard.uri).open(shard),
    async [Symbol.asyncDispose]() {
      await disk[Symbol.asyncDispose]();
      await s3[Symbol.asyncDispose]();
    },
  };
}
