import type { SignRequest } from "../../engine/served/server.js";
import { BrokenTransfer } from "../../net/http.js";
import { CredentialsError } from "../../objects/protocol.js";
import { createSigner, scopeOfHost, type SigningScope } from "../../objects/aws-credentials.js";
import { JobError } from "../../util/errors.js";

export interface SignatureOptions {
  readonly urls: readonly string[];
  /** The position of `model.server.auth` in the spec. */
  readonly key: string;
  readonly signal: AbortSignal;
  readonly env: Readonly<Record<string, string | undefined>>;
}

/**
 * Makes what signs requests with Signature Version 4, with the credentials that are used for S3.
 * @throws JobError SPEC_INVALID if a URL does not tell the region, and the environment does not either
 */
export function signAws({ urls, key, signal, env }: SignatureOptions): SignRequest {
  const region = [env["AWS_REGION"], env["AWS_DEFAULT_REGION"]].find((one) => one !== undefined && one !== "");
  const scopeOf = (url: URL): SigningScope | undefined =>
    scopeOfHost(url.hostname) ?? (region === undefined ? undefined : { region, service: "sagemaker" });
  const unknown = urls.find((url) => scopeOf(new URL(url)) === undefined);
  if (unknown !== undefined) {
    throw new JobError("SPEC_INVALID", `reading ${key}: the region of ${new URL(unknown).host} is not known`, {
      hint: "set AWS_REGION, or write the URL of the service, such as https://runtime.sagemaker.eu-west-1.amazonaws.com",
    });
  }
  const sign = createSigner({ searchMs: 60_000, signal });
  return async (request) => {
    const scope = scopeOf(request.url);
    try {
      return scope === undefined ? request.headers : await sign(request, scope);
    } catch (error) {
      throw error instanceof CredentialsError ? failureOf(error) : error;
    }
  };
}

/** An error without a hint means that the credentials' service is temporarily unavailable. */
function failureOf({ message, hint }: CredentialsError): Error {
  return hint === undefined ? new BrokenTransfer(message) : new JobError("PERMISSION", message, { hint });
}
