import { once } from "node:events";
import { mkdtempSync, readFileSync } from "node:fs";
import { createServer as createHttpServer } from "node:http";
import { createServer as createHttpsServer } from "node:https";
import { type AddressInfo, connect, createServer } from "node:net";
import { spawnSync } from "node:child_process";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { gzipSync } from "node:zlib";
import { describe, expect, test } from "vitest";
import { type HttpAnswer, readJson, type HttpEndpoint, verdictOf } from "#src/base/http/http.js";
import { proxiesOf } from "#src/base/http/proxies.js";
import { JobError } from "#src/base/errors.js";
import { refusalOf } from "../../support/faulty.js";
import { placeWith } from "../../support/http-place.js";

/** A certificate for `localhost` that no authority has signed. */
function certificate(): { readonly key: string; readonly cert: string } {
  const folder = mkdtempSync(join(tmpdir(), "infer-batch-tls-"));
  const [key, cert] = [join(folder, "key.pem"), join(folder, "cert.pem")];
  const subject = ["-subj", "/CN=localhost", "-addext", "subjectAltName=DNS:localhost,IP:127.0.0.1"];
  const made = `req -x509 -newkey rsa:2048 -nodes -days 2 -keyout ${key} -out ${cert}`.split(" ");
  expect(spawnSync("openssl", [...made, ...subject]).status, "openssl").toBe(0);
  return { key: readFileSync(key, "utf8"), cert: readFileSync(cert, "utf8") };
}

interface World extends AsyncDisposable {
  readonly https: string;
  readonly http: string;
  readonly proxy: string;
  readonly cert: string;
  /** "CONNECT localhost:443", "GET http://…", in the order they came to the proxy. */
  readonly seen: string[];
}

async function openWorld({ refusing }: { readonly refusing?: number } = {}): Promise<World> {
  const { key, cert } = certificate();
  const seen: string[] = [];
  const https = createHttpsServer({ key, cert }, (_request, response) => response.end('{"over":"https"}'));
  const http = createHttpServer((_request, response) => {
    response.writeHead(200, { "content-encoding": "gzip" }).end(gzipSync('{"over":"http"}'));
  });
  const proxy = createHttpServer(({ method, url, headers }, response) => {
    seen.push(`${method} ${url} ${headers["proxy-authorization"] ?? ""} for ${headers.host}`);
    response.end('{"over":"proxy"}');
  });
  proxy.on("connect", (request, socket) => {
    seen.push(`CONNECT ${request.url} ${request.headers["proxy-authorization"] ?? ""}`.trim());
    if (refusing !== undefined) {
      socket.end(`HTTP/1.1 ${refusing} No\r\n\r\n`);
      return;
    }
    const [, port = "0"] = request.url?.split(":") ?? [];
    const server = connect(Number(port), "127.0.0.1", () => {
      socket.write("HTTP/1.1 200 Connection established\r\n\r\n");
      server.pipe(socket).pipe(server);
    });
    socket.on("error", () => server.destroy());
  });
  const servers = [https, http, proxy];
  for (const server of servers) {
    server.listen(0, "127.0.0.1");
    await once(server, "listening");
  }
  const [ofHttps, ofHttp, ofProxy] = servers.map((server) => (server.address() as AddressInfo).port);
  return {
    https: `https://localhost:${ofHttps}/`,
    http: `http://127.0.0.1:${ofHttp}/`,
    proxy: `http://ann:secret@127.0.0.1:${ofProxy}`,
    cert,
    seen,
    [Symbol.asyncDispose]() {
      for (const server of servers) {
        server.close();
        server.closeAllConnections();
      }
      return Promise.resolve();
    },
  };
}

describe("requests to a registry", () => {
  test("a server's certificate is checked against Node's authorities, given authorities, or not at all", async () => {
    await using world = await openWorld();
    expect(await refusalOf(readJson(world.https, placeWith({})))).toMatch(
      /^64 PERMISSION\nloading a model: the server's certificate is not trusted: .*\nhint: set NODE_EXTRA_CA_CERTS/,
    );
    expect(await readJson(world.https, placeWith({ tls: { ca: world.cert } }))).toEqual({ over: "https" });
    expect(await readJson(world.https, placeWith({ tls: { rejectUnauthorized: false } }))).toEqual({ over: "https" });
    expect(await readJson(world.http, placeWith({})), "a compressed body").toEqual({ over: "http" });
  });

  test("requests use the proxies of the environment, with their logins", async () => {
    await using world = await openWorld();
    const findProxy = proxiesOf({ HTTPS_PROXY: world.proxy, http_proxy: world.proxy });
    expect(await readJson(world.https, placeWith({ findProxy, tls: { ca: world.cert } }))).toEqual({ over: "https" });
    expect(await readJson("http://mlflow.internal/api", placeWith({ findProxy }))).toEqual({ over: "proxy" });
    const login = `Basic ${Buffer.from("ann:secret").toString("base64")}`;
    expect(world.seen).toEqual([
      `CONNECT ${new URL(world.https).host} ${login}`,
      `GET http://mlflow.internal/api ${login} for mlflow.internal`,
    ]);
  });

  test("a server with an IP address is reached through a proxy, and its certificate is checked for the address", async () => {
    await using world = await openWorld();
    const findProxy = proxiesOf({ HTTPS_PROXY: world.proxy });
    const warned: string[] = [];
    const listen = ({ message }: Error): unknown => warned.push(message);
    process.on("warning", listen);
    const at = (host: string): string => world.https.replace("localhost", host);
    const place = placeWith({ findProxy, tls: { ca: world.cert } });
    expect(await readJson(at("127.0.0.1"), place)).toEqual({ over: "https" });
    expect(await refusalOf(readJson(at("127.0.0.2"), place))).toContain("certificate is not trusted");
    await new Promise(setImmediate);
    process.off("warning", listen);
    expect(warned, "Node warns of an address that is sent as a server's name").toEqual([]);
  });

  test.each([
    { status: 407, said: "64 PERMISSION" },
    { status: 503, said: "75 NETWORK" },
  ])("a proxy that answers $status ends with $said, without its password", async ({ status, said }) => {
    await using world = await openWorld({ refusing: status });
    const refusal = await refusalOf(
      readJson(world.https, placeWith({ findProxy: proxiesOf({ HTTPS_PROXY: world.proxy }) })),
    );
    expect(refusal).toContain(said);
    expect(refusal).toContain(`answered ${status}`);
    expect(refusal).not.toContain("secret");
  });
});

test.each([
  ["that does not end", {}, Buffer.alloc(65 * 1024 * 1024, " "), "the answer has more than 64 MiB"],
  ["that is not UTF-8", {}, Buffer.from('"\xe9"', "latin1"), "the answer is not UTF-8"],
  ["whose encoding is the name of a method", { "content-encoding": "constructor" }, Buffer.from("{"), "not JSON"],
])("an answer %s is an error", async (_what, headers, body, said) => {
  const server = createHttpServer((_request, response) => {
    response.writeHead(200, headers).end(body);
  });
  server.listen(0, "127.0.0.1");
  await once(server, "listening");
  try {
    const url = `http://127.0.0.1:${(server.address() as AddressInfo).port}/`;
    await expect(readJson(url, placeWith({}))).rejects.toMatchObject({
      code: "NETWORK",
      message: expect.stringContaining(said) as string,
    });
  } finally {
    server.closeAllConnections();
    server.close();
  }
});

test.each([
  { what: "a body without length is cut", head: "HTTP/1.1 200 OK\r\n\r\n[1" },
  {
    what: "the server changes the protocol",
    head: "HTTP/1.1 101 Switching\r\nUpgrade: h2c\r\nConnection: upgrade\r\n\r\n",
  },
])("a request ends when its connection is reset after $what", async ({ head }) => {
  const server = createServer((socket) => {
    socket.once("data", () => {
      socket.write(head);
      setTimeout(() => socket.resetAndDestroy(), 50);
    });
  });
  server.listen(0, "127.0.0.1");
  await once(server, "listening");
  try {
    const url = `http://127.0.0.1:${(server.address() as AddressInfo).port}/`;
    await expect(readJson(url, placeWith({}))).rejects.toMatchObject({
      code: "NETWORK",
      message: expect.stringContaining("ECONNRESET") as string,
    });
  } finally {
    server.close();
  }
});

test("a server that is silent in the middle of a body is transient, and a job that is stopped then ends at once", async () => {
  const stop = new AbortController();
  const server = createHttpServer((_request, response) => {
    response.writeHead(200, { "content-length": 100 }).write('{"half":');
  });
  server.listen(0, "127.0.0.1");
  await once(server, "listening");
  const url = `http://127.0.0.1:${(server.address() as AddressInfo).port}/`;
  try {
    expect(await refusalOf(readJson(url, placeWith({ silenceMs: 100 })))).toContain(
      "75 NETWORK\nloading a model: the server was silent for 0.1 s",
    );
    const stopped = new JobError("SIGTERM", "stopped");
    server.once("request", () => {
      setTimeout(() => {
        stop.abort(stopped);
      }, 50);
    });
    await expect(readJson(url, placeWith({ signal: stop.signal }))).rejects.toBe(stopped);
  } finally {
    server.closeAllConnections();
    server.close();
  }
});

test.each([
  ["as it is", "secret-key", (value: string) => value],
  ["if it is as long as a token of JSON", "aB3_".repeat(600), (value: string) => value],
  ["if another credential is its beginning", "secret", (value: string) => value],
  ["in JSON", 'se"cr\\et/key', (value: string) => JSON.stringify(value).slice(1, -1)],
  ["in JSON in JSON", 'se"cret/key', (value: string) => JSON.stringify(JSON.stringify(value)).slice(3, -3)],
  ["in JSON with escaped slashes", "se/cr/et", (value: string) => value.replaceAll("/", "\\/")],
  ["in JSON with codes", "se<cr=et", (value: string) => value.replace("<", "\\u003c").replace("=", "\\u003D")],
])("a credential that a server quotes in a refusal is not in the error: %s", async (_, key, quote) => {
  const server = createHttpServer(({ headers }, response) => {
    const said = `${headers.authorization ?? ""} and ${String(headers["x-api-key"])} are no keys`;
    response.writeHead(403).end(quote(said));
  });
  server.listen(0, "127.0.0.1");
  await once(server, "listening");
  const url = `http://127.0.0.1:${(server.address() as AddressInfo).port}/`;
  try {
    let said = "";
    const refused = (answer: HttpAnswer): JobError => {
      ({ said } = answer);
      return new JobError("PERMISSION", said);
    };
    const headers = { "x-api-key": key, authorization: `Bearer ${key}-token` };
    await expect(readJson(url, placeWith({ headers, refused }))).rejects.toMatchObject({ code: "PERMISSION" });
    expect(said).toBe("*** and *** are no keys");
  } finally {
    server.closeAllConnections();
    server.close();
  }
});

test.each([
  ["https://mlflow.corp.example/", "corp.example", false],
  ["https://corp.example/", ".corp.example", false],
  ["https://notcorp.example/", "corp.example", true],
  ["https://mlflow.example:5000/", "mlflow.example:5000", false],
  ["https://mlflow.example/", "mlflow.example:5000, other", true],
  ["https://mlflow.example/", "localhost *", false],
])("with NO_PROXY a request to %s, %s, goes through the proxy: %s", (url, none, proxied) => {
  const findProxy = proxiesOf({ HTTPS_PROXY: "proxy.example:3128", NO_PROXY: none });
  expect(findProxy(new URL(url))?.href).toBe(proxied ? "http://proxy.example:3128/" : undefined);
});

const place = {
  doing: "loading model https://models.example/net.onnx",
  signal: new AbortController().signal,
} as HttpEndpoint;

const systemError = (code: string): Error => Object.assign(new Error("what Node says"), { code });

test.each(["DEPTH_ZERO_SELF_SIGNED_CERT", "CERT_HAS_EXPIRED", "ERR_TLS_CERT_ALTNAME_INVALID"])(
  "a server's certificate that is not trusted (%s) is permanent, and the hint says how to trust it",
  (code) => {
    expect(verdictOf(place, systemError(code))).toMatchObject({
      kind: "end",
      error: { code: "PERMISSION", hint: expect.stringContaining("NODE_EXTRA_CA_CERTS") as string },
    });
  },
);

test.each(["ECONNRESET", "HPE_INVALID_CONSTANT"])("a lost connection (%s) is transient", (code) => {
  expect(verdictOf(place, systemError(code))).toEqual({ kind: "again", found: code });
});

test("an unknown error of a request counts as a bug", () => {
  const error = new TypeError("x is not a function");
  expect(verdictOf(place, error)).toEqual({ kind: "end", error });
});
