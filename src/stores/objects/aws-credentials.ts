import { createHash } from "node:crypto";
import { subscribe } from "node:diagnostics_channel";
import type { ClientRequest } from "node:http";
import { defaultProvider } from "@aws-sdk/credential-provider-node";
import { Hash } from "@smithy/core/serde";
import { SignatureV4 } from "@smithy/signature-v4";
import { errnoOf, messageOf } from "../../base/errors.js";
import { connectionErrors } from "../../base/retry.js";
import { CredentialsError } from "./protocol.js";

interface SearchLimits {
  /** The whole search, programs that the SDK runs included: a source that hangs is one that is away. */
  readonly searchMs: number;
  readonly signal: AbortSignal;
}

type Provider = ReturnType<typeof defaultProvider>;

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
    const logger = { debug: (text: unknown) => log.push(String(text)), info: ignore, warn: ignore, error: ignore };
    return defaultProvider({ ignoreCache: true, logger, ...(containerVariable() === undefined ? {} : unlimited) });
  };
  let hadTemporary = false;
  return async (properties) => {
    const search = (chain ??= makeChain());
    sdkLog.length = 0;
    try {
      const credentials = await within(search(properties), limits);
      hadTemporary ||= credentials.expiration !== undefined;
      return credentials;
    } catch (error) {
      chain = undefined;
      limits.signal.throwIfAborted();
      throw error instanceof CredentialsError ? error : judge(error, sdkLog, hadTemporary);
    }
  };
}

const ignore = (): void => undefined;

/** The SDK would only warn, on stderr, that a container's service is slow. The search has a limit, and each call retries. */
const unlimited = { timeout: 2 ** 30, maxRetries: 0 } as const;

function containerVariable(): string | undefined {
  const names = ["AWS_CONTAINER_CREDENTIALS_RELATIVE_URI", "AWS_CONTAINER_CREDENTIALS_FULL_URI"];
  return names.find((name) => (process.env[name] ?? "") !== "");
}

/** At ECS, the address is a path. */
function hostOf(address = ""): string | undefined {
  const ecs = "http://169.254.170.2";
  return address !== "" && URL.canParse(address, ecs) ? new URL(address, ecs).host : undefined;
}

/** A request to the service that hands out credentials in a container, or on an EC2 instance. */
interface ServiceRequest {
  /** `host:port`. */
  readonly host: string;
  readonly isMetadata: boolean;
  /** undefined: no response arrived. */
  status?: number | undefined;
}

/** What is known of these requests: the SDK neither tells their answers, nor ends one that hangs. */
const asked = { last: undefined as ServiceRequest | undefined, open: new Set<ClientRequest>(), searches: 0 };

const metadataHosts: ReadonlySet<string> = new Set(["169.254.169.254", "[fd00:ec2::254]"]);

subscribe("http.client.request.start", (message) => {
  const { request } = message as { readonly request: ClientRequest };
  const host = String(request.getHeader("host"));
  const isMetadata = metadataHosts.has(host) || host === hostOf(process.env["AWS_EC2_METADATA_SERVICE_ENDPOINT"]);
  if (!isMetadata && host !== hostOf(process.env[containerVariable() ?? ""])) {
    return;
  }
  const known: ServiceRequest = { host, isMetadata };
  asked.last = known;
  asked.open.add(request);
  request.once("response", ({ statusCode }) => (known.status = statusCode));
  request.once("close", () => asked.open.delete(request));
  endUnwanted(); // the SDK goes on trying after a search has ended
});

/** Requests of searches that are over would keep a finished process alive. */
function endUnwanted(): void {
  if (asked.searches === 0) {
    for (const request of asked.open) {
      request.destroy();
    }
  }
}

async function within<T>(search: Promise<T>, { searchMs, signal }: SearchLimits): Promise<T> {
  let timer: NodeJS.Timeout | undefined;
  let stop = ignore;
  asked.last = asked.searches === 0 ? undefined : asked.last;
  asked.searches += 1;
  try {
    return await new Promise<T>((resolve, reject) => {
      timer = setTimeout(reject, searchMs, transient(`none came within ${searchMs / 1000} s`));
      stop = () => {
        reject(signal.reason as Error);
      };
      signal.addEventListener("abort", stop);
      search.then(resolve, reject);
    });
  } finally {
    clearTimeout(timer);
    signal.removeEventListener("abort", stop);
    asked.searches -= 1;
    endUnwanted();
  }
}

/** @param sdkLog debug messages of the SDK. @param hadTemporary then there is a service that hands credentials out */
function judge(error: unknown, sdkLog: readonly string[], hadTemporary: boolean): CredentialsError {
  const status = statusOf(error);
  if (status !== undefined && error instanceof Error) {
    return judgeResponse(error, status);
  }
  const errno = errnoOf(error) ?? "";
  if (connectionErrors.has(errno)) {
    return transient(messageOf(error));
  }
  if (/^E[A-Z]+$/.test(errno)) {
    return permanent(
      messageOf(error),
      "make the file readable that AWS_WEB_IDENTITY_TOKEN_FILE, AWS_PROFILE or a similar variable names",
    );
  }
  // The profile names a program, and its output may be secret.
  if (sdkLog.some((text) => /-> (Command failed|Profile \S+ credential_process)/.test(text))) {
    return transient("the credential_process of the profile failed");
  }
  if (asked.last !== undefined) {
    return judgeService(asked.last, hadTemporary);
  }
  const variable = containerVariable();
  if (variable !== undefined) {
    return permanent(
      `${variable} names no address that credentials may come from`,
      "expected https://…, or http:// with an address of this machine, of ECS (169.254.170.2) or of EKS (169.254.170.23)",
    );
  }
  const message = messageOf(error);
  if (!/Could not load credentials/.test(message)) {
    return permanent(message, /sso/i.test(message) ? "log in again: aws sso login" : noCredentialsHint);
  }
  const profile = process.env["AWS_PROFILE"] ?? "";
  return profile !== "" && sdkLog.some((text) => text.includes("Could not resolve credentials using profile"))
    ? permanent(
        `profile ${profile} has no credentials`,
        "AWS_PROFILE must name a profile of ~/.aws/config or ~/.aws/credentials, with keys, a role or a program",
      )
    : noCredentials();
}

/** Judges the response of STS, SSO or a similar service that the SDK has parsed. */
function judgeResponse({ name, message }: Error, status: number): CredentialsError {
  if (status < 300) {
    return permanent(
      "the service of the role answers with something other than credentials",
      "check AWS_ENDPOINT_URL_STS and similar variables",
    );
  }
  const finding = `the service of the role answers ${name}, ${status}: ${message}`;
  // A web identity token is a file that is rewritten before it expires, and each attempt reads it again.
  return isTransientResponse(name, status) ||
    expiredCredentialsNames.test(name) ||
    name.startsWith("IDPCommunicationError")
    ? transient(finding)
    : permanent(
        finding,
        "check the role, who may assume it, and AWS_ROLE_ARN, AWS_WEB_IDENTITY_TOKEN_FILE or AWS_PROFILE",
      );
}

function judgeService({ host, isMetadata, status }: ServiceRequest, hadTemporary: boolean): CredentialsError {
  const service = isMetadata ? `the EC2 metadata service at ${host}` : `the credentials service at ${host}`;
  if (status === undefined) {
    // The SDK asks EC2's service last, on every machine.
    return !isMetadata || hadTemporary || (process.env["AWS_EC2_METADATA_SERVICE_ENDPOINT"] ?? "") !== ""
      ? transient(`${service} does not answer`)
      : noCredentials();
  }
  if (isTransientResponse("", status)) {
    return transient(`${service} answers ${status}`);
  }
  if (isMetadata && status === 404) {
    return permanent("there are none, and this instance has no role", noCredentialsHint);
  }
  return permanent(
    status < 300 ? `${service} answers with something other than credentials` : `${service} refuses: ${status}`,
    "check the role of the instance, task or pod, and the token that it is given; in a container, the instance's metadata options must allow 2 hops",
  );
}

const noCredentialsHint = "set AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY, or AWS_PROFILE, or run under a role";

function noCredentials(): CredentialsError {
  return permanent("there are none", noCredentialsHint);
}

function transient(finding: string): CredentialsError {
  return new CredentialsError(`no credentials: ${finding}`, undefined);
}

function permanent(finding: string, hint: string): CredentialsError {
  return new CredentialsError(`looking for AWS credentials: ${finding}`, hint);
}

interface UnsignedRequest {
  readonly method: "GET" | "POST";
  readonly url: URL;
  /** With names in lower case. */
  readonly headers: Readonly<Record<string, string>>;
  readonly body: readonly Uint8Array[];
}

/** The region and the service that a signature is valid for. */
export interface SigningScope {
  readonly region: string;
  readonly service: string;
}

/** Temporary credentials are renewed before they expire. @throws CredentialsError */
type SignAws = (request: UnsignedRequest, scope: SigningScope) => Promise<Readonly<Record<string, string>>>;

/**
 * Signs requests with Signature Version 4, with the credentials that requests to S3 are signed with.
 * @param nowMs the time of signatures, in milliseconds since 1970
 */
export function createSigner(limits: SearchLimits, nowMs: () => number = Date.now): SignAws {
  const credentials = credentialsFrom(limits);
  return async ({ method, url, headers, body }, { region, service }) => {
    const signer = new SignatureV4({ credentials, region, service, sha256: Hash.bind(null, "sha256") });
    const hash = createHash("sha256");
    for (const piece of body) {
      hash.update(piece);
    }
    const { protocol, hostname, host, pathname: path, searchParams } = url;
    const query = Object.fromEntries([...searchParams.keys()].map((name) => [name, searchParams.getAll(name)]));
    // Its digest is in the header: the signer reads a body in one piece only.
    const signed = { ...headers, host, "x-amz-content-sha256": hash.digest("hex") };
    const request = { method, protocol, hostname, path, query, headers: signed };
    const { host: _, ...sent } = (await signer.sign(request, { signingDate: new Date(nowMs()) })).headers;
    return sent; // each request has its host anyway
  };
}

/** The hosts of services of AWS that run models or have tables, such as runtime.sagemaker.eu-west-1.amazonaws.com. */
const awsHost =
  /(?:^|\.)(sagemaker|execute-api|lambda-url|glue|s3tables)\.([a-z]{2}(?:-[a-z]+)+-\d+)\.(?:vpce\.)?(?:amazonaws\.com(?:\.cn)?|api\.aws|on\.aws)$/;

/** Reads the scope of signatures from a host of AWS; undefined for another host, such as a proxy of one's own. */
export function scopeOfHost(host: string): SigningScope | undefined {
  const [, service = "", region = ""] = awsHost.exec(host.toLowerCase()) ?? [];
  return service === "" ? undefined : { region, service: service === "lambda-url" ? "lambda" : service };
}

/** Error codes of requests that may be retried for every status. */
const transientNames =
  /^(InternalError|ServiceUnavailable|SlowDown|SlowDownRead|SlowDownWrite|Throttl\w*|RequestTimeout|RequestTimeTooSkewed|OperationAborted|TooManyRequests\w*|TimeoutError|BandwidthLimitExceeded|ServerBusy|IncompleteBody|BadDigest|XAmzContentSHA256Mismatch|XMinioServerNotInitialized)$/;

/** Error codes that stores give for expired credentials. */
export const expiredCredentialsNames = /^(ExpiredToken(Exception)?|TokenRefreshRequired|RequestExpired|InvalidToken)$/;

/** Whether a response with this error code and status is transient. */
export function isTransientResponse(name: string, status: number): boolean {
  return transientNames.test(name) || status >= 500 || status === 429 || status === 408;
}

/** The HTTP status of an error that the SDK made from a response; undefined for other errors. */
export function statusOf(error: unknown): number | undefined {
  const status: unknown = Reflect.get(Object(Reflect.get(Object(error), "$metadata")), "httpStatusCode");
  return typeof status === "number" ? status : undefined;
}
