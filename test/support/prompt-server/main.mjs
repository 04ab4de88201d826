/*
 * A server of OpenAI's protocol that misbehaves by seed and keeps exact books: /v1/chat/completions, /v1/embeddings,
 * /v1/models. It takes its options (options.mjs) as JSON in its first argument, and prints "READY port" when it listens.
 *
 *   GET  /_mock/books      what was received, answered and billed
 *   GET  /_mock/requests   a line for each request that was billed: its hash, when, how, and its tokens
 *   POST /_mock/control    sets options: { "answersAs": "other" }; { "restartMs": 300 } stops and starts again
 */
import { createServer } from "node:http";
import { createBooks, hashOf } from "./books.mjs";
import { errors } from "./errors.mjs";
import { delayOf, fateOf } from "./fates.mjs";
import { createLimit } from "./limits.mjs";
import { optionsOf } from "./options.mjs";
import { read, refuseKey } from "./requests.mjs";

let options = optionsOf(JSON.parse(process.argv[2] ?? "{}"));
const books = createBooks(options);
const { count } = books;
/** How often each prompt was sent, and how often it was answered. */
const sent = new Map();
const answered = new Map();
let limit = createLimit(options.limit ?? {});
let changes = [...options.changes];
/** Counts starts: what was under way at a restart is never answered. */
let life = 0;

const server = createServer((request, response) => {
  const pieces = [];
  request.on("data", (piece) => pieces.push(piece));
  request.on("end", () => handle(request, response, pieces.length === 1 ? pieces[0] : Buffer.concat(pieces)));
  request.on("error", () => undefined);
  response.on("error", () => undefined);
});
server.keepAliveTimeout = 60_000;
server.on("connection", (socket) => socket.setNoDelay(true));
await listen(options.port);
process.stdout.write(`READY ${server.address().port}\n`);
process.on("SIGTERM", () => process.exit(0));

function listen(port) {
  return new Promise((done) => server.listen(port, "127.0.0.1", 4096, done));
}

async function restart(ms) {
  const { port } = server.address();
  life += 1;
  const closed = new Promise((done) => server.close(done));
  server.closeAllConnections();
  await closed;
  await new Promise((done) => setTimeout(done, ms));
  await listen(port);
}

function apply({ restartMs, ...set }) {
  options = optionsOf({ ...options, ...set });
  if (set.limit !== undefined) {
    limit = createLimit(set.limit);
  }
  if (set.changes !== undefined) {
    changes = [...set.changes];
  }
  if (restartMs !== undefined) {
    void restart(restartMs);
  }
}

function handle(request, response, bytes) {
  const { method, url: path } = request;
  if (path.startsWith("/_mock/")) {
    handleControl(path, response, bytes);
    return;
  }
  const refused = refuseKey(options, request.headers.authorization);
  if (refused !== undefined) {
    send(response, refused.status, refused.body);
  } else if (method === "GET" && path === "/v1/models") {
    const data = options.models.map((id) => ({ id, object: "model", created: 1_700_000_000, owned_by: "mock" }));
    send(response, 200, { object: "list", data });
  } else if (method === "POST" && (path === "/v1/chat/completions" || path === "/v1/embeddings")) {
    count.received += 1;
    count.in_flight += 1;
    count.peak_in_flight = Math.max(count.peak_in_flight, count.in_flight);
    void complete(path, response, bytes).finally(() => {
      count.in_flight -= 1;
    });
    while (changes[0] !== undefined && changes[0].after <= count.received) {
      const [{ set = {}, restartMs }] = changes.splice(0, 1);
      apply(restartMs === undefined ? set : { ...set, restartMs });
    }
  } else {
    const { status, body } = errors.noPath(method, path);
    send(response, status, body);
  }
}

async function complete(path, response, bytes) {
  const { error, prompt, tokens, answer } = read(options, count, path, bytes);
  if (error !== undefined) {
    fail(response, error);
    return;
  }
  const nth = sent.get(prompt) ?? 0;
  sent.set(prompt, nth + 1);
  if (options.quota !== undefined && books.totals().billed.cost >= options.quota) {
    fail(response, errors.quota());
    return;
  }
  const fate = fateOf(options, prompt, nth);
  if (fate === "limited" || fate === "limitedSilently") {
    const wait = { kind: "requests", limit: 500, seconds: 0.02 };
    fail(response, errors.limited(options.models[0], wait), fate === "limited" ? retryAfter(wait.seconds) : {});
    return;
  }
  const nowMs = performance.now();
  const wait = limit.take(tokens, nowMs);
  if (wait !== undefined) {
    fail(response, errors.limited(options.models[0], wait), { ...retryAfter(wait.seconds), ...limit.headers(nowMs) });
    return;
  }
  if (fate === "failed" || fate === "overloaded") {
    fail(response, errors[fate]());
    return;
  }
  const born = life;
  const delayMs = delayOf(options, prompt, nth);
  await (delayMs > 0 ? delay(response, delayMs) : undefined);
  if (born !== life) {
    return;
  }
  if (fate === "reset") {
    count.resets += 1;
    response.destroy();
    return;
  }
  const first = !answered.has(prompt);
  answered.set(prompt, true);
  deliver(response, { hash: hashOf(bytes), fate, ...answer(options.answersAs, first) });
}

/** Waits for the answer to be made, or for the client to leave: it pays for what was begun. */
function delay(response, ms) {
  return new Promise((done) => {
    const timer = setTimeout(done, ms);
    response.once("close", () => {
      clearTimeout(timer);
      done();
    });
  });
}

function deliver(response, { hash, fate, usage, body }) {
  const text = JSON.stringify(body);
  const entry = books.bill(hash, usage, fate === "cut" ? "cut" : "whole");
  if (response.destroyed) {
    entry.how = "gone";
    count.gone += 1;
    return;
  }
  if (fate === "cut") {
    count.cut += 1;
    response.writeHead(200, { "content-type": "application/json", "content-length": Buffer.byteLength(text) });
    response.write(text.slice(0, text.length / 2), () => response.destroy());
    return;
  }
  response.once("close", () => {
    if (!response.writableFinished) {
      entry.how = "gone";
      count.gone += 1;
    }
  });
  send(response, 200, body, limit.headers(performance.now()), text);
}

function retryAfter(seconds) {
  return { "retry-after": String(Math.ceil(seconds)), "retry-after-ms": String(Math.ceil(seconds * 1000)) };
}

function fail(response, { status, body }, headers = {}) {
  send(response, status, body, headers);
}

function send(response, status, body, headers = {}, text = JSON.stringify(body)) {
  books.status(status);
  response.writeHead(status, {
    "content-type": "application/json",
    "content-length": Buffer.byteLength(text),
    ...headers,
  });
  response.end(text);
}

function handleControl(path, response, bytes) {
  const text =
    path === "/_mock/books"
      ? JSON.stringify({ ...books.totals(), limits: limit.use() })
      : path === "/_mock/requests"
        ? [...books.lines()].join("")
        : "{}";
  response.writeHead(200, { "content-type": "application/json", "content-length": Buffer.byteLength(text) });
  response.end(text, () => {
    if (path === "/_mock/control") {
      apply(JSON.parse(bytes));
    }
  });
}
