/** An object in S3, or a pattern of some. */
export interface S3Uri {
  readonly bucket: string;
  /** The key without escapes. */
  readonly key: string;
}

const scheme = "s3://";

/** Whether a path of a spec is meant to be in S3, rightly written or not. */
export function isS3Uri(path: string): boolean {
  return /^s3:/i.test(path);
}

/** @throws Error where `s3UriProblem` says something */
export function parseS3Uri(path: string): S3Uri {
  const rest = path.slice(scheme.length);
  const at = rest.indexOf("/");
  if (!path.startsWith(scheme) || at < 1) {
    throw new Error(`not an S3 URI: ${path}`);
  }
  return { bucket: rest.slice(0, at), key: rest.slice(at + 1) };
}

export function s3UriText({ bucket, key }: S3Uri): string {
  return `${scheme}${bucket}/${key}`;
}

/** Stores that are not read or written, by the schemes of their URIs, and what to do instead. */
const otherStores: readonly (readonly [RegExp, string])[] = [
  [/^s3[an]:/i, "this is Hadoop's name of a place in S3; write s3:// in its place"],
  [
    /^(gs|gcs):/i,
    "Google Cloud Storage is not supported yet; copy the files (gcloud storage cp), or mount the bucket (gcsfuse) and name the path",
  ],
  [
    /^(abfss?|wasbs?|az|adl):/i,
    "Azure's storage is not supported yet; copy the files (azcopy), or mount the container (blobfuse2) and name the path",
  ],
  [
    /^(hdfs|dbfs|viewfs):/i,
    "this file system is not supported; copy the files to a disk or to S3, or mount it and name the path",
  ],
  [/^file:/i, "expected a path without file://"],
];

/** What is wrong with a URI of a store that is neither a disk nor S3, or undefined. */
export function otherStoreProblem(path: string): string | undefined {
  return otherStores.find(([store]) => store.test(path))?.[1];
}

/** Names that AWS gives, and the older and looser ones of other stores. */
const bucketName = /^[A-Za-z0-9][A-Za-z0-9._-]{1,254}$/;

const keyLimitBytes = 1024;

/** What is wrong with a path in S3, or undefined. */
export function s3UriProblem(path: string): string | undefined {
  const [, bucket, key] = /^s3:\/\/([^/]*)(?:\/(.*))?$/s.exec(path) ?? [];
  if (bucket === undefined) {
    return "expected s3://bucket/key, in lower case";
  }
  if (!bucketName.test(bucket)) {
    return "expected s3://bucket/key; the bucket's name may have letters, digits, dots, - and _, and no wildcards";
  }
  if (key === undefined || key === "") {
    return "expected s3://bucket/key: after the bucket the name of an object is missing";
  }
  if (key.split("/").some((segment) => segment === "." || segment === "..")) {
    return "expected a key without . or .. between slashes: in S3 they are names, not folders";
  }
  return new TextEncoder().encode(key).length > keyLimitBytes
    ? `expected a key of at most ${keyLimitBytes} bytes`
    : undefined;
}
