import { createServer, type Server, type Socket } from "node:net";
import { afterEach, expect, test } from "vitest";
import { type Connections, openConnections } from "#src/s3/connections.js";
import { type Answer, exchange, type Exchange } from "#src/s3/exchange.js";
import { storeAt } from "../support/s3-source.js";
import { until } from "../support/waiting.js";

interface Talk {
  readonly port: number;
  readonly connections: Connections;
  /** Connections that the server has seen. */
  readonly accepted: Socket[];
  readonly ask: (how?: Partial<Exchange> & { readonly fresh?: boolean; readonly secure?: boolean }) => Promise<Answer>;
}

let open: { server: Server; connections: Connections } | undefined;

afterEach(() => {
  open?.connections[Symbol.dispose]();
  open?.server.close();
});

/** A server that answers each request with these bytes, and what else `answer` does with the connection. */
async function talk(answer: (socket: Socket) => void, connectMs = 60_000): Promise<Talk> {
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
  const connections = openConnections(connectMs);
  open = { server, connections };
  return {
    port,
    connections,
    accepted,
    ask({ fresh = false, secure = false, ...how } = {}) {
      const connection = connections.take({ secure, host: "127.0.0.1", port }, { fresh });
      return exchange(connection, {
        text: "GET / HTTP/1.1\r\n\r\n",
        begin: () => undefined,
        heard: () => undefined,
        signal: new AbortController().signal,
        ...how,
      });
    },
  };
}

const ok = 'HTTP/1.1 200 OK\r\nContent-Length: 5\r\nETag: "a"\r\n\r\nhello';

test("a body is handed on piece after piece, however it is cut", async () => {
  const { ask, accepted } = await talk((socket) => {
    void (async () => {
      for (const letter of ok) {
        socket.write(letter);
        await new Promise((done) => setImmediate(done));
      }
    })();
  });
  const pieces: string[] = [];
  const begin = ({ status, headers }: Omit<Answer, "body">): ((piece: Uint8Array) => void) => {
    pieces.push(`${status} ${headers["etag"]} `);
    return (piece) => void pieces.push(Buffer.from(piece).toString());
  };

  await ask({ begin });
  await ask({ begin });

  expect(pieces.join("")).toBe('200 "a" hello200 "a" hello');
  expect(pieces.length).toBeGreaterThan(4);
  expect(accepted).toHaveLength(1);
});

test.each([
  {
    what: "in chunks",
    sent: "HTTP/1.1 503 Slow\r\nTransfer-Encoding: chunked\r\n\r\n3\r\nhel\r\n2\r\nlo\r\n0\r\n\r\n",
  },
  { what: "until the end", sent: "HTTP/1.1 503 Slow\r\n\r\nhello", ends: true },
  { what: "after others", sent: `HTTP/1.1 100 Continue\r\n\r\nHTTP/1.1 103 Hints\r\nLink: a\r\n\r\n${ok}` },
  { what: "with the end of the connection", sent: ok.replace("ETag", "Connection: close\r\nETag"), ends: true },
])("an answer is understood that comes $what", async ({ sent, ends }) => {
  const { ask } = await talk((socket) => (ends === true ? socket.end(sent) : socket.write(sent)));

  const answer = await ask();

  expect(answer.body.toString()).toBe("hello");
  expect(answer.status).toBe(sent.includes("503") ? 503 : 200);
});

test.each([
  { what: "more than an answer came", sent: `${ok}HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nno` },
  { what: "the server closes it", sent: ok.replace("ETag", "Connection: close\r\nETag") },
  { what: "the server speaks HTTP/1.0", sent: ok.replace("1.1", "1.0") },
])("a connection is not used again when $what", async ({ sent }) => {
  const { ask, accepted } = await talk((socket) => void socket.write(sent));

  const answers = [await ask(), await ask()];

  expect(answers.map(({ body }) => body.toString())).toEqual(["hello", "hello"]);
  expect(accepted).toHaveLength(2);
});

test.each([
  { what: "is no HTTP", sent: "SSH-2.0-nothing\r\n\r\n", message: "the store's answer is no HTTP" },
  { what: "has an unknown length", sent: "HTTP/1.1 200 OK\r\nContent-Length: x\r\n\r\n", message: "is no HTTP" },
  {
    what: "is cut in its headers",
    sent: "HTTP/1.1 200 OK\r\nConten",
    ends: true,
    message: "the connection was closed",
  },
  { what: "is cut in its body", sent: ok.slice(0, -1), ends: true, message: "the connection was closed" },
  { what: "has headers without end", sent: `HTTP/1.1 200 OK\r\nA: ${"a".repeat(100_000)}`, message: "is no HTTP" },
])("an answer is refused that $what", async ({ sent, ends, message }) => {
  const { ask } = await talk((socket) => (ends === true ? socket.end(sent) : socket.write(sent)));

  await expect(ask()).rejects.toThrow(message);
});

test("a connection that was closed while it was idle is told from one that is lost", async () => {
  let answers = 0;
  const { ask, accepted } = await talk((socket) => {
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

test("a store reads over another connection when one was closed while it was idle, and says nothing of it", async () => {
  let answers = 0;
  const { port, accepted } = await talk((socket) => {
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
  { what: "another range", sent: ok.replace("ETag", "Content-Range: bytes 5-9/10\r\nETag"), found: "bytes 5-9/10" },
  { what: "another object", sent: ok.replace('"a"', '"b"'), found: 'ETag "b"' },
  { what: "more bytes", sent: ok.replace("5", "6").replace("hello", "hello!"), found: "a body of 5 bytes has more" },
])("a store takes nothing from an answer that has $what", async ({ sent, found }) => {
  let answers = 0;
  const { port } = await talk((socket) => {
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

test("a connection that does not come about is given up", async () => {
  const { ask } = await talk(() => undefined, 100);

  await expect(ask({ secure: true })).rejects.toThrow(/^no connection to https:\/\/127.0.0.1:\d+ within 0.1 s$/);
});

function full(): never {
  throw new Error("the disk is full");
}

test("what takes the body may end it, and so may the signal", async () => {
  const { ask, accepted } = await talk((socket) => void socket.write(ok.slice(0, -1)));
  const stop = new AbortController();
  const stopAmid = (): (() => void) => () => void setImmediate(() => stop.abort(new Error("stopped")));

  await expect(ask({ begin: () => full })).rejects.toThrow("the disk is full");
  await expect(ask({ begin: full })).rejects.toThrow("the disk is full");
  await expect(ask({ signal: stop.signal, begin: stopAmid })).rejects.toThrow("stopped");
  await expect(ask({ signal: stop.signal })).rejects.toThrow("stopped");
  await until(() => accepted.length >= 3 && accepted.slice(0, 3).every(({ destroyed }) => destroyed));
});
