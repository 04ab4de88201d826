import { createServer, type Server, type Socket } from "node:net";
import { afterEach, expect, test } from "vitest";
import {
  type HttpConnections,
  type Exchange,
  type HttpResponse,
  openConnectionPool,
} from "#src/base/http/connections.js";
import { storeAt } from "../../support/s3-source.js";
import { until } from "../../support/waiting.js";

interface TestServer {
  readonly port: number;
  readonly connections: HttpConnections;
  /** The connections that the server accepted. */
  readonly accepted: Socket[];
  readonly ask: (how?: Partial<Exchange> & { readonly secure?: boolean }) => Promise<HttpResponse>;
}

let open: { server: Server; connections: HttpConnections } | undefined;

afterEach(() => {
  open?.connections[Symbol.dispose]();
  open?.server.close();
});

/** Starts a server that calls `answer` for each request, and a pool of connections to it. */
async function startServer(answer: (socket: Socket) => void, connectMs = 60_000): Promise<TestServer> {
  const accepted: Socket[] = [];
  const server = createServer((socket) => {
    accepted.push(socket);
    socket.on("error", () => undefined);
    socket.on("data", () => {
      answer(socket);
    });
  });
  await new Promise<void>((done) => server.listen(0, "127.0.0.1", done));
  const address = server.address();
  const port = typeof address === "object" && address !== null ? address.port : 0;
  const connections = openConnectionPool(connectMs);
  open = { server, connections };
  return {
    port,
    connections,
    accepted,
    ask({ secure = false, ...how } = {}) {
      return connections.exchange(
        { secure, host: "127.0.0.1", port },
        {
          head: "GET / HTTP/1.1\r\n\r\n",
          onHeaders: () => undefined,
          signal: new AbortController().signal,
          mayResend: false,
          ...how,
        },
      );
    },
  };
}

const ok = 'HTTP/1.1 200 OK\r\nContent-Length: 5\r\nETag: "a"\r\n\r\nhello';

test("an exchange passes on a response body chunk by chunk, however TCP splits it", async () => {
  const { ask, accepted } = await startServer((socket) => {
    void (async () => {
      for (const letter of ok) {
        socket.write(letter);
        await new Promise((done) => setImmediate(done));
      }
    })();
  });
  const pieces: string[] = [];
  const onHeaders = ({ status, headers }: Omit<HttpResponse, "body">): ((piece: Uint8Array) => void) => {
    pieces.push(`${status} ${headers["etag"]} `);
    return (piece) => void pieces.push(Buffer.from(piece).toString());
  };

  await ask({ onHeaders });
  await ask({ onHeaders });

  expect(pieces.join("")).toBe('200 "a" hello200 "a" hello');
  expect(pieces.length).toBeGreaterThan(4);
  expect(accepted).toHaveLength(1);
});

test.each([
  {
    what: "comes in chunks",
    sent: "HTTP/1.1 503 Slow\r\nTransfer-Encoding: chunked\r\n\r\n3\r\nhel\r\n2\r\nlo\r\n0\r\n\r\n",
  },
  { what: "ends with its connection", sent: "HTTP/1.1 503 Slow\r\n\r\nhello", ends: true },
  { what: "follows 1xx responses", sent: `HTTP/1.1 100 Continue\r\n\r\nHTTP/1.1 103 Hints\r\nLink: a\r\n\r\n${ok}` },
  { what: "says Connection: close", sent: ok.replace("ETag", "Connection: close\r\nETag"), ends: true },
])("an exchange reads a response that $what", async ({ sent, ends }) => {
  const { ask } = await startServer((socket) => (ends === true ? socket.end(sent) : socket.write(sent)));

  const answer = await ask();

  expect(answer.body.toString()).toBe("hello");
  expect(answer.status).toBe(sent.includes("503") ? 503 : 200);
});

test.each([
  { what: "bytes follow its response", sent: `${ok}HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nno` },
  { what: "the response says Connection: close", sent: ok.replace("ETag", "Connection: close\r\nETag") },
  { what: "the server speaks HTTP/1.0", sent: ok.replace("1.1", "1.0") },
])("a connection is not reused when $what", async ({ sent }) => {
  const { ask, accepted } = await startServer((socket) => void socket.write(sent));

  const answers = [await ask(), await ask()];

  expect(answers.map(({ body }) => body.toString())).toEqual(["hello", "hello"]);
  expect(accepted).toHaveLength(2);
});

test.each([
  { what: "is not HTTP", sent: "SSH-2.0-nothing\r\n\r\n", message: "the server's response is not HTTP" },
  { what: "has an unknown length", sent: "HTTP/1.1 200 OK\r\nContent-Length: x\r\n\r\n", message: "is not HTTP" },
  { what: "has a negative length", sent: "HTTP/1.1 200 OK\r\nContent-Length: -1\r\n\r\nhello", message: "is not HTTP" },
  {
    what: "has an error page in place of a chunk",
    sent: "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n3\r\nhel\r\n<html>no</html>\r\n\r\n",
    message: "is not HTTP",
  },
  {
    what: "has a chunk of a negative size",
    sent: "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n3\r\nhel\r\n-5\r\nhello\r\n0\r\n\r\n",
    message: "is not HTTP",
  },
  {
    what: "is cut in its headers",
    sent: "HTTP/1.1 200 OK\r\nConten",
    ends: true,
    message: "the connection was closed",
  },
  { what: "is cut in its body", sent: ok.slice(0, -1), ends: true, message: "the connection was closed" },
  { what: "has headers that never end", sent: `HTTP/1.1 200 OK\r\nA: ${"a".repeat(100_000)}`, message: "is not HTTP" },
])("an exchange rejects a response that $what", async ({ sent, ends, message }) => {
  const { ask } = await startServer((socket) => (ends === true ? socket.end(sent) : socket.write(sent)));

  await expect(ask()).rejects.toThrow(message);
});

test("an exchange tells a connection that was closed while idle from one that was lost", async () => {
  let answers = 0;
  const { ask, accepted } = await startServer((socket) => {
    answers += 1;
    if (answers === 1) {
      socket.write(ok);
    } else {
      socket.resetAndDestroy();
    }
  });
  await ask();

  await expect(ask()).rejects.toThrow("closed while it was idle");
  await expect(ask()).rejects.toThrow(/ECONNRESET|the connection was closed/);
  expect(accepted).toHaveLength(2);
});

test("a store reads over a new connection, without a warning, when an idle one was closed", async () => {
  let answers = 0;
  const { port, accepted } = await startServer((socket) => {
    answers += 1;
    if (answers === 2) {
      socket.resetAndDestroy();
    } else {
      socket.write(ok);
    }
  });
  const warnings: string[] = [];
  using store = storeAt({ port, retrySeconds: 5, warnings });
  const request = { object: { bucket: "b", key: "k" }, etag: '"a"', start: 0, end: 5 };
  const read: string[] = [];
  const take = (piece: Uint8Array): void => void read.push(Buffer.from(piece).toString());

  await store.read("reading", request, take);
  await store.read("reading", request, take);

  expect(read.join("")).toBe("hellohello");
  expect(warnings).toEqual([]);
  expect(accepted).toHaveLength(2);
  expect(answers).toBe(3);
});

test.each([
  {
    what: "the bytes of another range",
    sent: ok.replace("ETag", "Content-Range: bytes 5-9/10\r\nETag"),
    found: "bytes 5-9/10",
  },
  { what: "the ETag of another object", sent: ok.replace('"a"', '"b"'), found: 'ETag "b"' },
  {
    what: "more bytes than were requested",
    sent: ok.replace("5", "6").replace("hello", "hello!"),
    found: "a body of 5 bytes is longer",
  },
])("a store passes on no byte of a response that has $what", async ({ sent, found }) => {
  let answers = 0;
  const { port } = await startServer((socket) => {
    answers += 1;
    socket.write(answers === 1 ? sent : ok);
  });
  const warnings: string[] = [];
  using store = storeAt({ port, retrySeconds: 5, warnings });
  const read: string[] = [];

  await store.read(
    "reading",
    { object: { bucket: "b", key: "k" }, etag: '"a"', start: 0, end: 5 },
    (piece, at) => void read.push(`${at} ${Buffer.from(piece).toString()}`),
  );

  expect(read).toEqual(["0 hello"]);
  expect(warnings).toHaveLength(1);
  expect(warnings[0]).toContain(found);
});

test("a connection that is not established in time is closed", async () => {
  const { ask } = await startServer(() => undefined, 100);

  await expect(ask({ secure: true })).rejects.toThrow(/^no connection to https:\/\/127.0.0.1:\d+ within 0.1 s$/);
});

function full(): never {
  throw new Error("the disk is full");
}

test("an exchange ends when onHeaders or the body's receiver throws, or the signal aborts", async () => {
  const { ask, accepted } = await startServer((socket) => void socket.write(ok.slice(0, -1)));
  const stop = new AbortController();
  const stopAmid = (): (() => void) => () => void setImmediate(() => stop.abort(new Error("stopped")));

  await expect(ask({ onHeaders: () => full })).rejects.toThrow("the disk is full");
  await expect(ask({ onHeaders: full })).rejects.toThrow("the disk is full");
  await expect(ask({ signal: stop.signal, onHeaders: stopAmid })).rejects.toThrow("stopped");
  await expect(ask({ signal: stop.signal })).rejects.toThrow("stopped");
  await until(() => accepted.length >= 3 && accepted.slice(0, 3).every(({ destroyed }) => destroyed));
});

test("an exchange that takes longer than it may ends, but not for an answer that waits unread while the thread is busy", async () => {
  let busyMs = 0;
  const { ask } = await startServer((socket) => {
    socket.write(busyMs === 0 ? ok.slice(0, -1) : ok);
    for (const startMs = performance.now(); performance.now() - startMs < busyMs; );
  });

  await expect(ask({ timeoutMs: 50 })).rejects.toThrow("the request took more than 0.05 s");
  busyMs = 200;
  expect((await ask({ timeoutMs: 100 })).body.toString()).toBe("hello");
});
