import { readFileSync } from "node:fs";
import { defaultProvider } from "@aws-sdk/credential-provider-node";
import { errnoOf, messageOf } from "../util/errors.js";
import { connectionErrors } from "../util/retry.js";
import {
  type CredentialRequest,
  CredentialsTimeoutError,
  type SearchLimits,
  recordRequests,
} from "./credential-requests.js";
import { CredentialsError, expiredCredentialsNames, isTransientResponse, statusOf } from "./failures.js";

const loginHint = "log in again: aws sso login";

const ignore = (): void => undefined;

type Provider = ReturnType<typeof defaultProvider>;

const noCredentialsHint = "set AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY, or AWS_PROFILE, or run under a role";

/**
 * The SDK's default chain of credential sources. Its errors say whether a source failed for a moment or there is none;
 * the SDK itself reports "Could not load credentials" for both.
 * @throws CredentialsError
 */
export function credentialsFrom(limits: SearchLimits): Provider {
  let chain: Provider | undefined;
  let sdkLog: string[] = [];
  // After a failed search the chain may still wait for the requests of that search, so the next one gets a new chain.
  const makeChain = (): Provider => {
    const log: string[] = [];
    sdkLog = log;
    return defaultProvider({
      ignoreCache: true,
      logger: {
        debug: (text: unknown) => log.push(String(text)),
        info: ignore,
        warn: ignore,
        error: ignore,
        trace: ignore,
      },
    });
  };
  let hadTemporary = false;
  return async (properties) => {
    const requests: CredentialRequest[] = [];
    const search = (chain ??= makeChain());
    sdkLog.length = 0;
    try {
      const found = await recordRequests(requests, limits, () => search(properties));
      hadTemporary ||= found.expiration !== undefined;
      return found;
    } catch (error) {
      chain = undefined;
      limits.signal.throwIfAborted();
      throw credentialsErrorFor(error, { requests, sdkLog, hadTemporary, env: process.env });
    }
  };
}

interface Search {
  readonly requests: readonly CredentialRequest[];
  /** Debug messages of the SDK. */
  readonly sdkLog: readonly string[];
  /** Whether temporary credentials were found before: then there is a service that hands them out. */
  readonly hadTemporary: boolean;
  readonly env: Readonly<Record<string, string | undefined>>;
}

function credentialsErrorFor(error: unknown, search: Search): CredentialsError {
  if (error instanceof CredentialsTimeoutError) {
    return transientError(error.message);
  }
  const request =
    search.requests.findLast(({ status }) => isTransientResponse("", status ?? 0)) ?? search.requests.at(-1);
  const status = statusOf(error);
  if (status !== undefined && error instanceof Error) {
    return errorFromResponse(request?.host ?? "the service of the role", {
      name: error.name,
      status,
      message: error.message,
    });
  }
  const errno = errnoOf(error) ?? "";
  if (connectionErrors.has(errno)) {
    return transientError(request === undefined ? messageOf(error) : `${request.host}: ${messageOf(error)}`);
  }
  if (/^E[A-Z]+$/.test(errno)) {
    return permanentError(
      messageOf(error),
      "make the file readable that AWS_WEB_IDENTITY_TOKEN_FILE, AWS_PROFILE or a similar variable names",
    );
  }
  // The profile names a program, and its output may be secret.
  if (search.sdkLog.some((text) => /-> (Command failed|Profile \S+ credential_process)/.test(text))) {
    return transientError("the credential_process of the profile failed");
  }
  return request === undefined ? errorWithoutRequest(error, search) : errorFromRequest(request, error, search);
}

/** The error for a response of STS, SSO or a similar service that the SDK has parsed. */
function errorFromResponse(host: string, answer: { name: string; status: number; message: string }): CredentialsError {
  const { name, status, message } = answer;
  if (status < 300) {
    return permanentError(
      `${host} answers with something other than credentials`,
      "check AWS_ENDPOINT_URL_STS and similar variables",
    );
  }
  const found = `${host} answers ${name}, ${status}: ${message}`;
  // A web identity token is a file that is rewritten before it expires, and each attempt reads it again.
  return isTransientResponse(name, status) ||
    expiredCredentialsNames.test(name) ||
    name.startsWith("IDPCommunicationError")
    ? transientError(found)
    : permanentError(
        found,
        "check the role, who may assume it, and AWS_ROLE_ARN, AWS_WEB_IDENTITY_TOKEN_FILE or AWS_PROFILE",
      );
}

function errorWithoutRequest(error: unknown, { env, sdkLog }: Search): CredentialsError {
  const variable = ["AWS_CONTAINER_CREDENTIALS_RELATIVE_URI", "AWS_CONTAINER_CREDENTIALS_FULL_URI"].find(
    (name) => (env[name] ?? "") !== "",
  );
  if (variable !== undefined) {
    return permanentError(
      `${variable} names no address that credentials may come from`,
      "expected https://…, or http:// with an address of this machine, of ECS (169.254.170.2) or of EKS (169.254.170.23)",
    );
  }
  const message = messageOf(error);
  if (!/Could not load credentials/.test(message)) {
    return permanentError(message, /sso/i.test(message) ? loginHint : noCredentialsHint);
  }
  const profile = env["AWS_PROFILE"] ?? "";
  return profile !== "" && sdkLog.some((text) => text.includes("Could not resolve credentials using profile"))
    ? permanentError(
        `profile ${profile} has no credentials`,
        "AWS_PROFILE must name a profile of ~/.aws/config or ~/.aws/credentials, with keys, a role or a program",
      )
    : noCredentials();
}

const metadataPath = "/latest/";

function errorFromRequest(request: CredentialRequest, error: unknown, { env, hadTemporary }: Search): CredentialsError {
  const { host, path, status, error: requestError } = request;
  const isMetadata = path.startsWith(metadataPath);
  const service = isMetadata ? `the EC2 metadata service at ${host}` : `the credentials service at ${host}`;
  if (status === undefined) {
    // The SDK asks this service last, on every machine.
    const isExpected =
      !isMetadata || hadTemporary || (env["AWS_EC2_METADATA_SERVICE_ENDPOINT"] ?? "") !== "" || isEc2();
    return isExpected
      ? transientError(`${service} does not answer: ${requestError ?? messageOf(error)}`)
      : noCredentials();
  }
  if (isTransientResponse("", status)) {
    return transientError(`${service} answers ${status}`);
  }
  if (isMetadata) {
    return status === 404
      ? permanentError("there are none, and this instance has no role", noCredentialsHint)
      : permanentError(
          `${service} answers ${status}`,
          status === 401
            ? "in a container, the instance's metadata options must allow 2 hops; or give the job credentials of its own"
            : noCredentialsHint,
        );
  }
  return status < 300
    ? permanentError(
        `${service} answers with something other than credentials`,
        "check AWS_CONTAINER_CREDENTIALS_FULL_URI",
      )
    : permanentError(
        `${service} refuses: ${status}`,
        host.includes("sso") ? loginHint : "check the role of the task or pod, and the token that it is given",
      );
}

function noCredentials(): CredentialsError {
  return permanentError("there are none", noCredentialsHint);
}

function transientError(found: string): CredentialsError {
  return new CredentialsError(`no credentials: ${found}`, undefined);
}

function permanentError(found: string, hint: string): CredentialsError {
  return new CredentialsError(`looking for AWS credentials: ${found}`, hint);
}

/** Whether the firmware says that this machine is an EC2 instance. */
function isEc2(): boolean {
  return [
    ["/sys/devices/virtual/dmi/id/sys_vendor", /^Amazon EC2/],
    ["/sys/hypervisor/uuid", /^ec2/],
  ].some(([path, text]) => {
    try {
      return (text as RegExp).test(readFileSync(path as string, "latin1"));
    } catch {
      return false; // not such a machine, or the file cannot be read
    }
  });
}
