import type { GetObjectCommand } from "@aws-sdk/client-s3";
import { Readable } from "node:stream";
import type { Connections, Peer } from "./connections.js";
import { exchange, type Exchange, StaleConnection } from "./exchange.js";

/** What the SDK has made of a command, signed: all that a transport needs. */
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
 * Has a command's request made over these connections instead of the SDK's own. All else stays the SDK's: endpoint,
 * credentials, signature, redirects, and what an answer means.
 */
export function sendOver(
  connections: Connections,
  command: GetObjectCommand,
  how: Pick<Exchange, "begin" | "heard" | "signal">,
): void {
  command.middlewareStack.add(
    () =>
      async ({ request }) => {
        const signed = request as SignedRequest;
        const peer = peerOf(signed);
        const text = textOf(signed);
        const over = (fresh: boolean): ReturnType<typeof exchange> =>
          exchange(connections.take(peer, { fresh }), { text, ...how });
        const answer = await over(false).catch((error: unknown) => {
          if (error instanceof StaleConnection) {
            return over(true);
          }
          throw error;
        });
        const { status: statusCode, headers, body } = answer;
        return { response: { statusCode, headers, body: Readable.from([body], { objectMode: false }) } };
      },
    { step: "deserialize", priority: "low", name: "sendOverOwnConnections" },
  );
}

function peerOf({ protocol, hostname, port }: SignedRequest): Peer {
  const secure = protocol === "https:";
  return { secure, host: hostname.replace(/^\[(.*)\]$/, "$1"), port: port ?? (secure ? 443 : 80) };
}

function textOf({ method, path, query = {}, headers }: SignedRequest): string {
  const fields = Object.entries(query)
    .toSorted(([one], [other]) => (one < other ? -1 : 1))
    .flatMap(([name, value]) =>
      value === null ? [escaped(name)] : [value].flat().map((one) => `${escaped(name)}=${escaped(one)}`),
    );
  const target = fields.length === 0 ? path : `${path}?${fields.join("&")}`;
  const lines = [
    `${method} ${target} HTTP/1.1`,
    ...Object.entries(headers).map(([name, value]) => `${name}: ${value}`),
  ];
  if (lines.some((line) => /[^\t -~\u0080-\u00ff]/.test(line))) {
    throw new Error("a request would have characters that no line of a request has");
  }
  return `${lines.join("\r\n")}\r\n\r\n`;
}

/** As signatures want it. */
function escaped(text: string): string {
  return encodeURIComponent(text).replaceAll(/[!'()*]/g, (one) => `%${one.codePointAt(0)?.toString(16).toUpperCase()}`);
}
