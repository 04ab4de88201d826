import { createHash, createHmac } from "node:crypto";
import { SignatureV4 } from "@smithy/signature-v4";
import { credentialsFrom, type SearchLimits } from "./credentials.js";

/** A request to a service of AWS that is not signed yet. */
export interface UnsignedRequest {
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

/** Signs requests, with the credentials that requests to S3 are signed with. */
export interface RequestSigner {
  /**
   * Returns the request's headers with those of its signature. Temporary credentials are renewed before they expire.
   * @throws CredentialsError
   */
  sign(request: UnsignedRequest, scope: SigningScope): Promise<Readonly<Record<string, string>>>;
}

/** @param nowMs the time of signatures, in milliseconds since 1970 */
export function createSigner(limits: SearchLimits, nowMs: () => number = Date.now): RequestSigner {
  const credentials = credentialsFrom(limits);
  return {
    async sign({ method, url, headers, body }, { region, service }) {
      const signer = new SignatureV4({ credentials, region, service, sha256: NodeSha256 });
      const hash = createHash("sha256");
      for (const piece of body) {
        hash.update(piece);
      }
      const signed = await signer.sign(
        {
          method,
          protocol: url.protocol,
          hostname: url.hostname,
          path: url.pathname,
          query: queryOf(url),
          // Its digest is in the header: the signer reads a body in one piece only.
          headers: { ...headers, host: url.host, "x-amz-content-sha256": hash.digest("hex") },
        },
        { signingDate: new Date(nowMs()) },
      );
      const { host: _, ...sent } = signed.headers; // which each request has anyway
      return sent;
    },
  };
}

function queryOf({ searchParams }: URL): Record<string, string[]> {
  return Object.fromEntries([...new Set(searchParams.keys())].map((name) => [name, searchParams.getAll(name)]));
}

/** The hosts of services of AWS that run models, such as runtime.sagemaker.eu-west-1.amazonaws.com. */
const awsHost =
  /(?:^|\.)(sagemaker|execute-api|lambda-url)\.([a-z]{2}(?:-[a-z]+)+-\d+)\.(?:vpce\.)?(?:amazonaws\.com(?:\.cn)?|api\.aws|on\.aws)$/;

/** Reads the scope of signatures from a host of AWS; undefined for another host, such as a proxy of one's own. */
export function scopeOfHost(host: string): SigningScope | undefined {
  const [, service = "", region = ""] = awsHost.exec(host.toLowerCase()) ?? [];
  return service === "" ? undefined : { region, service: service === "lambda-url" ? "lambda" : service };
}

type Bytes = string | ArrayBuffer | ArrayBufferView;

/** SHA-256 or, with a secret, HMAC-SHA-256, as the signer asks for it. */
class NodeSha256 {
  readonly #hash: { update(data: Uint8Array): unknown; digest(): Buffer };

  constructor(secret?: Bytes) {
    this.#hash = secret === undefined ? createHash("sha256") : createHmac("sha256", bytesOf(secret));
  }

  update(data: Uint8Array): void {
    this.#hash.update(data);
  }

  digest(): Promise<Uint8Array> {
    return Promise.resolve(this.#hash.digest());
  }

  reset(): void {
    throw new Error("a digest is computed once");
  }
}

function bytesOf(data: Bytes): Uint8Array {
  return typeof data === "string"
    ? Buffer.from(data)
    : ArrayBuffer.isView(data)
      ? new Uint8Array(data.buffer, data.byteOffset, data.byteLength)
      : new Uint8Array(data);
}
