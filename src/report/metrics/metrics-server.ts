import { createServer } from "node:http";
import { type AddressInfo, isIP } from "node:net";

/** A server of metrics over HTTP. */
export interface MetricsServer extends AsyncDisposable {
  readonly url: string;
}

/**
 * Whether a Host header names this machine by an address or as localhost. A web page can point its own name at 127.0.0.1
 * (DNS rebinding) to reach a visitor's loopback interface, but its requests still carry that name.
 */
function isLocalHost(host: string | undefined): boolean {
  const [, bracketed, name = ""] = /^(?:\[([^\]]*)\]|([^:]*))(?::\d*)?$/.exec(host ?? "") ?? [];
  return host === undefined || isIP(bracketed ?? name) !== 0 || /^(?:.+\.)?localhost\.?$/i.test(name);
}

/** Answers `GET /metrics` on the loopback interface until it is disposed. @throws Error of `listen`, such as EADDRINUSE */
export async function serveMetrics(port: number, text: () => string): Promise<MetricsServer> {
  const server = createServer((request, response) => {
    if (!isLocalHost(request.headers.host)) {
      response.writeHead(403, { "content-type": "text/plain" }).end("ask for 127.0.0.1 or localhost\n");
      return;
    }
    if (request.method !== "GET" || request.url !== "/metrics") {
      response.writeHead(404).end();
      return;
    }
    response.writeHead(200, { "content-type": "text/plain; version=0.0.4; charset=utf-8" }).end(text());
  });
  await new Promise<void>((resolve, reject) => {
    server.once("error", reject);
    server.listen(port, "127.0.0.1", resolve);
  });
  server.unref(); // open connections must not keep a finished job running
  const { port: given } = server.address() as AddressInfo;
  return {
    url: `http://127.0.0.1:${given}/metrics`,
    async [Symbol.asyncDispose]() {
      server.closeAllConnections();
      await new Promise((resolve) => {
        server.close(resolve);
      });
    },
  };
}
