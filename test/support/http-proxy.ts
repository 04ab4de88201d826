import { EventEmitter, once } from "node:events";
import { createServer, type IncomingHttpHeaders, type IncomingMessage, request, type ServerResponse } from "node:http";

export type Twist =
  /** It is answered here, and does not go on. */
  | { readonly kind: "answer"; readonly status: number; readonly body: string }
  /** Its answer claims to be shorter than it is, and is. */
  | { readonly kind: "shorten"; readonly bytes: number }
  /** It goes on, and its answer is lost. */
  | { readonly kind: "lose" }
  /** It waits, and then goes on. */
  | { readonly kind: "hold"; readonly until: Promise<unknown> }
  /** It goes on with another last byte. */
  | { readonly kind: "damage" }
  /** It goes on, and is answered with something else. */
  | { readonly kind: "belie"; readonly status: number; readonly body: string }
  /** It is never answered; `after`: once it has gone on and was carried out. */
  | { readonly kind: "hang"; readonly after: boolean; readonly hung: () => void };

export interface HttpProxy extends AsyncDisposable {
  readonly port: number;
  /** `GET /bucket/key bytes=0-7`, in the order they came. */
  readonly requests: readonly string[];
  /** Bytes of bodies that the server sent. */
  readonly bodyBytes: number;
  /** Requests that the server has not answered yet; their clients may be gone. */
  readonly underWay: number;
  /** Asked for each request, by the text that `requests` has. */
  twist: ((request: string, headers: IncomingHttpHeaders) => Twist | undefined) | undefined;
  delayMs: number;
}

/** Forwards requests to a server on this machine, whole: signatures stay right. */
export async function httpProxy(port: number): Promise<HttpProxy> {
  const requests: string[] = [];
  let [bodyBytes, underWay] = [0, 0];
  const forward = (from: IncomingMessage, to: ServerResponse, twist: Twist | undefined): void => {
    const { headers } = from;
    const onward = request(
      { port, host: "127.0.0.1", method: from.method, path: from.url, headers, setHost: false },
      (answer) => {
        answer.on("data", (piece: Buffer) => {
          bodyBytes += piece.length;
        });
        if (twist?.kind === "lose") {
          answer.on("end", () => from.socket.destroy());
          return;
        }
        if (twist?.kind === "hang") {
          answer.on("end", twist.hung);
          return;
        }
        if (twist?.kind === "belie") {
          answer.on("end", () => to.writeHead(twist.status, { "content-type": "application/xml" }).end(twist.body));
          return;
        }
        const changed = twist?.kind === "shorten" ? { "content-length": String(twist.bytes) } : {};
        to.writeHead(answer.statusCode ?? 500, { ...answer.headers, ...changed });
        let left = twist?.kind === "shorten" ? twist.bytes : Number.POSITIVE_INFINITY;
        answer.on("data", (piece: Buffer) => {
          to.write(piece.subarray(0, left));
          left -= Math.min(left, piece.length);
        });
        answer.on("end", () => to.end());
      },
    );
    underWay += 1;
    onward.on("close", () => {
      underWay -= 1;
    });
    onward.on("error", () => from.socket.destroy());
    from.on("error", () => onward.destroy());
    if (twist?.kind === "damage") {
      from.on("data", (piece: Buffer) =>
        onward.write(Buffer.concat([piece.subarray(0, -1), Buffer.from([~(piece.at(-1) ?? 0) & 255])])),
      );
      from.on("end", () => onward.end());
    } else {
      from.pipe(onward);
    }
  };
  const server = createServer((from, to) => {
    const range = from.headers.range;
    const text = `${from.method} ${from.url}${range === undefined ? "" : ` ${range}`}`;
    requests.push(text);
    const twist = proxy.twist?.(text, from.headers);
    if (twist?.kind === "answer") {
      from.resume().on("end", () => to.writeHead(twist.status, { "content-type": "application/xml" }).end(twist.body));
      return;
    }
    if (twist?.kind === "hang" && !twist.after) {
      twist.hung();
      return;
    }
    const held = twist?.kind === "hold" ? twist.until : Promise.resolve();
    setTimeout(() => {
      void held.then(() => forward(from, to, twist));
    }, proxy.delayMs);
  });
  await new Promise<void>((done) => server.listen(0, "127.0.0.1", done));
  const address = server.address();
  const proxy: HttpProxy = {
    port: typeof address === "object" && address !== null ? address.port : 0,
    requests,
    get bodyBytes() {
      return bodyBytes;
    },
    get underWay() {
      return underWay;
    },
    twist: undefined,
    delayMs: 0,
    async [Symbol.asyncDispose]() {
      server.closeAllConnections();
      await new Promise((done) => server.close(done));
    },
  };
  return proxy;
}

/** Holds the first request that is like this; `go` lets it on. */
export function holdFirst(proxy: HttpProxy, pattern: RegExp): { reached: Promise<unknown>; go: () => void } {
  const events = new EventEmitter();
  const until = once(events, "go");
  const reached = once(events, "reached");
  proxy.twist = (text) => {
    if (!pattern.test(text)) {
      return undefined;
    }
    proxy.twist = undefined;
    events.emit("reached");
    return { kind: "hold", until };
  };
  return { reached, go: () => void events.emit("go") };
}

export function s3Error(status: number, code: string): Twist {
  return {
    kind: "answer",
    status,
    body: `<?xml version="1.0"?><Error><Code>${code}</Code><Message>no</Message></Error>`,
  };
}
