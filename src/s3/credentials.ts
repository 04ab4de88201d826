import { subscribe } from "node:diagnostics_channel";
import type { ClientRequest } from "node:http";
import { defaultProvider } from "@aws-sdk/credential-provider-node";
import { errnoOf, messageOf } from "../util/errors.js";
import { connectionErrors } from "../util/retry.js";
import { CredentialsError, expiredCredentialsNames, isTransientResponse, statusOf } from "./failures.js";

/** Limits of one search for credentials. */
export interface SearchLimits {
  /** The whole search, programs that the SDK runs included: a source that hangs is one that is away. */
  readonly searchMs: number;
  /** The job's signal; the search rejects with its reason. */
  readonly signal: AbortSignal;
}

/** A request to the service that hands out credentials in a container, or on an EC2 instance. */
interface ServiceRequest {
  /** `host:port`. */
  readonly host: string;
  readonly isMetadata: boolean;
  /** undefined: no response arrived. */
  status?: number | undefined;
}

const metadataHosts: ReadonlySet<string> = new Set(["169.254.169.254", "[fd00:ec2::254]"]);

/** The host of an address, or of a path at ECS. */
function hostOf(address = ""): string | undefined {
  const ecs = "http://169.254.170.2";
  return address !== "" && URL.canParse(address, ecs) ? new URL(address, ecs).host : undefined;
}

/** What is known of these requests: the SDK neither tells their answers, nor ends one that hangs. */
const asked = { last: undefined as ServiceRequest | undefined, open: new Set<ClientRequest>(), searches: 0 };

subscribe("http.client.request.start", (message) => {
  const { request } = message as { readonly request: ClientRequest };
  const { env } = process;
  const host = String(request.getHeader("host"));
  const isMetadata = metadataHosts.has(host) || host === hostOf(env["AWS_EC2_METADATA_SERVICE_ENDPOINT"]);
  if (!isMetadata && host !== hostOf(containerAddress(env)[1])) {
    return;
  }
  const known: ServiceRequest = { host, isMetadata };
  asked.last = known;
  asked.open.add(request);
  request.once("response", ({ statusCode }) => (known.status = statusCode));
  request.once("close", () => asked.open.delete(request));
  endUnwanted(); // the SDK goes on trying after a search has ended
});

function endUnwanted(): void {
  if (asked.searches === 0) {
    for (const request of asked.open) {
      request.destroy();
    }
  }
}

/** Ends a search with its limits. @throws CredentialsError; the signal's reason */
async function within<T>(search: Promise<T>, { searchMs, signal }: SearchLimits): Promise<T> {
  const settled = new AbortController();
  asked.searches += 1;
  asked.last = undefined;
  try {
    return await new Promise<T>((resolve, reject) => {
      const timer = setTimeout(reject, searchMs, transientError(`none came within ${searchMs / 1000} s`));
      const stop = (): void => {
        reject(signal.reason as Error);
      };
      signal.addEventListener("abort", stop, { once: true, signal: settled.signal });
      settled.signal.addEventListener("abort", () => {
        clearTimeout(timer);
      });
      search.then(resolve, reject);
    });
  } finally {
    settled.abort();
    asked.searches -= 1;
    endUnwanted();
  }
}

/** The variable that names the credentials service of a container, and its value. */
function containerAddress(env: Search["env"]): readonly [string, string] | readonly [] {
  const names = ["AWS_CONTAINER_CREDENTIALS_RELATIVE_URI", "AWS_CONTAINER_CREDENTIALS_FULL_URI"];
  return names.map((name) => [name, env[name] ?? ""] as const).find(([, value]) => value !== "") ?? [];
}

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
    const debug = (text: unknown): unknown => log.push(String(text));
    return defaultProvider({ ignoreCache: true, logger: { debug, info: ignore, warn: ignore, error: ignore } });
  };
  let hadTemporary = false;
  return async (properties) => {
    const search = (chain ??= makeChain());
    sdkLog.length = 0;
    try {
      const found = await within(search(properties), limits);
      hadTemporary ||= found.expiration !== undefined;
      return found;
    } catch (error) {
      chain = undefined;
      limits.signal.throwIfAborted();
      throw credentialsErrorFor(error, { sdkLog, hadTemporary, env: process.env });
    }
  };
}

interface Search {
  /** Debug messages of the SDK. */
  readonly sdkLog: readonly string[];
  /** Whether temporary credentials were found before: then there is a service that hands them out. */
  readonly hadTemporary: boolean;
  readonly env: Readonly<Record<string, string | undefined>>;
}

function credentialsErrorFor(error: unknown, search: Search): CredentialsError {
  if (error instanceof CredentialsError) {
    return error;
  }
  const request = asked.last;
  const status = statusOf(error);
  if (status !== undefined && error instanceof Error) {
    return errorFromResponse(error, status);
  }
  const errno = errnoOf(error) ?? "";
  if (connectionErrors.has(errno)) {
    return transientError(messageOf(error));
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
  return request === undefined ? errorWithoutRequest(error, search) : errorFromRequest(request, search);
}

/** The error for a response of STS, SSO or a similar service that the SDK has parsed. */
function errorFromResponse({ name, message }: Error, status: number): CredentialsError {
  const host = "the service of the role";
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
  const [variable] = containerAddress(env);
  if (variable !== undefined) {
    return permanentError(
      `${variable} names no address that credentials may come from`,
      "expected https://…, or http:// with an address of this machine, of ECS (169.254.170.2) or of EKS (169.254.170.23)",
    );
  }
  const message = messageOf(error);
  if (!/Could not load credentials/.test(message)) {
    return permanentError(message, /sso/i.test(message) ? "log in again: aws sso login" : noCredentialsHint);
  }
  const profile = env["AWS_PROFILE"] ?? "";
  return profile !== "" && sdkLog.some((text) => text.includes("Could not resolve credentials using profile"))
    ? permanentError(
        `profile ${profile} has no credentials`,
        "AWS_PROFILE must name a profile of ~/.aws/config or ~/.aws/credentials, with keys, a role or a program",
      )
    : noCredentials();
}

function errorFromRequest(
  { host, isMetadata, status }: ServiceRequest,
  { env, hadTemporary }: Search,
): CredentialsError {
  const service = isMetadata ? `the EC2 metadata service at ${host}` : `the credentials service at ${host}`;
  if (status === undefined) {
    // The SDK asks EC2's service last, on every machine.
    return !isMetadata || hadTemporary || (env["AWS_EC2_METADATA_SERVICE_ENDPOINT"] ?? "") !== ""
      ? transientError(`${service} does not answer`)
      : noCredentials();
  }
  if (isTransientResponse("", status)) {
    return transientError(`${service} answers ${status}`);
  }
  if (isMetadata && status === 404) {
    return permanentError("there are none, and this instance has no role", noCredentialsHint);
  }
  return permanentError(
    status < 300 ? `${service} answers with something other than credentials` : `${service} refuses: ${status}`,
    "check the role of the instance, task or pod, and the token that it is given; in a container, the instance's metadata options must allow 2 hops",
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
