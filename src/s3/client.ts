import { S3Client } from "@aws-sdk/client-s3";
import { credentialsFrom } from "./credentials.js";
import { ifOpened } from "../util/promises.js";

/** How a store is reached. What is left out comes from the environment, as the AWS command line takes it. */
export interface S3Place {
  readonly endpoint?: string | undefined;
  readonly region?: string | undefined;
  readonly pathStyle?: boolean | undefined;
  readonly requestPayer?: "requester" | undefined;
}

export interface S3Timeouts {
  readonly connectMs: number;
  /** Without a byte, of an answer or of a body. */
  readonly silenceMs: number;
  /** For one request, its body included. */
  readonly requestMs: number;
}

export const defaultTimeouts: S3Timeouts = { connectMs: 10_000, silenceMs: 20_000, requestMs: 300_000 };

/** Hands out the client; a new one knows credentials that were rotated since. */
export interface Clients extends Disposable {
  current(): Promise<S3Client>;
  /** After the store refused `client`: false when there is no newer one, and credentials were looked up just now. */
  renew(client: S3Client): Promise<boolean>;
}

/** How often rotated credentials are looked for. */
const renewalMs = 5000;

const defaultRegion = "us-east-1";

export interface ClientOptions {
  readonly place: S3Place;
  readonly timeouts?: S3Timeouts | undefined;
  /** The job's: whoever waits for credentials is told its reason when it is aborted. */
  readonly signal: AbortSignal;
}

/** `connections`: sockets to the store. */
export function createClients(options: ClientOptions, connections: number): Clients {
  // The SDK writes to stderr that it will drop Node 20 one day.
  process.env["AWS_SDK_JS_NODE_VERSION_SUPPORT_WARNING_DISABLED"] ??= "true";
  const made: Promise<S3Client>[] = [];
  let current: Promise<S3Client> | undefined;
  let madeMs = 0;
  const make = (): Promise<S3Client> => {
    madeMs = performance.now();
    const client = makeClient(options, connections);
    made.push(client);
    return client;
  };
  return {
    current: () => (current ??= make()),
    async renew(client) {
      if ((await current) !== client) {
        return true;
      }
      const ageMs = performance.now() - madeMs;
      if (ageMs > renewalMs || made.length === 1) {
        current = make(); // requests that are under way with the old one may still come through
        return true;
      }
      return false;
    },
    [Symbol.dispose]() {
      for (const client of made) {
        void ifOpened(client).then((one) => one?.destroy());
      }
    },
  };
}

async function makeClient(options: ClientOptions, connections: number): Promise<S3Client> {
  const { place, timeouts: { connectMs, requestMs } = defaultTimeouts, signal } = options;
  const endpoint = place.endpoint ?? process.env["AWS_ENDPOINT_URL_S3"] ?? process.env["AWS_ENDPOINT_URL"];
  const make = (region: string | undefined): S3Client =>
    new S3Client({
      ...(region === undefined ? {} : { region }),
      ...(place.endpoint === undefined ? {} : { endpoint: place.endpoint }),
      forcePathStyle: place.pathStyle ?? endpoint !== undefined,
      // A bucket's own region is told in the answer to a request that went elsewhere.
      followRegionRedirects: endpoint === undefined,
      // It would tell users on stderr that a stream cannot be sent again; we open the file anew.
      logger: { debug: () => undefined, info: () => undefined, warn: () => undefined, error: () => undefined },
      // Tries are ours: they resume a body where it broke off, and end when the job does.
      maxAttempts: 1,
      // Ranges have no checksums, and some stores know none.
      responseChecksumValidation: "WHEN_REQUIRED",
      credentials: credentialsFrom({ requestMs: connectMs, allMs: requestMs, signal }),
      requestHandler: {
        connectionTimeout: connectMs,
        httpAgent: { keepAlive: true, maxSockets: connections },
        httpsAgent: { keepAlive: true, maxSockets: connections },
      },
    });
  const client = make(place.region);
  try {
    await client.config.region();
    return client;
  } catch {
    client.destroy();
    return make(defaultRegion); // none is set: stores that are not AWS do not care, and AWS names the right one
  }
}
