import { createHash, timingSafeEqual } from "node:crypto";
import { createServer, type IncomingMessage, type Server, type ServerResponse } from "node:http";
import { createServer as createTlsServer } from "node:https";
import type { AddressInfo } from "node:net";
import { isLocalHost } from "../report/metrics.js";
import { JobError, messageOf } from "../base/errors.js";
import type { Log } from "../flow/opened-job.js";
import { parseAnswer } from "../models/served/protocol.js";
import type { ServeSpec } from "../job/jobfile/serve-spec.js";
import type { ServeMetrics } from "./metrics.js";
import { type Deadline, deadlineIn } from "./deadline.js";
import { predict } from "./predict.js";
import { RequestError } from "./request-error.js";
import type { ServedRun } from "./served-run.js";
import { inferV2, metadataV2 } from "./v2.js";

export interface HttpOptions {
  readonly job: string;
  readonly spec: ServeSpec;
  /** undefined: requests need none. */
  readonly token: string | undefined;
  /** Reads a certificate and its key in PEM, again each `serve.poll`; undefined: HTTP without TLS. */
  readonly readTls: (() => Promise<{ readonly cert: string; readonly key: string }>) | undefined;
  /** Connections that are open so long after a signal are cut. */
  readonly drainMs: number;
  readonly program: { readonly name: string; readonly version: string };
  readonly log: Log;
  readonly metrics: ServeMetrics;
  /** The run that answers now; undefined: none does. */
  readonly current: () => ServedRun | undefined;
  readonly nowMs: () => number;
}

export interface HttpServer {
  readonly url: string;
  /** Takes no more connections; resolves when all requests are answered. */
  drain(): Promise<void>;
}

interface Answer {
  readonly status: number;
  readonly body: string | readonly Uint8Array[];
  readonly headers?: Readonly<Record<string, string>>;
}

/** Bodies that are read at once take at most as much memory as so many of the largest. */
const bodiesAtOnce = 16;
/** Bytes of a body that cost less to read than a new connection. */
const smallBody = 65_536;
/** A client that sends nothing, or little, is cut off. Proxies keep a connection for a minute: closed here, it loses a request. */
const timeouts = { headersTimeout: 10_000, requestTimeout: 30_000, keepAliveTimeout: 65_000 };
const behind = {
  headers: { "content-type": "application/json", "retry-after": "1", "content-length": "54" },
  body: '{"error":"requests come faster than they can be read"}',
};
/** A turn of the event loop may take so long: Node accepts one connection in each. */
const mostTurnMs = 10;
/** So many requests are answered in each turn, however slow the machine is. */
const turnBatch = 128;
const mostDeadlineMs = 3_600_000;
/** Connections that wait to be taken, as far as the system lets them: of more, clients try again after a second, or fail. */
const backlog = 4096;

/** Starts to listen. @throws JobError USAGE for an address that cannot be listened on */
export async function openHttpServer(options: HttpOptions): Promise<HttpServer> {
  const { spec, readTls, log, metrics, current, nowMs, drainMs } = options;
  const isLoopback = /^(127\.|localhost$|::1$)/.test(spec.host);
  const { token } = options;
  const expected = digest(`Bearer ${token}`);
  let bodyBytes = 0;
  let isDraining = false;

  const authorize = ({ headers }: IncomingMessage): void => {
    if (token !== undefined && !timingSafeEqual(digest(headers.authorization ?? ""), expected)) {
      throw new RequestError(401, "expected Authorization: Bearer with the token of this server");
    }
    if (token === undefined && isLoopback && !isLocalHost(headers.host)) {
      throw new RequestError(403, "ask for 127.0.0.1 or localhost");
    }
  };
  /** @throws RequestError 400, 413, 415, 503 */
  const bodyOf = async (request: IncomingMessage): Promise<Uint8Array<ArrayBuffer>> => {
    const { "content-length": given, "content-encoding": encoding } = request.headers;
    const most = spec.max_bytes;
    const tooLarge = (): RequestError => new RequestError(413, `the body has more than ${most} bytes`);
    if (encoding !== undefined && encoding !== "identity") {
      throw new RequestError(415, `a body that is encoded as ${encoding} is not taken`);
    }
    if (Number(given ?? 0) > most) {
      throw tooLarge();
    }
    const chunks: Buffer[] = [];
    let length = 0;
    try {
      await new Promise<void>((resolve, reject) => {
        const refuse = (error: RequestError): void => {
          request.off("data", take).resume();
          reject(error);
        };
        const take = (chunk: Buffer): void => {
          length += chunk.length;
          bodyBytes += chunk.length;
          chunks.push(chunk);
          if (length > most) {
            refuse(tooLarge());
          } else if (bodyBytes > most * bodiesAtOnce) {
            refuse(new RequestError(503, "too many bodies are being read"));
          }
        };
        request.on("data", take).on("end", resolve);
        request.on("error", () => {
          reject(new RequestError(400, "the body was cut off"));
        });
      });
    } finally {
      bodyBytes -= length;
    }
    const { buffer, byteOffset } = Buffer.concat(chunks);
    chunks.length = 0; // which the request keeps until it is answered
    return new Uint8Array(buffer, byteOffset, length); // whose slices are copies
  };
  const served = (): ServedRun => {
    const run = current();
    if (run === undefined) {
      throw new RequestError(503, "no published run is loaded yet");
    }
    return run;
  };
  /** Refuses a request before its body is read where it would be refused after it. @throws RequestError 503 */
  const admitting = (): ServedRun => {
    const run = served();
    if (run.rowsByKey === undefined && run.batcher.waitingRows >= spec.queue) {
      throw new RequestError(503, `${run.batcher.waitingRows} rows wait for the model`);
    }
    return run;
  };
  /** How long turns of the event loop take in which requests come, smoothed; since when this one lasts, and its requests. */
  let [turnMs, turnSinceMs, turnRequests] = [0, 0, 0];
  /** Whether requests come faster than they can be read. */
  const isBehind = (): boolean => {
    const now = nowMs();
    turnRequests += 1;
    if (turnRequests === 1) {
      turnSinceMs = now;
      setImmediate(() => {
        turnMs += (nowMs() - turnSinceMs - turnMs) / 8;
        turnRequests = 0;
      });
    }
    return turnRequests > turnBatch && Math.min(turnMs, now - turnSinceMs) > mostTurnMs;
  };
  const deadlineOf = ({ headers }: IncomingMessage): Deadline => {
    const given = headers["x-timeout-ms"];
    const ms = given === undefined ? undefined : Number(given);
    if (ms !== undefined && !(ms > 0 && ms <= mostDeadlineMs)) {
      throw new RequestError(400, `x-timeout-ms is ${String(given)}, expected milliseconds up to ${mostDeadlineMs}`);
    }
    return deadlineIn(ms, nowMs);
  };

  const model = `/v2/models/${options.job}`;
  const readiness = (about: object = {}): Answer => {
    const ready = current() !== undefined && !isDraining;
    return { ...json({ ...about, ready }), status: ready ? 200 : 503 };
  };
  const health: Readonly<Record<string, () => Answer>> = {
    "/healthz": () => json({ live: true }),
    "/readyz": readiness,
    "/v2/health/live": () => json({ live: true }),
    "/v2/health/ready": readiness,
  };
  const shown: Readonly<Record<string, () => Answer>> = {
    "/metrics": () => {
      const run = current();
      const about = run && { runId: run.plan.runId, model: run.plan.model.sha256 };
      const body = metrics.text({ waitingRows: run?.batcher.waitingRows ?? 0, run: about });
      return { status: 200, body, headers: { "content-type": "text/plain; version=0.0.4; charset=utf-8" } };
    },
    "/v2": () => json({ ...options.program, extensions: ["binary_tensor_data"] }),
    [model]: () => json(metadataV2(options.job, served())),
    [`${model}/ready`]: () => readiness({ name: options.job }),
  };
  const posted: Readonly<Record<string, (request: IncomingMessage, deadline: Deadline) => Promise<Answer>>> = {
    async "/predict"(request, deadline) {
      admitting();
      const bytes = await deadline.receive(bodyOf(request));
      const run = admitting();
      const body = parsed(bytes);
      const text = await run.use(() => predict(run, body, { spec, metrics, log, deadline }));
      return { status: 200, body: text, headers: { "content-type": "application/json" } };
    },
    async [`${model}/infer`](request, deadline) {
      admitting();
      const body = await deadline.receive(bodyOf(request));
      const run = admitting();
      const length = request.headers["inference-header-content-length"];
      const jsonLength = typeof length === "string" ? length : null;
      const { rows, ...made } = await run.use(() =>
        inferV2(run, { body, jsonLength }, { job: options.job, mostRows: spec.max_rows, deadline }),
      );
      metrics.predicted("online", rows);
      return { status: 200, ...made };
    },
  };

  const answer = async (request: IncomingMessage, route: string): Promise<Answer> => {
    const { method, url = "" } = request;
    const probe = health[route];
    if (probe !== undefined && (method === "GET" || method === "HEAD")) {
      return probe();
    }
    authorize(request);
    const [get, post] = [shown[route], posted[route]];
    if (get !== undefined && method === "GET") {
      return get();
    }
    if (post !== undefined && method === "POST") {
      return await post(request, deadlineOf(request));
    }
    throw (probe ?? get ?? post) === undefined
      ? new RequestError(404, `there is no ${url.slice(0, 200)}`)
      : new RequestError(405, `${route} does not take ${String(method)}`);
  };
  const routes = new Set([health, shown, posted].flatMap((table) => Object.keys(table)));
  const handle = async (request: IncomingMessage, response: ServerResponse): Promise<void> => {
    const sinceMs = nowMs();
    const [path = ""] = (request.url ?? "").split("?");
    const route = routes.has(path) ? path : "other";
    if (request.method === "POST" && isBehind()) {
      metrics.answered(route, 503, 0);
      response.writeHead(503, { ...behind.headers, ...(isDraining && { connection: "close" }) }).end(behind.body); // with as little work as can be
      return;
    }
    let made: Answer;
    try {
      made = await answer(request, route);
    } catch (error) {
      made = answerTo(error, log);
    }
    metrics.answered(route, made.status, (nowMs() - sinceMs) / 1000);
    send(request, response, made, isDraining);
  };

  const listener = (request: IncomingMessage, response: ServerResponse): void => void handle(request, response);
  const limits = { ...timeouts, connectionsCheckingInterval: 1000 };
  let tls = await readTls?.();
  const secure = tls && createTlsServer({ ...limits, ...tls }, listener);
  const server: Server = secure ?? createServer(limits, listener);
  server.on("clientError", (_error, socket) => {
    socket.destroy();
  });
  await new Promise<void>((resolve, reject) => {
    server.once("error", (error) => {
      reject(
        new JobError("USAGE", `listening on ${spec.host}:${spec.port}: ${messageOf(error)}`, {
          hint: "choose another serve.port, or stop the program that has it",
          cause: error,
        }),
      );
    });
    server.listen(spec.port, spec.host, backlog, resolve);
  });
  const renew = async (): Promise<void> => {
    try {
      const now = await readTls?.();
      if (now !== undefined && JSON.stringify(now) !== JSON.stringify(tls)) {
        secure?.setSecureContext(now); // which ends what clients may resume
        tls = now;
      }
    } catch (error) {
      log.warn(`the certificate is used on: ${messageOf(error)}`);
    }
  };
  const renewing = readTls && setInterval(() => void renew(), spec.poll);
  const { address, port, family } = server.address() as AddressInfo;
  return {
    url: `http${secure === undefined ? "" : "s"}://${family === "IPv6" ? `[${address}]` : address}:${port}`,
    async drain() {
      isDraining = true;
      clearInterval(renewing);
      const closed = new Promise((resolve) => {
        server.close(resolve);
      });
      server.closeIdleConnections();
      const cut = setTimeout(() => server.closeAllConnections(), drainMs);
      await closed;
      clearTimeout(cut);
    },
  };
}

function digest(text: string): Buffer {
  return createHash("sha256").update(text).digest();
}

function json(value: object): Answer {
  return { status: 200, body: JSON.stringify(value), headers: { "content-type": "application/json" } };
}

/** JSON, in which integers of more digits than a number has, and NaN, are texts. @throws RequestError 400 */
function parsed(body: Uint8Array): unknown {
  try {
    return parseAnswer(body);
  } catch {
    throw new RequestError(400, "the body is no JSON in UTF-8");
  }
}

function answerTo(error: unknown, log: Log): Answer {
  if (error instanceof RequestError) {
    const { status, message, more } = error;
    const headers = { "content-type": "application/json", ...(status === 503 && { "retry-after": "1" }) };
    return { status, body: JSON.stringify({ error: message, ...more }), headers };
  }
  // The model fails, which is no fault of the request.
  log.warn(`answering a request: ${messageOf(error)}`);
  return { ...json({ error: "the server could not answer" }), status: 500 };
}

function send(
  request: IncomingMessage,
  response: ServerResponse,
  { status, body, headers }: Answer,
  isLast: boolean,
): void {
  const bytes = typeof body === "string" ? body : Buffer.concat(body);
  // Of a body that was not read, Node reads the rest before the next request: a large one is not worth that.
  const isCut = !request.complete && (status === 408 || !(Number(request.headers["content-length"]) <= smallBody));
  response.writeHead(status, {
    ...headers,
    "content-length": Buffer.byteLength(bytes),
    ...((isCut || isLast) && { connection: "close" }),
  });
  response.end(request.method === "HEAD" ? undefined : bytes);
}
