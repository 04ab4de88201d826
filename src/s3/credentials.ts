import { readFileSync } from "node:fs";
import { defaultProvider } from "@aws-sdk/credential-provider-node";
import { errnoOf, messageOf } from "../util/errors.js";
import { connectionErrors } from "../util/retry.js";
import { type CredentialRequest, SilentService, type WatchLimits, watchSearch } from "./credential-requests.js";
import { CredentialsFault, expiredNames, passes, statusOf } from "./failures.js";

const loginHint = "log in again: aws sso login";

const quiet = (): void => undefined;

type Provider = ReturnType<typeof defaultProvider>;

const noneHint = "set AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY, or AWS_PROFILE, or run under a role";

/**
 * The SDK's default chain, whose failures say what they mean. The SDK ends a search in which every source failed with
 * "Could not load credentials", whether there is no source or one that is away for a moment.
 * @throws CredentialsFault
 */
export function credentialsFrom(limits: WatchLimits): Provider {
  let chain: Provider | undefined;
  let said: string[] = [];
  // A chain that ends in vain may still wait for what was given up: the next search has one of its own.
  const make = (): Provider => {
    const own: string[] = [];
    said = own;
    return defaultProvider({
      ignoreCache: true,
      logger: {
        debug: (text: unknown) => own.push(String(text)),
        info: quiet,
        warn: quiet,
        error: quiet,
        trace: quiet,
      },
    });
  };
  let hadTemporary = false;
  return async (properties) => {
    const requests: CredentialRequest[] = [];
    const used = (chain ??= make());
    said.length = 0;
    try {
      const found = await watchSearch(requests, limits, () => used(properties));
      hadTemporary ||= found.expiration !== undefined;
      return found;
    } catch (error) {
      chain = undefined;
      limits.signal.throwIfAborted();
      throw faultOf(error, { requests, said, hadTemporary, env: process.env });
    }
  };
}

interface Search {
  readonly requests: readonly CredentialRequest[];
  /** What the SDK logged. */
  readonly said: readonly string[];
  /** Temporary credentials came once: there is a service. */
  readonly hadTemporary: boolean;
  readonly env: Readonly<Record<string, string | undefined>>;
}

function faultOf(error: unknown, search: Search): CredentialsFault {
  if (error instanceof SilentService) {
    return passing(error.message);
  }
  const request = search.requests.findLast(({ status }) => passes("", status ?? 0)) ?? search.requests.at(-1);
  const status = statusOf(error);
  if (status !== undefined && error instanceof Error) {
    return ofAnswer(request?.host ?? "the service of the role", { name: error.name, status, message: error.message });
  }
  const errno = errnoOf(error) ?? "";
  if (connectionErrors.has(errno)) {
    return passing(request === undefined ? messageOf(error) : `${request.host}: ${messageOf(error)}`);
  }
  if (/^E[A-Z]+$/.test(errno)) {
    return refused(messageOf(error), "make readable what AWS_WEB_IDENTITY_TOKEN_FILE, AWS_PROFILE or their like name");
  }
  // The profile names a program; what it writes may be secret.
  if (search.said.some((text) => /-> (Command failed|Profile \S+ credential_process)/.test(text))) {
    return passing("the credential_process of the profile failed");
  }
  return request === undefined ? withoutRequest(error, search) : ofRequest(request, error, search);
}

/** Of STS, of SSO or the like, as the SDK reads their answer. */
function ofAnswer(host: string, answer: { name: string; status: number; message: string }): CredentialsFault {
  const { name, status, message } = answer;
  if (status < 300) {
    return refused(`${host} answers with something else than credentials`, "check AWS_ENDPOINT_URL_STS and its like");
  }
  const found = `${host} answers ${name}, ${status}: ${message}`;
  // The token of a web identity is a file that is written anew before it expires, and read for each try.
  return passes(name, status) || expiredNames.test(name) || name.startsWith("IDPCommunicationError")
    ? passing(found)
    : refused(found, "check the role, who may assume it, and AWS_ROLE_ARN, AWS_WEB_IDENTITY_TOKEN_FILE or AWS_PROFILE");
}

function withoutRequest(error: unknown, { env, said }: Search): CredentialsFault {
  const variable = ["AWS_CONTAINER_CREDENTIALS_RELATIVE_URI", "AWS_CONTAINER_CREDENTIALS_FULL_URI"].find(
    (name) => (env[name] ?? "") !== "",
  );
  if (variable !== undefined) {
    return refused(
      `${variable} names no address that credentials may come from`,
      "expected https://…, or http:// with an address of this machine, of ECS (169.254.170.2) or of EKS (169.254.170.23)",
    );
  }
  const message = messageOf(error);
  if (!/Could not load credentials/.test(message)) {
    return refused(message, /sso/i.test(message) ? loginHint : noneHint);
  }
  const profile = env["AWS_PROFILE"] ?? "";
  return profile !== "" && said.some((text) => text.includes("Could not resolve credentials using profile"))
    ? refused(
        `profile ${profile} has none`,
        "AWS_PROFILE must name a profile of ~/.aws/config or ~/.aws/credentials, with keys, a role or a program",
      )
    : none();
}

const metadataPath = "/latest/";

function ofRequest(request: CredentialRequest, error: unknown, { env, hadTemporary }: Search): CredentialsFault {
  const { host, path, status, error: lost } = request;
  const isMetadata = path.startsWith(metadataPath);
  const service = isMetadata ? `the EC2 metadata service at ${host}` : `the credentials service at ${host}`;
  if (status === undefined) {
    // Asked last of all, wherever this runs.
    const isExpected =
      !isMetadata || hadTemporary || (env["AWS_EC2_METADATA_SERVICE_ENDPOINT"] ?? "") !== "" || isEc2();
    return isExpected ? passing(`${service} does not answer: ${lost ?? messageOf(error)}`) : none();
  }
  if (passes("", status)) {
    return passing(`${service} answers ${status}`);
  }
  if (isMetadata) {
    return status === 404
      ? refused("there are none, and this instance has no role", noneHint)
      : refused(
          `${service} answers ${status}`,
          status === 401
            ? "in a container, the instance's metadata options must allow 2 hops; or give the job credentials of its own"
            : noneHint,
        );
  }
  return status < 300
    ? refused(`${service} answers with something else than credentials`, "check AWS_CONTAINER_CREDENTIALS_FULL_URI")
    : refused(
        `${service} refuses: ${status}`,
        host.includes("sso") ? loginHint : "check the role of the task or pod, and the token that it is given",
      );
}

function none(): CredentialsFault {
  return refused("there are none", noneHint);
}

function passing(found: string): CredentialsFault {
  return new CredentialsFault(`no credentials: ${found}`, undefined);
}

function refused(found: string, hint: string): CredentialsFault {
  return new CredentialsFault(`looking for credentials for S3: ${found}`, hint);
}

/** What the firmware says of the machine. */
function isEc2(): boolean {
  return [
    ["/sys/devices/virtual/dmi/id/sys_vendor", /^Amazon EC2/],
    ["/sys/hypervisor/uuid", /^ec2/],
  ].some(([path, text]) => {
    try {
      return (text as RegExp).test(readFileSync(path as string, "latin1"));
    } catch {
      return false; // not such a machine, or not to be told
    }
  });
}
