import { S3ServiceException } from "@aws-sdk/client-s3";
import { errnoOf, JobError, messageOf } from "../util/errors.js";
import { connectionErrors } from "../util/retry.js";
import { s3UriText, type S3Uri } from "../spec/s3-uri.js";

/** What was asked of the store: names the permission that it takes. */
export type S3Action = "GetObject" | "ListBucket" | "PutObject" | "DeleteObject";

export interface S3Call {
  /** What is being done, as messages begin. */
  readonly doing: string;
  readonly action: S3Action;
  readonly object: S3Uri;
}

/** What a failed call means. */
export type S3Failure =
  /** A transient error. */
  | { readonly kind: "transient"; readonly found: string }
  /** As `transient`, once the credentials are looked up again; `error`: where that changes nothing. */
  | { readonly kind: "credentials"; readonly expired: boolean; readonly found: string; readonly error: JobError }
  /** The object is not there. */
  | { readonly kind: "missing" }
  /** It is not the one whose ETag was given, or shorter than planned. */
  | { readonly kind: "changed"; readonly found: string }
  /** The name is taken. */
  | { readonly kind: "exists" }
  | { readonly kind: "permanent"; readonly error: JobError }
  | { readonly kind: "bug" };

/** A body that ended early, or a store that fell silent: thrown by our own reading of it. */
export class BrokenTransfer extends Error {
  override readonly name = "BrokenTransfer";
}

/** No credentials could be had. `hint`: what to do about it; undefined: their source may be back in a moment. */
export class CredentialsFault extends Error {
  override readonly name = "CredentialsFault";
  readonly hint: string | undefined;

  constructor(message: string, hint: string | undefined) {
    super(message);
    this.hint = hint;
  }
}

const socketErrors = new Set([...connectionErrors, "ERR_STREAM_PREMATURE_CLOSE"]);

/** What stores call requests that may be made again, whatever the status. */
const transientNames =
  /^(InternalError|ServiceUnavailable|SlowDown|SlowDownRead|SlowDownWrite|Throttl\w*|RequestTimeout|RequestTimeTooSkewed|OperationAborted|TooManyRequests\w*|TimeoutError|BandwidthLimitExceeded|ServerBusy|IncompleteBody|BadDigest|XAmzContentSHA256Mismatch|XMinioServerNotInitialized)$/;
export const expiredNames = /^(ExpiredToken(Exception)?|TokenRefreshRequired|RequestExpired|InvalidToken)$/;
const wrongKeyNames = /^(InvalidAccessKeyId|SignatureDoesNotMatch|InvalidClientTokenId|XAdminUserNotFound)$/;

export function classify(error: unknown, call: S3Call): S3Failure {
  if (error instanceof BrokenTransfer) {
    return { kind: "transient", found: error.message };
  }
  if (error instanceof CredentialsFault) {
    return error.hint === undefined
      ? { kind: "transient", found: error.message }
      : permanent(error.message, { hint: error.hint });
  }
  const name = error instanceof Error ? error.name : "";
  if (error instanceof S3ServiceException || statusOf(error) !== undefined) {
    return classifyAnswer(name, statusOf(error) ?? 0, { error, call });
  }
  // Several addresses of one name, all tried in vain.
  if (error instanceof AggregateError && error.errors.length > 0) {
    return classify(error.errors[0], call);
  }
  const errno = errnoOf(error) ?? "";
  if (socketErrors.has(errno) || name === "TimeoutError") {
    const lost = errno === "ECONNRESET" || errno === "ERR_STREAM_PREMATURE_CLOSE";
    return { kind: "transient", found: lost ? "the connection was lost" : messageOf(error) };
  }
  const certificate = /^(ERR_TLS_|CERT_|DEPTH_ZERO_SELF_SIGNED_CERT|SELF_SIGNED_CERT|UNABLE_TO_)/;
  return certificate.test(errno)
    ? permanent(`${call.doing}: the store's certificate is not to be trusted: ${messageOf(error)}`, {
        hint: "NODE_EXTRA_CA_CERTS names a file with the authority's certificate",
      })
    : { kind: "bug" };
}

/** Whether a store refuses a request for a header that it does not know. */
export function isNotImplemented(error: unknown): boolean {
  return statusOf(error) === 501;
}

/** Whether what answered so may answer otherwise a little later. */
export function passes(name: string, status: number): boolean {
  return transientNames.test(name) || status >= 500 || status === 429 || status === 408;
}

/** Of an answer that the SDK read. */
export function statusOf(error: unknown): number | undefined {
  const metadata: unknown = typeof error === "object" && error !== null ? Reflect.get(error, "$metadata") : undefined;
  const status: unknown =
    typeof metadata === "object" && metadata !== null ? Reflect.get(metadata, "httpStatusCode") : undefined;
  return typeof status === "number" ? status : undefined;
}

function classifyAnswer(name: string, status: number, { error, call }: { error: unknown; call: S3Call }): S3Failure {
  const found = `the store says ${[name === "Unknown" || name === "" ? undefined : name, status].filter(Boolean).join(", ")}`;
  if (wrongKeyNames.test(name) || expiredNames.test(name)) {
    return { kind: "credentials", expired: expiredNames.test(name), found, error: wrongCredentials(call, found) };
  }
  if (status === 501) {
    return permanent(`${call.doing}: ${found}: ${messageOf(error)}`, {
      hint: "this store lacks what is needed for it",
    });
  }
  if (passes(name, status) || status === 409) {
    return { kind: "transient", found };
  }
  switch (status) {
    case 304:
    case 412:
      return call.action === "PutObject" ? { kind: "exists" } : { kind: "changed", found: "its ETag is another one" };
    case 416:
      return { kind: "changed", found: "it is shorter than planned" };
    case 404:
      return name === "NoSuchBucket"
        ? permanent(`${call.doing}: there is no bucket ${call.object.bucket}`, {
            code: "FILE_MISSING",
            hint: "check the bucket's name, and endpoint and region, in the spec",
          })
        : { kind: "missing" };
    case 401:
    case 403:
      return refused(name, call, found);
    default:
      return permanent(`${call.doing}: ${found}: ${messageOf(error)}`, { hint: "check the path, endpoint and region" });
  }
}

function refused(name: string, { doing, action, object }: S3Call, found: string): S3Failure {
  if (name === "InvalidObjectState") {
    return permanent(`${doing}: ${s3UriText(object)} is archived`, { hint: "restore it, then run again" });
  }
  const resource = action === "ListBucket" ? object.bucket : `${object.bucket}/${object.key}`;
  const also =
    action === "GetObject"
      ? "; without s3:ListBucket on the bucket, an object that is not there is refused like this, too"
      : "";
  const error = new JobError("PERMISSION", `${doing}: access denied: ${found}`, {
    hint: `these credentials need s3:${action} on arn:aws:s3:::${resource}${also}`,
  });
  // The answer to a HEAD has no body that would tell wrong credentials from a missing permission.
  return name === "AccessDenied" ? { kind: "permanent", error } : { kind: "credentials", expired: false, found, error };
}

function wrongCredentials({ doing }: S3Call, found: string): JobError {
  return new JobError("PERMISSION", `${doing}: the credentials are wrong: ${found}`, {
    hint: "check AWS_ACCESS_KEY_ID, AWS_SECRET_ACCESS_KEY, AWS_PROFILE or the role, and the endpoint",
  });
}

function permanent(
  message: string,
  { code = "PERMISSION", hint }: { code?: "PERMISSION" | "FILE_MISSING"; hint: string },
): S3Failure {
  return { kind: "permanent", error: new JobError(code, message, { hint }) };
}
