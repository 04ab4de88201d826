import type { GetObjectCommand } from "@aws-sdk/client-s3";
import { Readable } from "node:stream";
import type { ConnectionPool, Exchange, Origin } from "../net/connections.js";

/** A signed request, as the SDK's middleware passes it on. */
interface SignedRequest {
  readonly method: string;
  readonly protocol: string;
  readonly hostname: string;
  readonly port?: number;
  readonly path: string;
  readonly query?: Readonly<Record<string, string | readonly string[] | null>>;
  readonly headers: Readonly<Record<string, string>>;
}

/**
 * Makes a command send its request over a connection of `pool` in place of the SDK's own transport. Endpoint,
 * credentials, signature, redirects and the meaning of the response stay the SDK's. A pooled connection that turns out
 * to be closed is replaced with a new one.
 */
export function sendOverPool(
  pool: ConnectionPool,
  command: GetObjectCommand,
  options: Pick<Exchange, "onHeaders" | "onData" | "signal">,
): void {
  command.middlewareStack.add(
    () =>
      async ({ request }) => {
        const signed = request as SignedRequest;
        const exchange = { text: requestText(signed), mayResend: true, ...options };
        const { status: statusCode, headers, body } = await pool.exchange(originOf(signed), exchange);
        return { response: { statusCode, headers, body: Readable.from([body], { objectMode: false }) } };
      },
    { step: "deserialize", priority: "low", name: "sendOverPool" },
  );
}

function originOf({ protocol, hostname, port }: SignedRequest): Origin {
  const secure = protocol === "https:";
  return { secure, host: hostname.replace(/^\[(.*)\]$/, "$1"), port: port ?? (secure ? 443 : 80) };
}

function requestText({ method, path, query = {}, headers }: SignedRequest): string {
  const fields = Object.entries(query)
    .toSorted(([one], [other]) => (one < other ? -1 : 1))
    .flatMap(([name, value]) =>
      value === null
        ? [percentEncode(name)]
        : [value].flat().map((one) => `${percentEncode(name)}=${percentEncode(one)}`),
    );
  const target = fields.length === 0 ? path : `${path}?${fields.join("&")}`;
  const lines = [
    `${method} ${target} HTTP/1.1`,
    ...Object.entries(headers).map(([name, value]) => `${name}: ${value}`),
  ];
  if (lines.some((line) => /[^\t -~\u0080-\u00ff]/.test(line))) {
    throw new Error("a request has characters that HTTP does not allow");
  }
  return `${lines.join("\r\n")}\r\n\r\n`;
}

/** Percent-encodes all that RFC 3986 reserves, as AWS signatures require. */
function percentEncode(text: string): string {
  return encodeURIComponent(text).replaceAll(/[!'()*]/g, (one) => `%${one.codePointAt(0)?.toString(16).toUpperCase()}`);
}
