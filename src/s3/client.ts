import { S3Client } from "@aws-sdk/client-s3";
import { credentialsFrom } from "./credentials.js";
import { ifOpened } from "../util/promises.js";

/** How to reach a store. What is undefined comes from the environment, as for the AWS command line. */
export interface S3Settings {
  readonly endpoint?: string | undefined;
  readonly region?: string | undefined;
  readonly pathStyle?: boolean | undefined;
  readonly requestPayer?: "requester" | undefined;
}

/** Limits of one HTTP request. */
export interface S3Timeouts {
  readonly connectMs: number;
  /** The longest pause in which no byte of the response arrives or of the request leaves. */
  readonly silenceMs: number;
  /** The whole request, the response body included. */
  readonly requestMs: number;
}

/** The limits that a job uses. */
export const defaultTimeouts: S3Timeouts = { connectMs: 10_000, silenceMs: 20_000, requestMs: 300_000 };

/** Keeps the SDK client that requests are sent with, and replaces it when credentials were rotated. */
export interface ClientProvider extends Disposable {
  current(): Promise<S3Client>;
  /** Replaces a client whose credentials the store refused. Resolves to false when they were looked up a moment ago. */
  renew(client: S3Client): Promise<boolean>;
}

/** Credentials are looked up at most this often. */
const renewalMs = 5000;

const defaultRegion = "us-east-1";

/** How clients reach a store. */
export interface ClientOptions {
  readonly settings: S3Settings;
  readonly timeouts?: S3Timeouts | undefined;
  /** The job's signal; a search for credentials rejects with its reason. */
  readonly signal: AbortSignal;
}

/** Makes a provider whose clients open at most `maxSockets` sockets each. */
export function createClientProvider(options: ClientOptions, maxSockets: number): ClientProvider {
  // The SDK warns on stderr that it will drop Node 20.
  process.env["AWS_SDK_JS_NODE_VERSION_SUPPORT_WARNING_DISABLED"] ??= "true";
  const clients: Promise<S3Client>[] = [];
  let current: Promise<S3Client> | undefined;
  let createdMs = 0;
  const make = (): Promise<S3Client> => {
    createdMs = performance.now();
    const client = makeClient(options, maxSockets);
    clients.push(client);
    return client;
  };
  return {
    current: () => (current ??= make()),
    async renew(client) {
      if ((await current) !== client) {
        return true;
      }
      const ageMs = performance.now() - createdMs;
      if (ageMs > renewalMs || clients.length === 1) {
        current = make(); // requests in flight with the old client may still succeed
        return true;
      }
      return false;
    },
    [Symbol.dispose]() {
      for (const client of clients) {
        void ifOpened(client).then((one) => one?.destroy());
      }
    },
  };
}

async function makeClient(options: ClientOptions, maxSockets: number): Promise<S3Client> {
  const { settings, timeouts: { connectMs, silenceMs } = defaultTimeouts, signal } = options;
  const endpoint = settings.endpoint ?? process.env["AWS_ENDPOINT_URL_S3"] ?? process.env["AWS_ENDPOINT_URL"];
  const make = (region: string | undefined): S3Client =>
    new S3Client({
      ...(region === undefined ? {} : { region }),
      ...(settings.endpoint === undefined ? {} : { endpoint: settings.endpoint }),
      forcePathStyle: settings.pathStyle ?? endpoint !== undefined,
      // AWS names a bucket's region in its response to a request that went to another one.
      followRegionRedirects: endpoint === undefined,
      // The SDK would warn on stderr that a stream cannot be sent twice; a retry opens the file anew.
      logger: { debug: () => undefined, info: () => undefined, warn: () => undefined, error: () => undefined },
      // `SendRequest` retries: it resumes a body where it ended, and stops with the job.
      maxAttempts: 1,
      // Ranges have no checksums, and some stores support none.
      responseChecksumValidation: "WHEN_REQUIRED",
      // A search that hangs ends before the request that waits for it, and says so.
      credentials: credentialsFrom({ searchMs: silenceMs * 0.75, signal }),
      requestHandler: {
        connectionTimeout: connectMs,
        httpAgent: { keepAlive: true, maxSockets },
        httpsAgent: { keepAlive: true, maxSockets },
      },
    });
  const client = make(settings.region);
  try {
    await client.config.region();
    return client;
  } catch {
    client.destroy();
    return make(defaultRegion); // no region is set: other stores ignore it, and AWS names the right one
  }
}
