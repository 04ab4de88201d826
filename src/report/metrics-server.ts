import { createServer } from "node:http";
import type { AddressInfo } from "node:net";

export interface MetricsServer extends AsyncDisposable {
  readonly url: string;
}

/** Answers `GET /metrics` on the loopback interface, for as long as the attempt lasts. @throws Error EADDRINUSE … */
export async function serveMetrics(port: number, text: () => string): Promise<MetricsServer> {
  const server = createServer((request, response) => {
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
