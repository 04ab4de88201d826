import { createServer } from "node:http";
import { type AddressInfo, isIP } from "node:net";

export interface MetricsServer extends AsyncDisposable {
  readonly url: string;
}

/**
 * Whether a request names this machine by an address or as localhost. A web page whose name its owner has pointed at
 * 127.0.0.1 (DNS rebinding) reaches the loopback interface of whoever looks at it, but still sends its own name.
 */
function namesThisMachine(host: string | undefined): boolean {
  const [, bracketed, name = ""] = /^(?:\[([^\]]*)\]|([^:]*))(?::\d*)?$/.exec(host ?? "") ?? [];
  return host === undefined || isIP(bracketed ?? name) !== 0 || /^(?:.+\.)?localhost\.?$/i.test(name);
}

/** Answers `GET /metrics` on the loopback interface, for as long as the attempt lasts. @throws Error EADDRINUSE … */
export async function serveMetrics(port: number, text: () => string): Promise<MetricsServer> {
  const server = createServer((request, response) => {
    if (!namesThisMachine(request.headers.host)) {
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
  server.unref(); // a job that is done does not wait for its readers
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
