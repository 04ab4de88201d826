import { classifyUnanswered, type ObjectCall, type ObjectFailure, permanent } from "../objects/protocol.js";
import { errnoOf, JobError, messageOf } from "../util/errors.js";
import { objectUriText } from "../spec/uri.js";

/** The actions of calls, as IAM names the permissions for them. */
const actions = { list: "ListBucket", read: "GetObject", write: "PutObject", remove: "DeleteObject" } as const;

/** Error codes of requests that may be retried for every status. */
const transientNames =
  /^(InternalError|ServiceUnavailable|SlowDown|SlowDownRead|SlowDownWrite|Throttl\w*|RequestTimeout|RequestTimeTooSkewed|OperationAborted|TooManyRequests\w*|TimeoutError|BandwidthLimitExceeded|ServerBusy|IncompleteBody|BadDigest|XAmzContentSHA256Mismatch|XMinioServerNotInitialized)$/;
/** Error codes that stores give for expired credentials. */
export const expiredCredentialsNames = /^(ExpiredToken(Exception)?|TokenRefreshRequired|RequestExpired|InvalidToken)$/;
const wrongKeyNames = /^(InvalidAccessKeyId|SignatureDoesNotMatch|InvalidClientTokenId|XAdminUserNotFound)$/;

/** Tells what a failed call means, from the SDK's error or the socket's. */
export function classify(error: unknown, call: ObjectCall): ObjectFailure {
  const name = error instanceof Error ? error.name : "";
  const status = statusOf(error);
  if (status !== undefined) {
    return classifyResponse(name, status, { error, call });
  }
  // The SDK calls lost connections timeouts, too.
  if (["ECONNRESET", "ERR_STREAM_PREMATURE_CLOSE"].includes(errnoOf(error) ?? "")) {
    return { kind: "transient", found: "the connection was lost" };
  }
  return name === "TimeoutError"
    ? { kind: "transient", found: timeoutText(messageOf(error)) }
    : classifyUnanswered(error, call);
}

/** Words what the SDK's own timers call by the names of its options. */
function timeoutText(message: string): string {
  const [, silenceMs] = /timed out after (\d+) ms of inactivity/.exec(message) ?? [];
  return silenceMs === undefined
    ? message.replace(/^@smithy.* - /, "")
    : `the store was silent for ${Number(silenceMs) / 1000} s`;
}

/** Whether a response with this error code and status is transient. */
export function isTransientResponse(name: string, status: number): boolean {
  return transientNames.test(name) || status >= 500 || status === 429 || status === 408;
}

/** The HTTP status of an error that the SDK made from a response; undefined for other errors. */
export function statusOf(error: unknown): number | undefined {
  const status: unknown = Reflect.get(Object(Reflect.get(Object(error), "$metadata")), "httpStatusCode");
  return typeof status === "number" ? status : undefined;
}

function classifyResponse(
  name: string,
  status: number,
  { error, call }: { error: unknown; call: ObjectCall },
): ObjectFailure {
  if (status < 300) {
    return { kind: "transient", found: "the store's response cannot be read" }; // of a proxy, or cut off
  }
  const isNamed = name !== "Unknown" && name !== "";
  const found = `the store says ${isNamed ? `${name}, ` : ""}${status}`;
  if (wrongKeyNames.test(name) || expiredCredentialsNames.test(name)) {
    return {
      kind: "credentials",
      expired: expiredCredentialsNames.test(name),
      found,
      error: wrongCredentials(call, found),
    };
  }
  if (status === 501) {
    const hint = "this store does not support a feature that the job needs";
    return { ...permanent(`${call.act}: ${found}: ${messageOf(error)}`, hint), kind: "unsupported" };
  }
  if (isTransientResponse(name, status) || status === 409) {
    return { kind: "transient", found };
  }
  switch (status) {
    case 304:
    case 412:
      return call.action === "write" ? { kind: "exists" } : { kind: "changed", found: "its ETag has changed" };
    case 416:
      return { kind: "changed", found: "it is shorter than planned" };
    case 404:
      return name === "NoSuchBucket"
        ? permanent(
            `${call.act}: there is no bucket ${call.object.bucket}`,
            "check the bucket's name, and endpoint and region, in the spec",
            "FILE_MISSING",
          )
        : { kind: "missing" };
    case 401:
    case 403:
      return accessDenied(name, call, found);
    default: {
      const hint = "check the path, endpoint and region";
      const refusal = permanent(`${call.act}: ${found}: ${messageOf(error)}`, hint);
      // A response to HEAD has no body: credentials that have expired look like any other wrong request.
      return status === 400 && !isNamed ? { ...refusal, kind: "credentials", expired: false, found } : refusal;
    }
  }
}

function accessDenied(name: string, { act, action, object }: ObjectCall, found: string): ObjectFailure {
  if (name === "InvalidObjectState") {
    return permanent(`${act}: ${objectUriText({ scheme: "s3", ...object })} is archived`, "restore it, then run again");
  }
  const resource = action === "list" ? object.bucket : `${object.bucket}/${object.key}`;
  const also =
    action === "read" ? "; without s3:ListBucket on the bucket, a missing object is refused in the same way" : "";
  const error = new JobError("PERMISSION", `${act}: access denied: ${found}`, {
    hint: `these credentials need s3:${actions[action]} on arn:aws:s3:::${resource}${also}`,
  });
  // A response to HEAD has no body, so wrong credentials and a missing permission look the same.
  return name === "AccessDenied" ? { kind: "permanent", error } : { kind: "credentials", expired: false, found, error };
}

function wrongCredentials({ act }: ObjectCall, found: string): JobError {
  return new JobError("PERMISSION", `${act}: the credentials are wrong: ${found}`, {
    hint: "check AWS_ACCESS_KEY_ID, AWS_SECRET_ACCESS_KEY, AWS_PROFILE or the role, and the endpoint",
  });
}
